//! Proxy variables of the environment must not capture anything
//! (unslothai/unsloth#7709: loopback traffic went to `HTTP_PROXY`).

use std::process::Command;

use pcload::drive::phases::Session;
use pcload::service::{ControlClient, ControlSettings};
use tokio::net::TcpListener;

use crate::server::Server;
use crate::{options, session, settings};

/// Marks the process that runs under proxy variables.
const CHILD: &str = "PCLOAD_TEST_UNDER_PROXY";

#[test]
fn a_proxy_of_the_environment_sees_no_connection() {
    let poison = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    poison.set_nonblocking(true).unwrap();
    let proxy = format!("http://{}", poison.local_addr().unwrap());
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "proxies::phases_work_under_proxy_variables"]);
    child.env(CHILD, "1");
    for name in [
        "HTTP_PROXY",
        "http_proxy",
        "HTTPS_PROXY",
        "https_proxy",
        "ALL_PROXY",
        "all_proxy",
    ] {
        child.env(name, &proxy);
    }
    let output = child.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    let connection = poison.accept().map(|_| ());
    assert_eq!(
        connection.unwrap_err().kind(),
        std::io::ErrorKind::WouldBlock,
        "the proxy was used"
    );
}

#[tokio::test]
async fn phases_work_under_proxy_variables() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let server = Server::start(2).await;
    session(&server, 2).precheck().await.unwrap();
    let by_name = server.url().replace("127.0.0.1", "localhost");
    let named = ControlSettings::new(
        format!("{by_name}/v1/completions"),
        format!("{by_name}/metrics"),
        "m",
    );
    let named = ControlSettings {
        dp_size: 2,
        ..named
    };
    Session::new(named, options())
        .unwrap()
        .precheck()
        .await
        .unwrap();
}

#[tokio::test]
async fn a_proxy_that_is_asked_for_is_used() {
    let server = Server::start(1).await;
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = ControlSettings {
        proxy: Some(format!("http://{}", proxy.local_addr().unwrap())),
        ..settings(&server, 1)
    };
    let client = ControlClient::new(settings).unwrap();
    tokio::select! {
        accepted = proxy.accept() => drop(accepted.unwrap()),
        scraped = client.scrape() => panic!("the proxy was passed by: {scraped:?}"),
    }
}
