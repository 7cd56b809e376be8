//! Metrics pages read as a whole: pages of real servers, and cases that users
//! met (each names its source).

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails where its data is not what it says"
)]

use pcload::engine::{
    EngineChoice, MetricsError, RankDelta, ReadOptions, Snapshot, difference, read,
};
use pcload::units::DpRank;

fn options(dp_size: u32) -> ReadOptions {
    ReadOptions {
        dp_size,
        ..ReadOptions::default()
    }
}

fn mapped(dp_size: u32, map: &[(&str, u32)]) -> ReadOptions {
    ReadOptions {
        engine_label_map: map
            .iter()
            .map(|(label, rank)| ((*label).to_owned(), DpRank(*rank)))
            .collect(),
        ..options(dp_size)
    }
}

fn counts(snapshot: &Snapshot, rank: u32) -> (u64, u64) {
    let one = &snapshot.ranks[&DpRank(rank)];
    (one.queries, one.hits)
}

fn code(page: &str, options: &ReadOptions) -> &'static str {
    read(page, options).expect_err("an error").code()
}

mod recorded {
    //! The workload and its right values: `fixtures/vllm-*/README.md`.

    use super::*;

    fn page(name: &str) -> &'static str {
        match name {
            "0.32.0 dp1 before" => include_str!("data/metrics/vllm-0.32.0.dp1.before.txt"),
            "0.32.0 dp1 after" => include_str!("data/metrics/vllm-0.32.0.dp1.after.txt"),
            "0.32.0 dp1 busy" => include_str!("data/metrics/vllm-0.32.0.dp1.busy.txt"),
            "0.32.0 dp2 before" => include_str!("data/metrics/vllm-0.32.0.dp2.before.txt"),
            "0.32.0 dp2 after" => include_str!("data/metrics/vllm-0.32.0.dp2.after.txt"),
            "0.24.0 dp1 before" => include_str!("data/metrics/vllm-0.24.0.dp1.before.txt"),
            "0.24.0 dp1 after" => include_str!("data/metrics/vllm-0.24.0.dp1.after.txt"),
            "0.24.0 dp1 busy" => include_str!("data/metrics/vllm-0.24.0.dp1.busy.txt"),
            other => panic!("no page {other}"),
        }
    }

    fn delta(version: &str, dp_size: u32) -> pcload::engine::Delta {
        let one = |moment: &str| {
            let name = format!("{version} dp{dp_size} {moment}");
            read(page(&name), &options(dp_size)).unwrap_or_else(|error| panic!("{name}: {error}"))
        };
        difference(&one("before"), &one("after")).unwrap()
    }

    #[test]
    fn one_rank_gained_what_its_workload_was() {
        for (version, hits) in [("0.32.0", 544), ("0.24.0", 560)] {
            let expected = RankDelta {
                queries: 999,
                hits,
                external_queries: Some(0),
                external_hits: Some(0),
                prompt_tokens: Some(999),
                prompt_tokens_cached: Some(hits),
                generation_tokens: Some(40),
                preemptions: Some(0),
            };
            assert_eq!(delta(version, 1).total(), expected, "{version}");
        }
    }

    #[test]
    fn two_ranks_behind_two_api_servers_are_told_apart() {
        let delta = delta("0.32.0", 2);
        let one = |rank| {
            (
                delta.ranks[&DpRank(rank)].queries,
                delta.ranks[&DpRank(rank)].hits,
            )
        };
        assert_eq!((one(0), one(1)), ((358, 192), (641, 224)));
        assert_eq!(delta.total().hit_rate(), Some(416.0 / 999.0));
    }

    #[test]
    fn a_busy_page_shows_levels() {
        for version in ["0.32.0", "0.24.0"] {
            let snapshot = read(page(&format!("{version} dp1 busy")), &options(1)).unwrap();
            let rank = &snapshot.ranks[&DpRank(0)];
            assert_eq!(rank.requests_running, Some(1), "{version}");
            assert_eq!(rank.requests_waiting, Some(0), "{version}");
            assert!(
                rank.kv_cache_usage
                    .is_some_and(|usage| usage > 0.0 && usage < 0.01)
            );
        }
    }

    #[test]
    fn the_page_states_the_engines_facts() {
        let facts = |name: &str, dp_size| read(page(name), &options(dp_size)).unwrap().facts;
        let one = facts("0.32.0 dp1 after", 1);
        assert_eq!(one.engine.as_deref(), Some("vllm"));
        assert_eq!(one.block_size, Some(32));
        assert_eq!(one.num_gpu_blocks, Some(32_768));
        assert_eq!(one.kv_cache_tokens, Some(1_048_576));
        assert_eq!(one.prefix_caching, Some(true));
        assert_eq!(one.block_size_set_by_user, Some(true));
        assert_eq!(one.model_names, ["tiny"]);
        let two = facts("0.32.0 dp2 after", 2);
        assert_eq!(
            (two.block_size, two.num_gpu_blocks),
            (Some(32), Some(32_768))
        );
        let old = facts("0.24.0 dp1 after", 1);
        assert_eq!(
            (old.block_size, old.num_gpu_blocks),
            (Some(16), Some(65_536))
        );
    }

    #[test]
    fn two_engines_for_one_configured_rank_are_a_mismatch() {
        let error = read(page("0.32.0 dp2 after"), &options(1)).unwrap_err();
        assert_eq!(error.code(), "DP_SIZE_MISMATCH");
        assert!(error.to_string().starts_with("2 engines seen"), "{error}");
        let error = read(page("0.32.0 dp2 after"), &options(4)).unwrap_err();
        assert_eq!(error.code(), "DP_RANKS_MISSING");
        assert!(
            error
                .to_string()
                .contains("DP rank 2, 3 (2 engines seen, 4 configured)")
        );
    }
}

