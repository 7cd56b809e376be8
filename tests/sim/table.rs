//! The conformance table of the book: each recorded exchange, same or
//! differs, and why. The page must say what is found here;
//! `PCLOAD_UPDATE_TABLE=1 cargo test --test sim table` writes it anew.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use pcload::sim::{Config, Faults, Pace, Release, Server};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::compare::{self, Same};
use crate::conformance::{BOTH, EXACT, STREAMS, config, data, recorded, replay};
use crate::stops;
use crate::wire::{Answer, completion, ids, post, send_with, server, with_usage};

/// Where the simulator does otherwise, and why. Each must differ: a line that
/// became untrue fails.
const DIFFERS: &[(&str, &str, &str)] = &[
    (
        "0.32.0",
        "completion.stream.logprobs",
        "the recorded server stood still while it compiled, so five tokens came in one event; here each has its own. Tokens, offsets and usage are the same",
    ),
    (
        "0.32.0",
        "completion.stream.aborted",
        "`--enable-per-request-metrics` is not simulated: no `metrics` in the usage event",
    ),
    (
        "0.32.0",
        "completion.stream.keep_alive_comments",
        "no `metrics` in the usage event, as above; at two tokens an event all else is the same",
    ),
];

/// What was found, by release and name.
type Found = BTreeMap<(&'static str, String), Same>;

/// Everything that was recorded of one release.
fn names(release: Release) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(data(release))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| name.strip_suffix(".http").map(str::to_owned))
        .collect();
    names.sort_unstable();
    names
}

fn both(ours: &Answer, theirs: &Answer, body: fn(&Answer, &Answer) -> Same) -> Same {
    compare::head(ours, theirs)?;
    body(ours, theirs)
}

