//! Compares manifest and analysis with what the rows say.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::artifacts::dataset::{analysis, cold_route_strategy, request_section};
use crate::artifacts::deep::Findings;
use crate::artifacts::figures::{Figures, status};
use crate::artifacts::reader::read_document;
use crate::artifacts::{ArtifactError, PreparedSet, SCHEMA_VERSION, ValidateReport, pyjson};
use crate::scenario::CacheMode;
use crate::units::ratio;
use crate::units::sha256_hex;

/// How far, in tokens, a total may be from the nearest reachable one. The
/// reference rounds its target to a whole token first and so may lose up to
/// one.
const NATIVE_DISTANCE_MAX: f64 = 1e-6;
const REFERENCE_DISTANCE_MAX: f64 = 1.0 + 1e-6;

/// States of an analysis.
const ANALYSIS_STATUSES: [&str; 5] = [
    "prepared",
    "complete",
    "analyzed",
    "incomplete",
    "interrupted",
];

/// Compares both documents of `set`.
pub(super) fn check(
    set: &PreparedSet,
    plain: &ValidateReport,
    figures: &Figures,
    findings: &mut Findings,
) -> Result<(), ArtifactError> {
    head(set, plain, findings)?;
    sections(set, figures, findings)?;
    groups(set, figures, findings);
    warmup(set, figures, findings)?;
    tokenizer(set, findings);
    extension(set, figures, findings)?;
    analysis_file(set, figures, findings)
}

fn head(
    set: &PreparedSet,
    plain: &ValidateReport,
    findings: &mut Findings,
) -> Result<(), ArtifactError> {
    let manifest = set.manifest();
    let constants = json!({"schema_version": SCHEMA_VERSION, "status": "prepared"});
    for (name, value) in members(&constants) {
        expect(&manifest[name], value, name, findings);
    }
    findings.check(set.is_config_intact(), "CONFIG_DIGEST", || {
        "effective_config does not have the digest effective_config_sha256".to_owned()
    });
    let run_id: Value = set.config("run.run_id")?;
    expect(&run_id, &set.run_id().into(), "run_id", findings);
    let files = [
        ("full", plain.full_bytes),
        ("requests", plain.requests_bytes),
    ];
    for (file, bytes) in files {
        let section = &manifest["artifacts"][file];
        let name = |field| format!("artifacts.{file}.{field}");
        expect(
            &section["rows"],
            &plain.rows.into(),
            &name("rows"),
            findings,
        );
        expect(&section["bytes"], &bytes.into(), &name("bytes"), findings);
    }
    Ok(())
}

fn sections(
    set: &PreparedSet,
    figures: &Figures,
    findings: &mut Findings,
) -> Result<(), ArtifactError> {
    let manifest = set.manifest();
    let count = set.request_count();
    let dp_size: Value = set.config("service.dp_size")?;
    let cache = set.cache_settings()?;
    let expected = json!({
        "prefix_cache": figures.prefix_cache(),
        "requests": request_section(&set.facts()?),
        "dp": {"size": dp_size, "cold_route_strategy": cold_route_strategy(cache.mode)},
        "divergence": {
            "collision_status": "pass",
            "request_count": count,
            "strategy": "globally_unique_seed_block",
            "unique_request_blocks": count,
        },
    });
    for (name, section) in members(&expected) {
        expect(&manifest[name], section, name, findings);
    }
    let distance = figures.distance_from_nearest();
    let most = if set.is_native() {
        NATIVE_DISTANCE_MAX
    } else {
        REFERENCE_DISTANCE_MAX
    };
    findings.check(distance <= most, "TOTAL_NOT_NEAREST", || {
        format!("another reachable total is {distance} tokens nearer to the target")
    });
    Ok(())
}

fn groups(set: &PreparedSet, figures: &Figures, findings: &mut Findings) {
    let found = &set.manifest()["groups"];
    let names: BTreeSet<String> = members(found).map(|(name, _)| name.to_owned()).collect();
    let expected: BTreeSet<String> = figures.groups.keys().map(ToString::to_string).collect();
    findings.check(names == expected, "MANIFEST_FIELD", || {
        format!("groups are {names:?}, the rows have {expected:?}")
    });
    for (group, one) in &figures.groups {
        let Some(section) = found.get(group.to_string()) else {
            continue;
        };
        let fields = json!({
            "max_shared_prefix_tokens": one.max_shared_prefix_tokens,
            "reachable_min": 0.0,
            "reachable_max": one.reachable_max(),
            "theoretical_hit_rate": one.theoretical_hit_rate(),
        });
        for (name, value) in members(&fields) {
            expect(
                &section[name],
                value,
                &format!("groups.{group}.{name}"),
                findings,
            );
        }
        let length = section["canonical_prefix_tokens"].as_u64();
        let is_long = length.is_some_and(|length| length >= one.max_shared_prefix_tokens);
        findings.check(is_long, "CANONICAL_PREFIX", || {
            format!("{group}: its canonical prefix is shorter than what its requests share")
        });
        let digest = &section["canonical_prefix_sha256"];
        findings.check(digest.is_string(), "CANONICAL_PREFIX", || {
            format!("{group}: its canonical prefix has no digest")
        });
    }
}