/// vllm-project/vllm#41916, vllm-project/production-stack#617: creation times
/// and deprecated twins must not be added in.
#[test]
fn exponents_creation_times_and_twins_in_one_page() {
    let page = |queries: &str, hits: &str| {
        format!(
            "# TYPE vllm:prefix_cache_queries_total counter\n\
             vllm:prefix_cache_queries_total{{engine=\"0\",model_name=\"m\"}} {queries}\n\
             vllm:prefix_cache_queries_created{{engine=\"0\",model_name=\"m\"}} 1.7512345678901234e+09\n\
             vllm:prefix_cache_hits_total{{engine=\"0\",model_name=\"m\"}} {hits}\n\
             vllm:prefix_cache_hits_created{{engine=\"0\",model_name=\"m\"}} 1.7512345678911e+09\n\
             vllm:gpu_prefix_cache_queries_total{{engine=\"0\",model_name=\"m\"}} {queries}\n\
             vllm:gpu_prefix_cache_hits_total{{engine=\"0\",model_name=\"m\"}} {hits}\n\
             vllm:external_prefix_cache_queries_total{{engine=\"0\",model_name=\"m\"}} 0.0\n\
             vllm:kv_cache_usage_perc{{engine=\"0\",model_name=\"m\"}} 8.138020833333333e-06\n"
        )
    };
    let before_page = page("1.234567e+06", "1e+06");
    let after_page = page("1.336967e+06", "1.06144e+06");
    let before = read(&before_page, &options(1)).unwrap();
    let after = read(&after_page, &options(1)).unwrap();
    assert_eq!(counts(&before, 0).0, 1_234_567);
    assert_eq!(counts(&after, 0).0, 1_336_967);
    let total = difference(&before, &after).unwrap().total();
    assert_eq!((total.queries, total.hits), (102_400, 61_440));
    assert_eq!(total.hit_rate(), Some(0.6));
    assert_eq!(total.external_queries, Some(0));
    let usage = before.ranks[&DpRank(0)].kv_cache_usage;
    assert_eq!(usage, Some(8.138_020_833_333_333e-6));
    assert_eq!(
        before.metric_names["queries"],
        "vllm:prefix_cache_queries_total"
    );
    let unsuffixed = page("5", "1").replace("_total", "");
    let snapshot = read(&unsuffixed, &options(1)).unwrap();
    assert_eq!(counts(&snapshot, 0), (5, 1));
    assert_eq!(
        snapshot.metric_names["queries"],
        "vllm:prefix_cache_queries"
    );
}