/// Generations in the order in which they were recorded, since each finds what
/// the ones before it left in the cache.
async fn generations(release: Release, found: &mut Found) {
    let server = server(config(release)).await;
    let version = release.version();
    let mut put = |name: &str, same: Same| {
        found.insert((version, name.to_owned()), same);
    };
    let plain = replay(&server, release, "completion.plain").await;
    let theirs = recorded(release, "completion.plain");
    put("completion.plain", both(&plain, &theirs, compare::document));
    replay(&server, release, "reset_prefix_cache.idle").await;
    for name in STREAMS {
        if name == "chat.stream" {
            let plain = replay(&server, release, "chat.plain").await;
            let theirs = recorded(release, "chat.plain");
            put("chat.plain", both(&plain, &theirs, compare::document));
        }
        let ours = replay(&server, release, name).await;
        put(name, both(&ours, &recorded(release, name), compare::stream));
    }
    for name in ["completion.stream.logprobs", "chat.stream.logprobs"] {
        let ours = replay(&server, release, name).await;
        put(name, both(&ours, &recorded(release, name), compare::stream));
    }
    let models = replay(&server, release, "models").await;
    let theirs = recorded(release, "models");
    put("models", both(&models, &theirs, compare::document));
    for name in EXACT {
        let ours = replay(&server, release, name).await;
        put(name, both(&ours, &recorded(release, name), compare::exact));
    }
    let mut running = server.connect();
    running.write_all(&long_request()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let busy = replay(&server, release, "reset_prefix_cache.busy").await;
    let theirs = recorded(release, "reset_prefix_cache.busy");
    put(
        "reset_prefix_cache.busy",
        both(&busy, &theirs, compare::exact),
    );
    server.shutdown().await;
}

fn long_request() -> Vec<u8> {
    let body = completion(&ids(0, 50), 1_000, json!({"model": "tiny"})).to_string();
    let length = body.len();
    format!("POST /v1/completions HTTP/1.1\r\nHost: s\r\nContent-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}

const V: Release = Release::V0_32;

fn put(found: &mut Found, name: &str, same: Same) {
    found.insert((V.version(), name.to_owned()), same);
}

/// What an operator may ask for.
async fn operator(found: &mut Found) {
    let server = server(config(V)).await;
    for name in [
        "is_paused.no",
        "abort_requests.idle",
        "abort_requests.no_json",
        "abort_requests.list",
        "pause.abort",
        "is_paused.abort",
        "reset.while_paused.abort",
        "resume.abort",
        "pause.bad",
        "pause.get",
        "stop.error.empty",
        "stop.error.type",
    ] {
        let ours = replay(&server, V, name).await;
        put(found, name, both(&ours, &recorded(V, name), compare::exact));
    }
    server.shutdown().await;
}

/// Exchanges with servers that were started otherwise.
async fn other_servers(found: &mut Found) {
    let options = [
        (
            Config {
                dev_mode: false,
                ..config(V)
            },
            ["nodev.reset_prefix_cache", "nodev.server_info"],
        ),
        (
            Config {
                ranks: 2,
                ..config(V)
            },
            ["dp2.error.bad_rank", "dp2.reset_prefix_cache.idle"],
        ),
    ];
    for (config, names) in options {
        let server = server(config).await;
        for name in names {
            let ours = replay(&server, V, name).await;
            put(found, name, both(&ours, &recorded(V, name), compare::exact));
        }
        server.shutdown().await;
    }
    let named = |config: Config| Config {
        request_id_headers: true,
        ..config
    };
    let full = named(Config {
        max_queued_requests: Some(0),
        pace: Pace::Flood,
        ..config(V)
    });
    let one = completion(&[1], 1, json!({"model": "tiny"}));
    let ours = asked_once(full, &one).await;
    let theirs = recorded(V, "error.queue_full");
    put(
        found,
        "error.queue_full",
        both(&ours, &theirs, compare::exact),
    );
    let faults = Faults {
        busy_stream: 1.0,
        ..Faults::default()
    };
    let mut streamed = completion(&[1], 1, with_usage());
    streamed["model"] = json!("tiny");
    let busy = named(Config {
        faults,
        ..config(V)
    });
    let name = "completion.stream.queue_full";
    let ours = asked_once(busy, &streamed).await;
    put(found, name, both(&ours, &recorded(V, name), compare::exact));
}

async fn asked_once(config: Config, body: &Value) -> Answer {
    let server = server(config).await;
    let answer = post(&server, "/v1/completions", body).await;
    server.shutdown().await;
    answer
}

/// Streams that were recorded by hand.
async fn by_hand(found: &mut Found) {
    let named = Config {
        request_id_headers: true,
        ..config(V)
    };
    let name = "completion.stream.interval4";
    let theirs = recorded(V, name);
    let prompt = &theirs.events()[0]["choices"][0]["prompt_token_ids"];
    let prompt: Vec<u32> = serde_json::from_value(prompt.clone()).unwrap();
    let mut body = completion(&prompt, 30, with_usage());
    body["model"] = json!("tiny");
    body["return_token_ids"] = json!(true);
    let four = Config {
        stream_interval: 4,
        ..config(V)
    };
    let ours = asked_once(four, &body).await;
    put(found, name, both(&ours, &theirs, compare::stream));

    let name = "completion.stream.keep_alive_comments";
    let theirs = recorded(V, name);
    let mut body = completion(&ids(0, 30_000), 3, with_usage());
    body["model"] = json!("tiny");
    let slow = Config {
        sse_keep_alive: Some(Duration::from_secs(1)),
        // The recorded server was slow: its last event holds two tokens.
        stream_interval: 2,
        pace: Pace::Fixed {
            ttft: Duration::from_millis(17_500),
            itl: Duration::from_millis(10),
        },
        ..named.clone()
    };
    let ours = asked_once(slow, &body).await;
    put(found, name, both(&ours, &theirs, commented));
    assert_eq!(both(&ours, &without_metrics(theirs), commented), Ok(()));

    let name = "completion.stream.aborted";
    let server = server(named.clone()).await;
    let mut body = completion(&ids(0, 50), 1_000, with_usage());
    body["model"] = json!("tiny");
    // The recorded prompt had a block in the cache.
    let mut warm = completion(&ids(0, 33), 1, json!({}));
    warm["model"] = json!("tiny");
    post(&server, "/v1/completions", &warm).await;
    let (ours, _) = tokio::join!(post(&server, "/v1/completions", &body), async {
        tokio::time::sleep(Duration::from_millis(675)).await;
        post(&server, "/abort_requests", &json!({})).await
    });
    let theirs = recorded(V, name);
    put(found, name, both(&ours, &theirs, compare::stream));
    assert_eq!(
        both(&ours, &without_metrics(theirs), compare::stream),
        Ok(())
    );
    server.shutdown().await;

    let name = "completion.stream.engine_death";
    let faults = Faults {
        error_event: 1.0,
        ..Faults::default()
    };
    let dies = Config { faults, ..named };
    let ours = asked_once(dies, &body).await;
    put(found, name, both(&ours, &recorded(V, name), dead));
}

/// The answer without the member that `--enable-per-request-metrics` adds.
fn without_metrics(mut answer: Answer) -> Answer {
    let cut = |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).unwrap();
        let Some((before, rest)) = text.split_once(",\"metrics\":{") else {
            return bytes.to_vec();
        };
        let (_, after) = rest.split_once('}').unwrap();
        format!("{before}{after}").into_bytes()
    };
    answer.body = cut(&answer.body);
    answer.chunks = answer.chunks.iter().map(|chunk| cut(chunk)).collect();
    answer
}

/// Comments before the first event, then the events.
fn commented(ours: &Answer, theirs: &Answer) -> Same {
    let comments = |answer: &Answer| {
        let is_comment = |chunk: &&Vec<u8>| chunk.as_slice() == b": keep-alive\n\n";
        answer.chunks.iter().take_while(is_comment).count()
    };
    if comments(ours) != comments(theirs) {
        return Err(format!(
            "{} comments, recorded {}",
            comments(ours),
            comments(theirs)
        ));
    }
    compare::stream(ours, theirs)
}

/// The end of a stream whose engine died; how many tokens came before is
/// chance.
fn dead(ours: &Answer, theirs: &Answer) -> Same {
    let end = |answer: &Answer| answer.chunks[answer.chunks.len() - 2..].to_vec();
    if end(ours) == end(theirs) && ours.complete == theirs.complete {
        Ok(())
    } else {
        Err("another end".to_owned())
    }
}

async fn all() -> Found {
    let mut found = Found::new();
    for release in BOTH {
        generations(release, &mut found).await;
        let name = "completion.stream.engine_death";
        if release == Release::V0_24 {
            let faults = Faults {
                error_event: 1.0,
                ..Faults::default()
            };
            let dies = Config {
                faults,
                ..config(release)
            };
            let mut body = completion(&ids(0, 50), 100, with_usage());
            body["model"] = json!("tiny");
            let ours = asked_once(dies, &body).await;
            let same = both(&ours, &recorded(release, name), dead);
            found.insert((release.version(), name.to_owned()), same);
        }
    }
    operator(&mut found).await;
    other_servers(&mut found).await;
    by_hand(&mut found).await;
    for (name, same) in stops::all().await {
        put(&mut found, &name, same);
    }
    found
}

fn why(version: &str, name: &str) -> Option<&'static str> {
    DIFFERS
        .iter()
        .find(|(release, known, _)| *known == name && (*release == version || *release == "both"))
        .map(|(.., why)| *why)
}

