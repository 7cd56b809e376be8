//! The precheck: what it accepts, what it warns of, and how each thing that is
//! wrong with a server is named before anything else is sent.

use std::time::Duration;

use pcload::drive::phases::{PhaseError, PhaseOptions, Precheck, Session};
use pcload::service::ControlSettings;
use pcload::units::{BlockSize, DpRank};

use crate::server::{Server, State};
use crate::{codes, impatient_session, options, session, settings};

async fn precheck(
    ranks: usize,
    dp_size: u32,
    turn: impl FnOnce(&mut State),
) -> (Result<Precheck, PhaseError>, Server) {
    let server = Server::with(ranks, turn).await;
    let result = session(&server, dp_size).precheck().await;
    (result, server)
}

async fn fails(ranks: usize, dp_size: u32, turn: impl FnOnce(&mut State)) -> (PhaseError, Server) {
    let (result, server) = precheck(ranks, dp_size, turn).await;
    (result.unwrap_err(), server)
}

#[tokio::test]
async fn a_sound_server_passes_without_a_warning() {
    let (found, server) = precheck(1, 1, |_| ()).await;
    let found = found.unwrap();
    assert!(found.warnings.is_empty(), "{:?}", found.warnings);
    assert_eq!(found.ranks, [DpRank(0)]);
    assert_eq!(found.version.as_deref(), Some("0.32.0"));
    assert_eq!(found.max_model_len, Some(32_768));
    assert_eq!(found.block.measured_tokens, Some(16));
    assert_eq!(found.block.candidates, [16]);
    assert_eq!(found.block.cached_tokens_in_usage, Some(true));
    let state = server.state();
    let completions = state
        .paths()
        .iter()
        .filter(|path| **path == "/v1/completions")
        .count();
    assert!(completions <= 8, "{completions} requests");
}

#[tokio::test]
async fn requests_have_the_references_form() {
    let (found, server) = precheck(1, 1, |_| ()).await;
    found.unwrap();
    let state = server.state();
    let probe = state
        .seen
        .iter()
        .find(|seen| seen.method == "POST")
        .unwrap();
    assert!(probe.body.starts_with("{\"model\":\"m\",\"prompt\":\""));
    assert!(probe.body.contains("prefix-cache-capability-probe-0"));
    assert!(
        probe
            .body
            .ends_with(",\"max_tokens\":1,\"temperature\":0,\"stream\":false}")
    );
    assert_eq!(probe.headers["content-type"], "application/json");
    for seen in &state.seen {
        assert!(
            !seen.headers.contains_key("x-data-parallel-rank"),
            "{seen:?}"
        );
        assert!(!seen.headers.contains_key("authorization"), "{seen:?}");
    }
}

/// The reference's own probes as they were recorded.
#[tokio::test]
async fn probes_have_the_keys_and_headers_of_the_recorded_ones() {
    let shared = std::env::var("PCLOAD_SHARED")
        .unwrap_or_else(|_| format!("{}/../shared", env!("CARGO_MANIFEST_DIR")));
    let path = format!("{shared}/golden/run-warm/wire.jsonl");
    let Ok(wire) = std::fs::read_to_string(&path) else {
        eprintln!("skipped: no {path}");
        return;
    };
    let recorded: serde_json::Value = serde_json::from_str(wire.lines().nth(1).unwrap()).unwrap();
    let (found, server) = precheck(2, 2, |_| ()).await;
    found.unwrap();
    let state = server.state();
    let mut probes = state.seen.iter().filter(|seen| seen.method == "POST");
    let probe = probes.find(|seen| seen.body.contains("probe-1")).unwrap();
    assert_eq!(recorded["path"], probe.path);
    for (name, value) in recorded["headers"].as_object().unwrap() {
        assert_eq!(*value, probe.headers[&name.to_lowercase()], "{name}");
    }
    let sent: serde_json::Value = serde_json::from_str(&probe.body).unwrap();
    let keys = |body: &serde_json::Value| {
        let keys = body.as_object().unwrap().keys();
        keys.cloned().collect::<Vec<String>>()
    };
    assert_eq!(keys(&recorded["body"]), keys(&sent));
    for key in ["model", "max_tokens", "temperature", "stream"] {
        assert_eq!(recorded["body"][key], sent[key], "{key}");
    }
}