/// pgexporter/pgexporter#416, `timescale/pg_prometheus#53`.
#[test]
fn label_values_that_break_naive_parsers() {
    let page = "vllm:prefix_cache_queries_total{engine=\"0\",model_name=\"org/模型 {v1}, \\\"fast\\\" C:\\\\\"} 4096.0\n\
                vllm:prefix_cache_hits_total{engine=\"0\",model_name=\"org/模型 {v1}, \\\"fast\\\" C:\\\\\"} 2048.0\n\
                vllm:prefix_cache_queries_total{ engine = \"1\" , model_name=\"x\" , } 1024\n\
                vllm:prefix_cache_hits_total{engine=\"1\",model_name=\"a\\nb#c\"} 256\n";
    let snapshot = read(page, &options(2)).unwrap();
    assert_eq!(counts(&snapshot, 0), (4_096, 2_048));
    assert_eq!(counts(&snapshot, 1), (1_024, 256));
    assert_eq!(
        snapshot.facts.model_names,
        ["a\nb#c", "org/模型 {v1}, \"fast\" C:\\", "x"]
    );
}

#[test]
fn an_unparsable_line_of_a_wanted_series_is_named_by_its_number() {
    let page = "x y z\nvllm:prefix_cache_queries_total{engine=\"0\"} 5\nvllm:prefix_cache_hits_total{engine=\"0} 1\n";
    let error = read(page, &options(1)).unwrap_err();
    assert_eq!(error.code(), "METRICS_UNPARSABLE");
    assert_eq!(
        error.to_string(),
        "metrics page, line 3: `vllm:prefix_cache_hits_total`: a quote is not closed"
    );
    let quoted = page.replace(
        "vllm:prefix_cache_hits_total{",
        "{\"vllm:prefix_cache_hits_total\",",
    );
    assert_eq!(code(&quoted, &options(1)), "METRICS_UNPARSABLE");
}

/// vllm-project/router#210, gateway-api-inference-extension#2950.
#[test]
fn engine_labels_that_are_not_plain_numbers() {
    let page = |first: &str, second: &str| {
        format!(
            "vllm:prefix_cache_queries_total{{engine=\"{first}\"}} 10\n\
             vllm:prefix_cache_queries_total{{engine=\"{second}\"}} 20\n\
             vllm:prefix_cache_hits_total{{engine=\"{first}\"}} 1\n\
             vllm:prefix_cache_hits_total{{engine=\"{second}\"}} 2\n"
        )
    };
    let far = page("rank-10", "rank-2");
    let snapshot = read(&far, &mapped(2, &[("rank-10", 0), ("rank-2", 1)])).unwrap();
    assert_eq!(
        (counts(&snapshot, 0), counts(&snapshot, 1)),
        ((10, 1), (20, 2))
    );
    let error = read(&far, &options(2)).unwrap_err();
    assert_eq!(error.code(), "DP_RANK_OUT_OF_RANGE");
    assert_eq!(
        error.to_string(),
        "engine `rank-10` is DP rank 10, out of range for dp_size 2"
    );
    assert!(error.hint().unwrap().contains("service.engine_label_map"));
    let error = read(&page("node1-0", "node2-0"), &options(2)).unwrap_err();
    assert_eq!(
        error,
        MetricsError::LabelsCollide {
            first: "node1-0".to_owned(),
            second: "node2-0".to_owned(),
            rank: DpRank(0),
        }
    );
}

