//! Proxy variables of the environment never catch what goes to loopback.

use std::io::ErrorKind;
use std::net::TcpListener;

use serde_json::json;

use crate::folder::{Folder, Ran, with};
use crate::server::{Simulated, instant};

const VARIABLES: [&str; 6] = [
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
];

#[test]
fn loopback_traffic_never_goes_through_a_proxy() {
    let server = Simulated::start(instant());
    let poison = TcpListener::bind("127.0.0.1:0").unwrap();
    poison.set_nonblocking(true).unwrap();
    let open = format!("http://{}", poison.local_addr().unwrap());
    let closed = "http://127.0.0.1:1".to_owned();
    for proxy in [open, closed] {
        for host in ["127.0.0.1", "localhost"] {
            let folder = Folder::new();
            let mut scenario = server.scenario();
            for (field, path) in [
                ("inference_url", "/v1/completions"),
                ("metrics_url", "/metrics"),
                ("reset_url", "/reset_prefix_cache"),
            ] {
                let url = format!("http://{host}:{}{path}", server.port());
                scenario = with(scenario, &format!("service.{field}"), json!(url));
            }
            folder.write_scenario(&scenario);
            let mut command = folder.command(&["run", "-q", "--scenario", "scenario.json"]);
            for variable in VARIABLES {
                command.env(variable, &proxy);
            }
            command.env_remove("NO_PROXY").env_remove("no_proxy");
            let ran = Ran::of(command);
            assert_eq!(ran.status, 0, "{host} by {proxy}: {}", ran.stderr);
            assert_eq!(ran.json()["actual"]["global_hits"], 12 * 64);
        }
    }
    let nobody = poison.accept().unwrap_err();
    assert_eq!(nobody.kind(), ErrorKind::WouldBlock, "the proxy was asked");
}