fn table(found: &Found) -> String {
    let mut names: Vec<&String> = found.keys().map(|(_, name)| name).collect();
    names.sort_unstable();
    names.dedup();
    let mut table = "| exchange | 0.24.0 | 0.32.0 |\n|---|---|---|\n".to_owned();
    let mut reasons = Vec::new();
    for name in names {
        let cell = |release: Release, reasons: &mut Vec<&str>| {
            let version = release.version();
            if !found.contains_key(&(version, name.clone())) {
                return String::new();
            }
            let Some(why) = why(version, name) else {
                return "same".to_owned();
            };
            let known = reasons.iter().position(|known| *known == why);
            let at = known.unwrap_or_else(|| {
                reasons.push(why);
                reasons.len() - 1
            });
            format!("differs ({})", at + 1)
        };
        let cells = BOTH.map(|release| cell(release, &mut reasons));
        writeln!(table, "| `{name}` | {} | {} |", cells[0], cells[1]).unwrap();
    }
    table.push('\n');
    for (at, why) in reasons.iter().enumerate() {
        writeln!(table, "{}. {why}.", at + 1).unwrap();
    }
    table
}

fn page() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/src/simulator.md")
}

const BEGINS: &str = "<!-- conformance: written by tests/sim/table.rs -->\n";
const ENDS: &str = "<!-- end of conformance -->";

#[tokio::test(start_paused = true)]
async fn the_table_of_the_book_is_what_is_found() {
    let found = all().await;
    for release in BOTH {
        for name in names(release) {
            let version = release.version();
            let same = found
                .get(&(version, name.clone()))
                .unwrap_or_else(|| panic!("{version} {name} was recorded and is not compared"));
            match (same, why(version, &name)) {
                (Ok(()), None) | (Err(_), Some(_)) => {}
                (Err(difference), None) => panic!("{version} {name}: {difference}"),
                (Ok(()), Some(_)) => panic!("{version} {name} is the same by now"),
            }
        }
    }
    let table = table(&found);
    println!("{table}");
    let text = std::fs::read_to_string(page()).unwrap();
    let (before, rest) = text.split_once(BEGINS).expect("the table begins");
    let (written, after) = rest.split_once(ENDS).expect("the table ends");
    if std::env::var_os("PCLOAD_UPDATE_TABLE").is_some() {
        std::fs::write(page(), format!("{before}{BEGINS}\n{table}\n{ENDS}{after}")).unwrap();
    } else {
        assert_eq!(written.trim(), table.trim(), "docs/src/simulator.md");
    }
}

/// A recorded status line and head take part: both spell the same protocol.
#[tokio::test(start_paused = true)]
async fn an_answer_carries_the_requests_own_id_where_asked_for() {
    let server: Server = server(Config {
        request_id_headers: true,
        ..config(V)
    })
    .await;
    let headers = [("X-Request-Id", "mine")];
    let own = send_with(&server, "GET", "/health", &headers, b"").await;
    assert_eq!(own.header("x-request-id"), Some("mine"));
    let fresh = send_with(&server, "GET", "/nope", &[], b"").await;
    let id = fresh.header("x-request-id").unwrap();
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let mut stream = server.connect();
    stream
        .write_all(b"GET /health HTTP/1.1\r\nHost: s\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.unwrap();
    assert_ne!(Answer::parse(&all).header("x-request-id"), Some(id));
    server.shutdown().await;
}