#[test]
fn of_several_models_the_wanted_one_is_read() {
    let page = "vllm:prefix_cache_queries_total{engine=\"0\",model_name=\"a\"} 5\n\
                vllm:prefix_cache_queries_total{engine=\"0\",model_name=\"b\"} 7\n\
                vllm:prefix_cache_hits_total{engine=\"0\",model_name=\"a\"} 1\n\
                vllm:prefix_cache_hits_total{engine=\"0\",model_name=\"b\"} 2\n";
    let model = |name: &str| ReadOptions {
        model: Some(name.to_owned()),
        ..options(1)
    };
    assert_eq!(counts(&read(page, &model("b")).unwrap(), 0), (7, 2));
    let error = read(page, &model("c")).unwrap_err();
    assert_eq!(error.code(), "METRICS_SEVERAL_MODELS");
    assert_eq!(
        error.to_string(),
        "several models on the metrics page (`a`, `b`), none of them is `c`"
    );
    assert_eq!(code(page, &options(1)), "METRICS_SEVERAL_MODELS");
    // One model under another name than the requests use: an alias.
    let one = "vllm:prefix_cache_queries_total{model_name=\"a\"} 5\nvllm:prefix_cache_hits_total{model_name=\"a\"} 1\n";
    assert_eq!(counts(&read(one, &model("alias")).unwrap(), 0), (5, 1));
}

#[test]
fn several_api_servers_on_one_page_are_one_engine() {
    let page = "vllm:prefix_cache_queries_total{engine=\"0\",pid=\"11\"} 5\n\
                vllm:prefix_cache_queries_total{engine=\"0\",pid=\"12\"} 7\n\
                vllm:prefix_cache_hits_total{engine=\"0\",pid=\"11\"} 1\n\
                vllm:prefix_cache_hits_total{engine=\"0\",pid=\"12\"} 2\n\
                vllm:kv_cache_usage_perc{engine=\"0\",pid=\"11\"} 0.0\n\
                vllm:kv_cache_usage_perc{engine=\"0\",pid=\"12\"} 0.25\n";
    let snapshot = read(page, &options(1)).unwrap();
    assert_eq!(counts(&snapshot, 0), (12, 3));
    assert_eq!(snapshot.ranks[&DpRank(0)].kv_cache_usage, Some(0.25));
}

#[test]
fn the_same_series_twice_is_an_error() {
    let page = "vllm:prefix_cache_queries_total{engine=\"0\"} 5\n\
                vllm:prefix_cache_queries_total{engine=\"0\"} 5\n\
                vllm:prefix_cache_hits_total{engine=\"0\"} 1\n";
    let error = read(page, &options(1)).unwrap_err();
    assert_eq!(error.code(), "METRICS_DUPLICATE_SERIES");
    assert!(error.to_string().contains("line 2") && error.to_string().contains("line 1"));
}

/// Labels as SGLang's metrics reference lists them.
#[test]
fn sglang_pages_are_read_under_their_own_names() {
    let page = "sglang:prompt_tokens_total{model_name=\"m\",is_streaming=\"false\"} 100.0\n\
                sglang:prompt_tokens_total{model_name=\"m\",is_streaming=\"true\"} 900.0\n\
                sglang:generation_tokens_total{model_name=\"m\",is_streaming=\"true\"} 40.0\n\
                sglang:cached_tokens_total{model_name=\"m\",cache_source=\"device\"} 500.0\n\
                sglang:cached_tokens_total{model_name=\"m\",cache_source=\"host\"} 64.0\n\
                sglang:cached_tokens_total{model_name=\"m\",cache_source=\"storage_file\"} 36.0\n\
                sglang:cache_hit_rate{model_name=\"m\",tp_rank=\"0\"} 0.0\n\
                sglang:token_usage{model_name=\"m\",tp_rank=\"0\"} 0.11\n\
                sglang:token_usage{model_name=\"m\",tp_rank=\"1\"} 0.12\n\
                sglang:num_running_reqs{model_name=\"m\",tp_rank=\"0\"} 3\n";
    let snapshot = read(page, &options(1)).unwrap();
    let rank = &snapshot.ranks[&DpRank(0)];
    assert_eq!(counts(&snapshot, 0), (1_000, 500));
    assert_eq!(rank.external_hits, Some(100));
    assert_eq!(rank.external_queries, None);
    assert_eq!(rank.prompt_tokens, Some(1_000));
    assert_eq!(rank.prompt_tokens_cached, Some(600));
    assert_eq!(rank.kv_cache_usage, Some(0.12));
    assert_eq!(rank.requests_running, Some(3));
    assert_eq!(snapshot.facts.engine.as_deref(), Some("sglang"));
    // Older versions have one series for all tiers, and none before a hit.
    let old = "sglang:prompt_tokens_total{model_name=\"m\"} 10\nsglang:cached_tokens_total{model_name=\"m\"} 4\n";
    assert_eq!(counts(&read(old, &options(1)).unwrap(), 0), (10, 4));
    let fresh = "sglang:prompt_tokens_total{model_name=\"m\"} 10\n";
    assert_eq!(counts(&read(fresh, &options(1)).unwrap(), 0), (10, 0));
    assert_eq!(code(fresh, &options(2)), "ENGINE_LABEL_MISSING");
}

