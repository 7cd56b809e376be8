//! No secret of a connection in anything that can be printed or stored, not
//! even when the server repeats it (vllm-project/vllm#45143).

use pcload::drive::phases::Session;
use pcload::secret::Secret;
use pcload::service::{ControlClient, ControlSettings};

use crate::options;
use crate::server::Server;

const KEY: &str = "sk-test-0123456789abcdef";
const PASSWORD: &str = "pw-0123";
const QUERY: &str = "qk-0123";
/// `user:pw-0123` in base 64, as basic authorization sends it.
const BASIC: &str = "dXNlcjpwdy0wMTIz";

fn settings(host: &str, key: &str) -> ControlSettings {
    let url = |path: &str| format!("http://user:{PASSWORD}@{host}{path}?key={QUERY}");
    ControlSettings {
        reset_url: Some(url("/reset_prefix_cache")),
        api_key: Secret::new(key),
        ..ControlSettings::new(url("/v1/completions"), url("/metrics"), "m")
    }
}

fn clean(text: &str) {
    for secret in [KEY, PASSWORD, QUERY, BASIC] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}

#[tokio::test]
async fn errors_and_debug_output_hold_none() {
    let server = Server::with(1, |state| state.refuses_key = true).await;
    let host = server.url().replace("http://", "");
    for key in [KEY, ""] {
        let client = ControlClient::new(settings(&host, key)).unwrap();
        let mut session = Session::new(settings(&host, key), options()).unwrap();
        let error = session.precheck().await.unwrap_err();
        assert_eq!(error.code, "UNAUTHORIZED");
        clean(&format!("{error} {error:?}"));
        let reset = session.reset().await.unwrap_err();
        clean(&format!("{reset} {reset:?}"));
        let attempt = client.reset().await.unwrap().unwrap();
        clean(&serde_json::to_string(&attempt).unwrap());
        assert!(
            attempt.message.contains("[redacted]"),
            "{}",
            attempt.message
        );
        for error in [
            client.complete(&"x".into(), None).await.unwrap_err(),
            client.scrape().await.unwrap_err(),
            client.models().await.unwrap_err(),
        ] {
            clean(&format!("{error} {error:?}"));
        }
        clean(&format!("{client:?} {session:?}"));
        // The server did get them.
        let state = server.state();
        let sent = state.seen.last().unwrap();
        let authorization = &sent.headers["authorization"];
        let expected = if key.is_empty() {
            format!("Basic {BASIC}")
        } else {
            format!("Bearer {KEY}")
        };
        assert_eq!(*authorization, expected);
        assert!(sent.path.contains(QUERY));
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_reveals_none() {
    let server = Server::start(1).await;
    let host = server.url().replace("http://", "");
    drop(server);
    let client = ControlClient::new(settings(&host, KEY)).unwrap();
    let error = client.scrape().await.unwrap_err();
    assert_eq!(error.code(), "SERVICE_UNREACHABLE");
    clean(&format!("{error} {error:?}"));
    assert!(
        error
            .to_string()
            .contains(&format!("http://{host}/metrics"))
    );
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_without_repeating_them() {
    let refused = |url: &str, key: &str| {
        let settings = ControlSettings {
            api_key: Secret::new(key),
            ..ControlSettings::new(url, "http://h/metrics", "m")
        };
        let error = ControlClient::new(settings).unwrap_err();
        clean(&format!("{error} {error:?}"));
        error.code()
    };
    for url in [
        "",
        "h/v1",
        "ftp://h/",
        "user:pw-0123@h/v1?key=qk-0123",
        "http://",
    ] {
        assert_eq!(refused(url, ""), "SERVICE_URL_INVALID", "{url}");
    }
    assert_eq!(
        refused("http://h/v1", &format!("{KEY}\n")),
        "API_KEY_INVALID"
    );
}
