//! The page against the recorded ones: the same families, series and labels
//! in the same order, and numbers in the same spelling.

use super::*;
use crate::sim::config::Release;
use crate::sim::engine::{Account, Gauges};
use number::number;

/// A page of as many ranks after the exchanges the recorded servers had.
fn page(release: Release, ranks: usize, exchanges: &[(&'static str, &'static str, u16)]) -> Page {
    let mut http = HttpAccount::default();
    for &(handler, method, status) in exchanges {
        http.record(Exchange {
            handler,
            method,
            status,
            request_bytes: 0,
            response_bytes: 0,
            seconds: 0.2,
            ended: 1.795e9,
        });
    }
    Page {
        release,
        model: "tiny".to_owned(),
        second_model: None,
        ranks: vec![Some((Account::default(), Gauges::default())); ranks],
        http,
        rejected: 0,
        facts: Facts {
            block_tokens: 32,
            pool_blocks: 32_768,
            max_model_len: 32_768,
            prefix_caching: true,
            retention_interval: 0,
        },
        created: 1.795e9,
        old_names: false,
    }
}

/// Help and type lines as they are; of series all but the value.
fn skeleton(text: &str) -> Vec<&str> {
    text.lines()
        .map(|line| match line.strip_prefix('#') {
            Some(_) => line,
            None => line.rsplit_once(' ').unwrap().0,
        })
        .collect()
}

fn check(ours: &str, recorded: &str) {
    let (ours, recorded) = (skeleton(ours), skeleton(recorded));
    for (ours, recorded) in ours.iter().zip(&recorded) {
        assert_eq!(ours, recorded);
    }
    assert_eq!(ours.len(), recorded.len());
}

const RESET: (&str, &str, u16) = ("/reset_prefix_cache", "POST", 200);
const COMPLETION: (&str, &str, u16) = ("/v1/completions", "POST", 200);

#[test]
fn the_page_of_0_32_0_is_the_recorded_one() {
    let before = include_str!("../../../tests/data/vllm-0.32.0/dp1.metrics.before.txt");
    check(&render(&page(Release::V0_32, 1, &[RESET])), before);
    let after = include_str!("../../../tests/data/vllm-0.32.0/dp1.metrics.after.txt");
    check(
        &render(&page(Release::V0_32, 1, &[RESET, COMPLETION])),
        after,
    );
    let busy = include_str!("../../../tests/data/vllm-0.32.0/dp1.metrics.busy.txt");
    let exchanges = [
        RESET,
        COMPLETION,
        ("/v1/models", "GET", 200),
        ("/tokenize", "POST", 200),
        ("/detokenize", "POST", 200),
        ("/v1/chat/completions", "POST", 200),
        ("/health", "GET", 200),
        ("/v1/completions", "POST", 400),
        ("none", "GET", 404),
    ];
    check(&render(&page(Release::V0_32, 1, &exchanges)), busy);
}

#[test]
fn the_multi_process_page_is_the_recorded_one() {
    let recorded = include_str!("../../../tests/data/vllm-0.32.0/dp2.metrics.after.txt");
    let mut ours = page(Release::V0_32, 2, &[RESET, COMPLETION]);
    ours.facts.pool_blocks = 65_536;
    // The recorded pool was twice as large; only these two labels follow it.
    let text = render(&ours)
        .replace(
            "kv_cache_max_concurrency=\"64.0\"",
            "kv_cache_max_concurrency=\"32.0\"",
        )
        .replace(
            "kv_cache_size_tokens=\"2097152\"",
            "kv_cache_size_tokens=\"1048576\"",
        );
    // The two API servers' files were merged with the other one in front.
    let counted = |handler: &str| {
        format!("http_requests_total{{handler=\"{handler}\",method=\"POST\",status=\"2xx\"}}")
    };
    let (reset, completion) = (counted("/reset_prefix_cache"), counted("/v1/completions"));
    let recorded = recorded
        .replace(&format!("{completion} 6.0\n"), "")
        .replace(
            &format!("{reset} 1.0\n"),
            &format!("{reset} 1.0\n{completion} 6.0\n"),
        );
    check(&text, &recorded);
}

#[test]
fn the_page_of_0_24_0_is_the_recorded_one() {
    let recorded = include_str!("../../../tests/data/vllm-0.24.0/dp1.metrics.after.txt");
    let mut ours = page(Release::V0_24, 1, &[RESET, COMPLETION]);
    ours.facts.block_tokens = 16;
    ours.facts.pool_blocks = 65_536;
    check(&render(&ours), recorded);
}

#[test]
fn numbers_are_spelled_as_the_recorded_ones() {
    for (value, text) in [
        (0.0, "0.0"),
        (999.0, "999.0"),
        (234_658.0, "234658.0"),
        (1_234_567.0, "1.234567e+06"),
        (1e6, "1e+06"),
        (1_305_407_488.0, "1.305407488e+09"),
        (1.795_959_355_475_539_7e9, "1.7959593554755397e+09"),
        (0.438_083_648_681_640_6, "0.4380836486816406"),
        (8.138_020_833_333_333e-6, "8.138020833333333e-06"),
        (0.000_15, "0.00015"),
        (0.000_05, "5e-05"),
        (0.001, "0.001"),
    ] {
        assert_eq!(number(value), text);
    }
}

#[test]
fn faults_show_on_the_page() {
    let mut ours = page(Release::V0_32, 2, &[]);
    ours.ranks[1] = None;
    ours.second_model = Some("other".to_owned());
    ours.old_names = true;
    let text = render(&ours);
    assert!(!text.contains("engine=\"1\""));
    assert!(
        text.contains("vllm:prefix_cache_queries_total{engine=\"0\",model_name=\"other\"} 1000.0")
    );
    assert!(
        text.contains("vllm:gpu_prefix_cache_queries_total{engine=\"0\",model_name=\"tiny\"} 0.0")
    );
}

#[test]
fn label_values_are_escaped() {
    let mut ours = page(Release::V0_32, 1, &[]);
    ours.model = "org/模型 {v1}, \"fast\" C:\\".to_owned();
    assert!(render(&ours).contains(r#"model_name="org/模型 {v1}, \"fast\" C:\\"} 0.0"#));
}