#[tokio::test]
async fn every_rank_is_proved_by_its_counters() {
    let (found, server) = precheck(2, 2, |_| ()).await;
    let found = found.unwrap();
    let of_rank = |rank| {
        found
            .routing
            .iter()
            .filter(|one| one.dp_rank == DpRank(rank))
            .count()
    };
    assert_eq!((of_rank(0), of_rank(1)), (4, 4));
    for probe in &found.routing {
        assert_eq!(probe.moved, [probe.dp_rank]);
    }
    assert!(found.warnings.is_empty(), "{:?}", found.warnings);
    let state = server.state();
    let headers: Vec<&str> = state
        .seen
        .iter()
        .filter_map(|seen| seen.headers.get("x-data-parallel-rank"))
        .map(String::as_str)
        .collect();
    assert_eq!(headers[..8], ["0", "0", "0", "0", "1", "1", "1", "1"]);
}

/// SemiAnalysisAI/InferenceX#2696: every answer is 200, one rank does the work.
#[tokio::test]
async fn a_rank_header_that_is_ignored_is_found_before_anything_else() {
    let (error, server) = fails(2, 2, |state| state.ignores_header = Some(vec![0])).await;
    assert_eq!(error.code, "DP_ROUTING_NOT_HONORED");
    assert!(
        error.message.contains("DP rank 1 was served by rank 0"),
        "{error}"
    );
    assert!(error.message.contains("RANK_HEADER_IGNORED"));
    assert!(!server.state().paths().contains(&"/reset_prefix_cache"));
    // vLLM without the header takes turns, which single probes would survive.
    let (error, _server) = fails(2, 2, |state| state.ignores_header = Some(vec![0, 1])).await;
    assert_eq!(error.code, "DP_ROUTING_NOT_HONORED");
}

#[tokio::test]
async fn a_probe_that_other_traffic_blurs_is_repeated() {
    let (found, _server) = precheck(2, 2, |state| state.foreign = (40, 2)).await;
    let found = found.unwrap();
    assert!(
        found
            .routing
            .iter()
            .all(|probe| probe.moved == [probe.dp_rank])
    );
    let (found, _server) = precheck(2, 2, |state| state.foreign = (40, 1_000)).await;
    assert!(codes(&found.unwrap().warnings).contains(&"DP_ROUTING_UNPROVEN"));
}

/// vllm-project/vllm#32314.
#[tokio::test]
async fn a_rank_that_the_server_lacks_is_named_with_its_answer() {
    let (error, server) = fails(2, 4, |_| ()).await;
    assert_eq!(error.code, "DP_SIZE_MISMATCH");
    assert!(error.message.contains("DP rank 2"), "{error}");
    assert!(error.message.contains("400"), "{error}");
    assert!(
        error
            .message
            .contains("data_parallel_rank 2 is out of range [0, 2)."),
        "{error}"
    );
    let state = server.state();
    let last = state.seen.last().unwrap();
    assert_eq!(last.headers["x-data-parallel-rank"], "2");
}

#[tokio::test]
async fn more_engines_than_configured_are_a_mismatch() {
    let (error, server) = fails(2, 1, |_| ()).await;
    assert_eq!(error.code, "DP_SIZE_MISMATCH");
    assert!(error.message.contains("2 engines seen"), "{error}");
    assert!(error.message.contains("1 configured"), "{error}");
    assert!(!server.state().paths().contains(&"/v1/completions"));
}

