//! Options that are wrong, servers that are not there, keys that stay secret.

use super::Run;
use super::server::Server;

#[test]
fn what_is_wrong_is_said_before_anything_is_sent() {
    let server = Server::start(|state| state.max_model_len = 32_768);
    for (probe, options, code) in [
        ("single", "--tokens 40000", "SIZE_OVER_CONTEXT"),
        ("single", "--tokens 2000 --turns 1", "PROBE_OPTION_INVALID"),
        ("single", "--tokens 2000 --block 0", "PROBE_OPTION_INVALID"),
        (
            "single",
            "--tokens 2000 --retention 100",
            "RETENTION_NOT_A_MULTIPLE",
        ),
        (
            "single",
            "--tokens 2000 --retention 100 --block 64",
            "RETENTION_NOT_A_MULTIPLE",
        ),
        ("single", "--tokens 2000 --model other", "MODEL_UNKNOWN"),
        (
            "single",
            r#"--tokens 2000 --extra-body {"stream":false}"#,
            "EXTRA_BODY_INVALID",
        ),
        ("single", "--tokens 2000 --extra-body [1]", "USAGE"),
        ("single", "--tokens 2000 --budget soon", "USAGE"),
        ("single", "--tokens 2000 --header nothing", "USAGE"),
        (
            "single",
            "--tokens 2000 --out no/such/folder.json",
            "OUT_UNWRITABLE",
        ),
        (
            "single",
            "--tokens 2000 --api-key-file no-such-file",
            "FILE_UNREADABLE",
        ),
        (
            "alternation",
            "--tokens 2000 --noise-tokens 50000",
            "SIZE_OVER_CONTEXT",
        ),
        ("dose", "--tokens 2000 --doses 0,50000", "SIZE_OVER_CONTEXT"),
        ("dose", "--tokens 2000 --doses 0 --find-knee", "USAGE"),
        (
            "needle",
            "--tokens 2000 --depths 1.5",
            "PROBE_OPTION_INVALID",
        ),
        (
            "needle",
            "--tokens 2000 --depths NaN",
            "PROBE_OPTION_INVALID",
        ),
        (
            "needle",
            "--tokens 2000 --control no-such-file",
            "FILE_UNREADABLE",
        ),
    ] {
        let run = Run::probe(&server, probe, options);
        assert_eq!(
            (run.status, run.code()),
            (2, code),
            "{options}: {}",
            run.stderr
        );
        assert_eq!(run.stdout, "");
        assert_eq!(std::fs::read_dir(run.folder.path()).unwrap().count(), 0);
    }
    assert_eq!(server.state().bodies.len(), 0);
}

#[test]
fn several_models_are_listed_and_one_may_be_chosen() {
    let server = Server::start(|state| state.models = vec!["first", "second"]);
    let run = Run::probe(&server, "single", "--tokens 2000");
    assert_eq!((run.status, run.code()), (2, "SEVERAL_MODELS"));
    assert!(run.stderr.contains("first, second"));
    let run = Run::probe(&server, "single", "--tokens 2000 --model second");
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert_eq!(run.record()["engine"]["model"]["source"], "option");
    assert_eq!(server.state().bodies[0]["model"], "second");
}

#[test]
fn a_cache_that_is_off_cannot_be_probed() {
    let server = Server::start(|state| state.prefix_caching = "False");
    let run = Run::probe(&server, "single", "--tokens 2000");
    assert_eq!((run.status, run.code()), (2, "PREFIX_CACHING_OFF"));
    assert_eq!(server.state().bodies.len(), 0);
}

#[test]
fn a_server_that_is_not_there_is_the_world_s_fault() {
    // Bound and let go: nothing listens there.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let url = format!("http://127.0.0.1:{port}");
    let run = Run::of(&["probe", "single", "--url", &url]);
    assert_eq!(
        (run.status, run.code()),
        (3, "SERVICE_UNREACHABLE"),
        "{}",
        run.stderr
    );
    let run = Run::of(&["probe", "single", "--url", "127.0.0.1:8000"]);
    assert_eq!((run.status, run.code()), (2, "SERVICE_URL_INVALID"));
    let run = Run::of(&["probe", "single"]);
    assert_eq!((run.status, run.code()), (2, "USAGE"));
}

#[test]
fn url_model_and_key_come_from_the_environment_and_no_secret_goes_out() {
    let server = Server::start(|_| {});
    let key = "sk-test-0123456789abcdef";
    let run = Run::with(
        &[
            "probe",
            "single",
            "--tokens",
            "2000",
            "-v",
            "--header",
            "X-Gate=gate-secret-77",
        ],
        |command| {
            command.env("VLLM_API", format!("{}/v1", server.url()));
            command.env("VLLM_MODEL", "m").env("OPENAI_API_KEY", key);
            command.env("VLLM_API_KEY", "later");
            // Loopback never goes through a proxy.
            command
                .env("HTTP_PROXY", "http://127.0.0.1:1")
                .env("ALL_PROXY", "http://127.0.0.1:1");
        },
    );
    assert_eq!(run.status, 0, "{}", run.stderr);
    let headers = server.state().headers.clone();
    assert_eq!(headers["authorization"], format!("Bearer {key}"));
    assert_eq!(headers["x-gate"], "gate-secret-77");
    let record = std::fs::read_to_string(run.record_path()).unwrap();
    for text in [&run.stdout, &run.stderr, &record] {
        assert!(
            !text.contains(key) && !text.contains("gate-secret"),
            "{text}"
        );
    }
    let refused = Server::start(|state| state.fails_from = Some((1, 401)));
    let run = Run::probe(
        &refused,
        "single",
        &format!("--tokens 2000 --api-key {key}"),
    );
    assert_eq!((run.status, run.code()), (3, "UNAUTHORIZED"));
    assert!(!run.stderr.contains(key));
}

#[test]
fn a_key_file_is_read_and_quiet_says_nothing_but_errors() {
    let server = Server::start(|_| {});
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, "sk-from-file\n").unwrap();
    let options = format!("--tokens 2000 --quiet --api-key-file {}", file.display());
    let run = Run::probe(&server, "single", &options);
    assert_eq!((run.status, run.stderr.as_str()), (0, ""));
    assert_eq!(
        server.state().headers["authorization"],
        "Bearer sk-from-file"
    );
    assert_eq!(run.stdout.lines().count(), 1);
    std::fs::write(&file, "two words").unwrap();
    let run = Run::probe(&server, "single", &options);
    assert_eq!((run.status, run.code()), (2, "API_KEY_INVALID"));
}