#[test]
fn the_engine_is_detected_and_an_open_choice_is_an_error() {
    let vllm = "vllm:prefix_cache_queries 5\nvllm:prefix_cache_hits 1\n";
    let sglang = "sglang:prompt_tokens_total 7\nsglang:cached_tokens_total 2\n";
    let both = format!("{vllm}{sglang}");
    let chosen = |engine| ReadOptions {
        engine,
        ..options(1)
    };
    assert_eq!(code(&both, &options(1)), "METRICS_TWO_ENGINES");
    assert_eq!(code("x 5\n", &options(1)), "METRICS_UNKNOWN_ENGINE");
    let read = |choice| counts(&read(&both, &chosen(choice)).unwrap(), 0);
    assert_eq!(read(EngineChoice::Vllm), (5, 1));
    assert_eq!(read(EngineChoice::Sglang), (7, 2));
    // A router that shows a few of the other engine's gauges decides nothing.
    let gauge = format!("{vllm}sglang:token_usage 0.5\n");
    assert_eq!(
        counts(&pcload::engine::read(&gauge, &options(1)).unwrap(), 0),
        (5, 1)
    );
}

mod any_page {
    use proptest::prelude::*;

    use super::*;

    const NAMES: &[&str] = &[
        "vllm:prefix_cache_queries_total",
        "vllm:prefix_cache_hits_total",
        "vllm:kv_cache_usage_perc",
        "vllm:cache_config_info",
        "sglang:prompt_tokens_total",
        "sglang:cached_tokens_total",
        "sglang:token_usage",
    ];

    proptest! {
        #[test]
        fn is_read_or_refused_but_never_a_panic(
            lines in proptest::collection::vec(
                (
                    proptest::sample::select(NAMES),
                    "(\\{(engine|pid|tp_rank|model_name|block_size|cache_source)=\"[a-z0-9\\-]{0,12}\",?(pid=\"[0-9]\")?\\})?",
                    "( [0-9]{1,25}(\\.[0-9])?(e[0-9]{1,3})?| NaN| -1|\\PC{0,6})",
                ),
                0..12,
            ),
            dp_size in prop_oneof![1_u32..5, Just(u32::MAX)],
            cut in 0_usize..400,
        ) {
            let written: Vec<String> = lines
                .iter()
                .map(|(name, labels, value)| format!("{name}{labels}{value}"))
                .collect();
            let page = written.join("\n");
            let options = options(dp_size);
            if let Ok(snapshot) = read(&page, &options) {
                prop_assert_eq!(snapshot.ranks.len() as u64, u64::from(dp_size));
                prop_assert!(difference(&snapshot, &snapshot).is_ok());
            }
            let cut = (0..=cut.min(page.len())).rev().find(|at| page.is_char_boundary(*at));
            let part = &page[..cut.unwrap_or(0)];
            prop_assert!(read(part, &options).is_ok() || read(part, &options).is_err());
        }
    }
}