#[tokio::test]
async fn a_server_that_starts_is_waited_for() {
    const LONG: Duration = Duration::from_secs(60);
    // What a gateway says, what a server without a list says, a wrong key.
    for (answers, looks) in [(vec![503, 502], 3), (vec![404], 1), (vec![401], 1)] {
        let server = Server::start(1).await;
        server.state().models_fail = answers.into();
        session(&server, 1).ready(LONG).await.unwrap();
        assert_eq!(server.state().paths(), vec!["/v1/models"; looks]);
    }
}

#[tokio::test]
async fn a_server_that_never_starts_is_waited_for_so_long() {
    let limit = Duration::from_millis(20);
    let server = Server::start(1).await;
    server.state().models_fail = [503; 99].into();
    let error = session(&server, 1).ready(limit).await.unwrap_err();
    assert_eq!(error.code, "SERVICE_NOT_READY");
    let words = ["not ready after 0.02 s", "503", "no healthy upstream"];
    assert!(
        words.iter().all(|word| error.message.contains(word)),
        "{error}"
    );
    let settings = settings(&server, 1);
    drop(server);
    let gone = Session::new(settings, options()).unwrap();
    let error = gone.ready(limit).await.unwrap_err();
    assert_eq!(error.code, "SERVICE_NOT_READY");
    assert!(error.message.contains("cannot connect"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unreachable() {
    let server = Server::start(1).await;
    let settings = settings(&server, 1);
    drop(server);
    let mut session = Session::new(settings, options()).unwrap();
    let error = session.precheck().await.unwrap_err();
    assert_eq!(error.code, "SERVICE_UNREACHABLE");
    assert!(error.hint.is_some());
}

#[tokio::test]
async fn what_is_wrong_with_a_server_has_its_own_code() {
    let no_metrics = |state: &mut State| state.metrics_fail = [404; 9].into();
    let (error, _server) = fails(1, 1, no_metrics).await;
    assert_eq!(error.code, "METRICS_UNAVAILABLE");

    // Series may yet appear, so they are waited for.
    let server = Server::with(1, |state| state.page = Some("x 1\n".to_owned())).await;
    let error = impatient_session(&server, 1).precheck().await.unwrap_err();
    assert_eq!(error.code, "METRICS_UNKNOWN_ENGINE");

    let (error, _server) = fails(1, 1, |state| state.refuses_key = true).await;
    assert_eq!(error.code, "UNAUTHORIZED");

    let (error, _server) = fails(1, 1, |state| state.max_model_len = 107).await;
    assert_eq!(error.code, "CONTEXT_TOO_SHORT");
    assert!(error.message.contains("107"), "{error}");
    let (fits, _server) = precheck(1, 1, |state| state.max_model_len = 108).await;
    assert!(fits.is_ok());

    let (error, _server) = fails(1, 1, |state| state.prefix_caching = "False").await;
    assert_eq!(error.code, "PREFIX_CACHING_OFF");
}

#[tokio::test]
async fn a_model_that_is_not_served_is_named_beside_those_that_are() {
    for has_list in [true, false] {
        let server = Server::with(1, |state| state.has_model_list = has_list).await;
        let settings = ControlSettings {
            model: "nope".to_owned(),
            ..settings(&server, 1)
        };
        let mut session = Session::new(settings, options()).unwrap();
        let error = session.precheck().await.unwrap_err();
        assert_eq!(error.code, "MODEL_NOT_FOUND", "{error}");
        assert!(error.message.contains("nope"), "{error}");
        assert_eq!(error.message.contains("`m`, `other`"), has_list, "{error}");
    }
}

/// vllm-project/vllm#42966: the page says 16, the model shares longer blocks.
#[tokio::test]
async fn the_block_in_use_is_measured_and_compared() {
    for block in [1, 4, 48, 64, 528] {
        let (found, _server) = precheck(1, 1, |state| state.block = block).await;
        let found = found.unwrap();
        assert_eq!(found.block.measured_tokens, Some(block as u64));
        assert_eq!(found.block.metric_tokens, Some(16));
        assert_eq!(codes(&found.warnings), ["BLOCK_SIZE_MISMATCH"], "{block}");
        assert!(
            found.warnings[0]
                .message
                .contains(&format!("blocks of {block} tokens"))
        );
    }
}

#[tokio::test]
async fn the_engines_word_is_compared_where_nothing_is_measured() {
    let server = Server::with(1, |state| state.metric_block = "32".to_owned()).await;
    let options = PhaseOptions {
        measure_block_size: false,
        ..options()
    };
    let mut session = Session::new(settings(&server, 1), options).unwrap();
    let found = session.precheck().await.unwrap();
    assert_eq!(codes(&found.warnings), ["BLOCK_SIZE_MISMATCH"]);
    assert_eq!(found.block.measured_tokens, None);
}

#[tokio::test]
async fn a_server_that_never_reuses_is_suspicious_but_not_an_error() {
    let (found, _server) = precheck(1, 1, |state| state.caches = false).await;
    assert_eq!(codes(&found.unwrap().warnings), ["NO_REUSE_SEEN"]);
}

/// vllm-project/vllm-ascend#9030: absent is not 0; the counters know.
#[tokio::test]
async fn counters_stand_in_for_absent_usage() {
    let (found, _server) = precheck(1, 1, |state| state.reports_cached = false).await;
    let found = found.unwrap();
    assert_eq!(found.block.measured_tokens, Some(16));
    assert_eq!(codes(&found.warnings), ["CACHED_TOKENS_NOT_REPORTED"]);
    let (found, _server) = precheck(2, 2, |state| state.reports_usage = false).await;
    let found = found.unwrap();
    assert_eq!(found.block.measured_tokens, Some(16));
    assert_eq!(codes(&found.warnings), ["CACHED_TOKENS_NOT_REPORTED"]);
}

#[tokio::test]
async fn counters_that_lag_are_waited_for() {
    let (found, _server) = precheck(2, 2, |state| state.lag = 3).await;
    let found = found.unwrap();
    assert!(found.warnings.is_empty(), "{:?}", found.warnings);
    assert_eq!(found.block.measured_tokens, Some(16));
}

#[tokio::test]
async fn counters_that_never_move_belong_to_another_server() {
    let page = "vllm:prefix_cache_queries_total{engine=\"0\"} 1\n\
                vllm:prefix_cache_hits_total{engine=\"0\"} 0\n\
                vllm:prefix_cache_queries_total{engine=\"1\"} 1\n\
                vllm:prefix_cache_hits_total{engine=\"1\"} 0\n";
    let server = Server::with(2, |state| state.page = Some(page.to_owned())).await;
    let error = impatient_session(&server, 2).precheck().await.unwrap_err();
    assert_eq!(error.code, "COUNTERS_NOT_MOVING");
    // One rank needs no routing proof, but the reader must know.
    let page = page.replace("engine=\"1\"", "engine=\"0\"");
    let one = page.split('\n').take(2).collect::<Vec<_>>().join("\n");
    let server = Server::with(1, |state| state.page = Some(one)).await;
    let found = impatient_session(&server, 1).precheck().await.unwrap();
    assert!(codes(&found.warnings).contains(&"COUNTERS_NOT_MOVING"));
}

#[tokio::test]
async fn series_may_appear_with_the_first_request() {
    let (found, _server) = precheck(2, 2, |state| state.starts_bare = true).await;
    assert!(found.unwrap().warnings.is_empty());
}

#[tokio::test]
async fn a_context_too_small_for_the_ladder_is_no_error() {
    let server = Server::with(1, |state| state.max_model_len = 108).await;
    let small = PhaseOptions {
        patience: crate::patience(),
        ..PhaseOptions::new(BlockSize::new(128).unwrap(), 100, 8)
    };
    let found = Session::new(settings(&server, 1), small)
        .unwrap()
        .precheck()
        .await;
    assert_eq!(codes(&found.unwrap().warnings), ["BLOCK_SIZE_MISMATCH"]);
}
