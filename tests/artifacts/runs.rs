//! Analyses of runs: the recorded runs of the reference rebuilt from their
//! counters, and what a repeated or a failed run leaves behind.

use std::collections::BTreeMap;
use std::fs;

use pcload::artifacts::{
    AnalysisStatus, KvPolling, KvSample, MetricsPage, RankActual, RunDirectory, RunOutcome,
    WarmupResult, pyjson, record_run, validate_deep,
};
use pcload::engine::{RankSnapshot, Snapshot};
use pcload::units::DpRank;
use serde_json::{Value, json};

use crate::golden::{GoldenSet, read, read_json};

/// A metrics page as the recorded analysis has it.
fn page(section: &Value) -> MetricsPage {
    let ranks = section["by_dp"].as_object().unwrap().iter();
    let ranks = ranks.map(|(rank, one)| {
        let snapshot = RankSnapshot {
            queries: one["queries"].as_u64().unwrap(),
            hits: one["hits"].as_u64().unwrap(),
            kv_cache_usage: one["kv_cache_usage"].as_f64(),
            ..RankSnapshot::default()
        };
        (DpRank(rank.parse().unwrap()), snapshot)
    });
    let names = section["metric_names"].as_object().unwrap().iter();
    let mut metric_names: BTreeMap<String, String> = names
        .map(|(key, name)| (key.clone(), name.as_str().unwrap().to_owned()))
        .collect();
    // Names that the reference's format does not have stay out of it.
    metric_names.insert("preemptions".to_owned(), "vllm:num_preemptions".to_owned());
    MetricsPage {
        snapshot: Snapshot {
            ranks: ranks.collect(),
            metric_names,
            ..Snapshot::default()
        },
        text: section["raw_prometheus"].as_str().unwrap().to_owned(),
    }
}

fn difference(baseline: &MetricsPage, after: &MetricsPage) -> BTreeMap<DpRank, RankActual> {
    let ranks = after.snapshot.ranks.iter().map(|(rank, late)| {
        let early = &baseline.snapshot.ranks[rank];
        let actual = RankActual {
            queries: late.queries - early.queries,
            hits: late.hits - early.hits,
            kv_cache_usage: late.kv_cache_usage,
        };
        (*rank, actual)
    });
    ranks.collect()
}

fn polling(section: &Value) -> KvPolling {
    let samples = section["samples"].as_array().unwrap().iter().map(|sample| {
        let ranks = sample["by_dp"].as_object().unwrap().iter();
        KvSample {
            elapsed_seconds: sample["elapsed_seconds"].as_f64().unwrap(),
            by_rank: ranks
                .map(|(rank, usage)| (DpRank(rank.parse().unwrap()), usage.as_f64()))
                .collect(),
        }
    });
    KvPolling {
        interval_seconds: section["interval_seconds"].as_f64().unwrap(),
        samples: samples.collect(),
    }
}

/// The recorded run, as the phases would have told it.
fn outcome(analysis: &Value) -> RunOutcome {
    let runtime = &analysis["runtime"];
    let baseline = page(&runtime["metrics_baseline"]);
    let after = page(&runtime["metrics_after"]);
    let warmup = runtime["warmup"].as_array().map(|results| {
        let results = results.iter().map(|result| WarmupResult {
            group_id: result["group_id"].as_str().unwrap().parse().unwrap(),
            dp_rank: DpRank(u32::try_from(result["dp_rank"].as_u64().unwrap()).unwrap()),
            success: true,
            elapsed_seconds: result["elapsed_seconds"].as_f64().unwrap(),
        });
        results.collect()
    });
    let is_warm = warmup.is_some();
    let phases = ["precheck", "reset", "warmup", "baseline", "formal", "after"];
    let warnings = analysis["warnings"].as_array().unwrap().iter();
    let own = warnings.filter(|warning| warning["code"] == "ASSUME_EMPTY_CACHE");
    RunOutcome {
        status: AnalysisStatus::Complete,
        phases: phases
            .into_iter()
            .filter(|phase| is_warm || *phase != "warmup")
            .collect(),
        precheck: Some(baseline.snapshot.clone()),
        warmup,
        actual: Some(difference(&baseline, &after)),
        baseline: Some(baseline),
        after: Some(after),
        aisbench_exit_code: Some(0),
        kv_polling: Some(polling(&runtime["kv_cache_polling"])),
        warnings: own.cloned().collect(),
        extension: Value::Null,
    }
}

const RUNS: [&str; 4] = ["run-bos", "run-cold", "run-noreset-assume", "run-warm"];

#[test]
fn recorded_runs_are_analysed_as_the_reference_did() {
    for name in RUNS {
        let set = GoldenSet::copy(name);
        let recorded = read_json(set.analysis());
        let text = pyjson::document(&recorded);
        record_run(&set.open(), &outcome(&recorded), None).unwrap();
        assert_eq!(read(set.analysis()), text, "{name}");
        validate_deep(&set.manifest(), None).unwrap();
    }
}

#[test]
fn recorded_pages_are_analysed_offline() {
    let set = GoldenSet::copy("run-cold");
    let recorded = read_json(set.analysis());
    fs::remove_file(set.analysis()).unwrap();
    let outcome = RunOutcome {
        status: AnalysisStatus::Analyzed,
        phases: vec![],
        precheck: None,
        warmup: None,
        aisbench_exit_code: None,
        kv_polling: None,
        ..outcome(&recorded)
    };
    let analysis = record_run(&set.open(), &outcome, None).unwrap();
    assert_eq!(analysis["status"], "analyzed");
    let runtime = analysis["runtime"].as_object().unwrap();
    assert_eq!(
        runtime.keys().collect::<Vec<_>>(),
        ["metrics_baseline", "metrics_after"]
    );
    for field in ["global_queries", "global_hits", "global_hit_rate"] {
        assert_eq!(analysis["actual"][field], recorded["actual"][field]);
    }
    let rank = analysis["actual"]["by_dp"]["0"].as_object().unwrap();
    assert!(!rank.contains_key("kv_cache_usage_avg"));
    assert_eq!(
        analysis["theoretical_hit_rate"],
        recorded["theoretical_hit_rate"]
    );
}