fn warmup(
    set: &PreparedSet,
    figures: &Figures,
    findings: &mut Findings,
) -> Result<(), ArtifactError> {
    let cache = set.cache_settings()?;
    let is_warm = cache.mode == CacheMode::Warmup;
    let enabled = &set.manifest()["warmup"]["enabled"];
    expect(enabled, &is_warm.into(), "warmup.enabled", findings);
    let dp_size: u32 = set.config("service.dp_size")?;
    let seed_blocks: u64 = set.config("prefix_cache.seed_blocks")?;
    let seed_tokens = seed_blocks.saturating_mul(cache.block_size.tokens());
    let mut warmed = BTreeSet::new();
    for item in set.warmup_plan()? {
        let name = &item.request_id;
        let is_wanted = is_warm
            && figures.groups.contains_key(&item.group_id)
            && item.dp_rank.0 < dp_size
            && warmed.insert((item.group_id, item.dp_rank));
        findings.check(is_wanted, "WARMUP_COVERAGE", || {
            format!("{name}: nothing asks for it, or it is there twice")
        });
        let shared = figures
            .groups
            .get(&item.group_id)
            .map_or(0, |one| one.max_shared_prefix_tokens);
        let holds = item.shared_prefix_tokens == shared
            && item.input_tokens == shared.saturating_add(seed_tokens)
            && item.max_tokens == 1
            && !item.included_in_formal_statistics
            && *name == format!("warmup:{}:{}", item.group_id, item.dp_rank);
        findings.check(holds, "WARMUP_COVERAGE", || {
            format!("{name}: it does not bring its group's {shared} tokens into the cache")
        });
    }
    let wanted = figures.groups.len() as u64 * u64::from(dp_size);
    let missing = wanted.saturating_sub(warmed.len() as u64);
    findings.check(!is_warm || missing == 0, "WARMUP_COVERAGE", || {
        format!("{missing} of {wanted} pairs of group and rank are not warmed")
    });
    Ok(())
}

fn tokenizer(set: &PreparedSet, findings: &mut Findings) {
    let section = &set.manifest()["tokenizer"];
    let config = &set.effective_config()["tokenizer"];
    for field in ["block_size", "path", "revision"] {
        let name = format!("tokenizer.{field}");
        expect(&section[field], &config[field], &name, findings);
    }
    let identity = json!({
        "class": section["class"],
        "path": section["path"],
        "revision": section["revision"],
        "special_token_ids": section["special_token_ids"],
        "vocab_size": section["vocab_size"],
    });
    let fingerprint = sha256_hex(pyjson::canonical(&identity).as_bytes());
    let name = "tokenizer.fingerprint_sha256";
    expect(
        &section["fingerprint_sha256"],
        &fingerprint.into(),
        name,
        findings,
    );
}

fn extension(
    set: &PreparedSet,
    figures: &Figures,
    findings: &mut Findings,
) -> Result<(), ArtifactError> {
    if !set.is_native() {
        return Ok(());
    }
    let facts = set.facts()?;
    let added = set.added_tokens()?;
    let accounts = added.accounts(set.cache_settings()?.block_size, &facts);
    let expected = json!({
        "solver": figures.certificate(),
        "server_view": added.summary(&facts, &accounts),
    });
    for (name, section) in members(&expected) {
        let found = &set.extension()[name];
        expect(found, section, &format!("pcload.{name}"), findings);
    }
    Ok(())
}

fn analysis_file(
    set: &PreparedSet,
    figures: &Figures,
    findings: &mut Findings,
) -> Result<(), ArtifactError> {
    let (text, found) = match read_document(set.analysis_path()) {
        Ok(document) => document,
        Err(error @ ArtifactError::Io { .. }) => return Err(error),
        Err(error) => {
            findings.add("ANALYSIS_MISSING", error.to_string());
            return Ok(());
        }
    };
    let state = found["status"].as_str().unwrap_or_default();
    findings.check(ANALYSIS_STATUSES.contains(&state), "ANALYSIS_FIELD", || {
        format!("analysis status is `{state}`")
    });
    let mut expected = analysis(figures, set.run_id());
    if state == "prepared" {
        let section = &set.manifest()["artifacts"]["analysis"];
        let digest = section["sha256_at_prepare"] == sha256_hex(text.as_bytes());
        findings.check(digest, "ANALYSIS_FIELD", || {
            "analysis.json was changed after it was prepared".to_owned()
        });
        expect(&found, &expected, "analysis", findings);
        return Ok(());
    }
    let threshold_pp: f64 = set.config("validation.actual_warning_pp")?;
    let rate = actual_rate(&found["actual"], findings);
    let signed_pp = rate.map(|rate| (rate - figures.theoretical_hit_rate()) * 100.0);
    let absolute_pp = signed_pp.map(f64::abs);
    let deviates = absolute_pp.is_some_and(|pp| pp > threshold_pp);
    let warnings = found["warnings"].as_array().cloned().unwrap_or_default();
    let has = |code: &str| warnings.iter().any(|warning| warning["code"] == code);
    findings.check(
        has("ACTUAL_DEVIATION") == deviates,
        "ANALYSIS_FIELD",
        || "ACTUAL_DEVIATION does not fit the difference of theory and counters".to_owned(),
    );
    for warning in figures.target_warnings() {
        findings.check(warnings.contains(&warning), "ANALYSIS_FIELD", || {
            format!("{} is missing among the warnings", warning["code"])
        });
    }
    expected["status"] = state.into();
    expected["warnings"] = found["warnings"].clone();
    expected["validation"]["status"] = status(&warnings).into();
    let actual_status = if deviates {
        "PASS_WITH_WARNING"
    } else {
        "PASS"
    };
    expected["validation"]["actual_status"] = actual_status.into();
    expected["theory_actual_difference_pp"] = json!(absolute_pp);
    expected["theory_actual_absolute_difference_pp"] = json!(absolute_pp);
    expected["theory_actual_signed_difference_pp"] = json!(signed_pp);
    for (name, value) in members(&expected) {
        expect(&found[name], value, &format!("analysis.{name}"), findings);
    }
    Ok(())
}

/// The hit rate of `analysis.actual`, its sums checked against its ranks.
fn actual_rate(actual: &Value, findings: &mut Findings) -> Option<f64> {
    if actual.is_null() {
        return None;
    }
    let sum = |field: &str| -> u64 {
        members(&actual["by_dp"])
            .filter_map(|(_, one)| one[field].as_u64())
            .sum()
    };
    let (queries, hits) = (sum("queries"), sum("hits"));
    let rate = ratio(hits, queries);
    let expected = json!({
        "global_queries": queries,
        "global_hits": hits,
        "global_hit_rate": rate,
    });
    for (name, value) in members(&expected) {
        expect(
            &actual[name],
            value,
            &format!("analysis.actual.{name}"),
            findings,
        );
    }
    rate
}

/// Adds a finding for each place where `found` is not `expected`.
fn expect(found: &Value, expected: &Value, name: &str, findings: &mut Findings) {
    let (Value::Object(left), Value::Object(right)) = (found, expected) else {
        findings.check(is_equal(found, expected), code(name), || {
            format!("{name} is {}, expected {}", short(found), short(expected))
        });
        return;
    };
    for key in left.keys().filter(|key| !right.contains_key(*key)) {
        findings.add(code(name), format!("{name}.{key} should not be there"));
    }
    for (key, value) in right {
        expect(&found[key], value, &format!("{name}.{key}"), findings);
    }
}

/// Equal values; numbers by value, whether written as integer or as float.
fn is_equal(found: &Value, expected: &Value) -> bool {
    found == expected
        || matches!(
            (found, expected),
            (Value::Number(left), Value::Number(right)) if left.as_f64() == right.as_f64()
        )
}

fn code(name: &str) -> &'static str {
    if name.starts_with("analysis") {
        "ANALYSIS_FIELD"
    } else {
        "MANIFEST_FIELD"
    }
}

fn short(value: &Value) -> String {
    const SHOWN: usize = 80;
    let text = pyjson::line(value);
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("`{}…`", &text[..end]),
        None => format!("`{text}`"),
    }
}

/// The members of an object; none of anything else.
fn members(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, member)| (name.as_str(), member))
}