/// Warnings are those of the last run, however many came before; each run
/// keeps its own analysis.
#[test]
fn repeated_runs_do_not_pile_up_warnings() {
    let set = GoldenSet::copy("run-warm");
    let open = set.open();
    let mut bad = outcome(&read_json(set.analysis()));
    for rank in bad.actual.as_mut().unwrap().values_mut() {
        rank.hits = 0;
    }
    bad.warnings = vec![json!({"code": "ASSUME_EMPTY_CACHE", "message": "m"})];
    let good = outcome(&read_json(set.analysis()));
    let mut statuses = Vec::new();
    for one in [&bad, &bad, &good] {
        let run = RunDirectory::create(&open).unwrap();
        let analysis = record_run(&open, one, Some(&run)).unwrap();
        assert_eq!(read(run.analysis()), read(set.analysis()));
        let codes: Vec<Value> = analysis["warnings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|warning| warning["code"].clone())
            .collect();
        statuses.push((run.number(), codes.len(), analysis["validation"].clone()));
        validate_deep(&set.manifest(), None).unwrap();
    }
    let statuses: Vec<_> = statuses
        .iter()
        .map(|(run, warnings, validation)| {
            (
                *run,
                *warnings,
                validation["actual_status"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        statuses,
        [
            (1, 2, "PASS_WITH_WARNING"),
            (2, 2, "PASS_WITH_WARNING"),
            (3, 0, "PASS")
        ]
    );
    assert_eq!(RunDirectory::newest(&open).unwrap().unwrap().number(), 3);
}

/// The counters are 60 points away from the theory of 60 %.
#[test]
fn a_deviation_is_a_warning_with_its_size() {
    let set = GoldenSet::copy("run-warm");
    let mut outcome = outcome(&read_json(set.analysis()));
    for rank in outcome.actual.as_mut().unwrap().values_mut() {
        rank.hits = 0;
    }
    let analysis = record_run(&set.open(), &outcome, None).unwrap();
    assert_eq!(
        analysis["warnings"],
        json!([{"code": "ACTUAL_DEVIATION", "difference_pp": 60.0}])
    );
    assert_eq!(analysis["theory_actual_signed_difference_pp"], -60.0);
    assert_eq!(analysis["validation"]["status"], "PASS_WITH_WARNING");
}

/// O-ART-1: nothing was looked up, so there is no rate, no difference, and no
/// warning drawn from them.
#[test]
fn zero_queries_give_null_and_no_warning() {
    let set = GoldenSet::copy("run-warm");
    let mut outcome = outcome(&read_json(set.analysis()));
    for rank in outcome.actual.as_mut().unwrap().values_mut() {
        *rank = RankActual::default();
    }
    outcome.kv_polling = Some(KvPolling::default());
    outcome.extension = json!({"rate_per_second": f64::INFINITY, "arrival": "unbounded"});
    let analysis = record_run(&set.open(), &outcome, None).unwrap();
    for field in [
        &analysis["actual"]["global_hit_rate"],
        &analysis["actual"]["by_dp"]["0"]["hit_rate"],
        &analysis["actual"]["global_kv_cache_usage_avg"],
        &analysis["theory_actual_difference_pp"],
        &analysis["theory_actual_signed_difference_pp"],
        &analysis["pcload"]["rate_per_second"],
    ] {
        assert_eq!(*field, Value::Null);
    }
    assert_eq!(analysis["warnings"], json!([]));
    assert_eq!(analysis["validation"]["actual_status"], "PASS");
    // The strict parser of the tests reads it back.
    assert_eq!(read_json(set.analysis()), analysis);
}

/// O-ART-3: the last scrape failed; everything else is there.
#[test]
fn a_run_without_its_last_page_is_incomplete_and_written() {
    let set = GoldenSet::copy("run-warm");
    let mut outcome = outcome(&read_json(set.analysis()));
    outcome.status = AnalysisStatus::Incomplete;
    outcome.after = None;
    outcome.actual = None;
    let run = RunDirectory::create(&set.open()).unwrap();
    let analysis = record_run(&set.open(), &outcome, Some(&run)).unwrap();
    assert_eq!(analysis["status"], "incomplete");
    assert_eq!(analysis["actual"], Value::Null);
    assert_eq!(analysis["runtime"].get("metrics_after"), None);
    assert!(analysis["runtime"]["metrics_baseline"].is_object());
    validate_deep(&set.manifest(), None).unwrap();
}

/// O-ART-3: what cannot be written does not replace what is there.
#[test]
fn an_analysis_that_cannot_be_written_leaves_the_old_one() {
    let set = GoldenSet::copy("run-warm");
    let before = read(set.analysis());
    let run = RunDirectory::create(&set.open()).unwrap();
    fs::remove_dir(run.path()).unwrap();
    let recorded = outcome(&read_json(set.analysis()));
    let error = record_run(&set.open(), &recorded, Some(&run)).unwrap_err();
    assert_eq!(error.code(), "FILE_ACCESS");
    assert_eq!(read(set.analysis()), before);
}
