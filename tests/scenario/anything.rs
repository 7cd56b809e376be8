//! Whatever the bytes are, there is an answer, and it names what is wrong.

use std::io;
use std::path::Path;

use pcload::scenario::load;
use pcload::secret::shown_url;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::input::{base, load_text};

/// Loads bytes with a file reader that answers with the bytes, too.
fn answer(bytes: &[u8]) -> Result<(), String> {
    let read = |path: &Path| match path.extension() {
        Some(_) => Ok(bytes.to_vec()),
        None => Err(io::Error::from(io::ErrorKind::NotFound)),
    };
    match load(bytes, Path::new("/s/scenario.json"), None, &read) {
        Ok(_) => Ok(()),
        Err(problems) => {
            assert!(!problems.is_empty());
            Err(problems.to_string())
        }
    }
}

/// A full scenario, so that mutations reach every field.
fn full() -> Value {
    let mut scenario = base();
    scenario["requests"]["input_length"] =
        json!({"mode": "range", "ranges": [{"min": 64, "max": 65, "count": 4}]});
    scenario["requests"]["output_length"] =
        json!({"mode": "truncated_normal", "min": 1, "max": 9, "std": 1});
    scenario["corpus"]["selection"] = json!({"mode": "mixed", "indices": [1]});
    scenario["prefix_cache"]["groups"] = json!({
        "count": 2,
        "assignment": {"mode": "weights", "weights": [1, 2]},
        "overrides": {"group-1": {"input_length": {"mode": "csv", "path": "a.csv"}}},
    });
    scenario["service"]["engine_label_map"] = json!({"a": 0, "b": 1});
    scenario["aisbench"] =
        json!({"extra_args": {"--a": [1]}, "model": {"generation_kwargs": {"min_tokens": 1}}});
    scenario["pcload"] = json!({"slo": {"ttft_ms": 1}, "cache_salt": "x"});
    scenario
}

fn odd_json() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("-0".to_owned()),
        Just("1e400".to_owned()),
        Just("NaN".to_owned()),
        Just("[[[]]]".to_owned()),
        Just("{\"mode\": {}}".to_owned()),
        Just("\"\\ud800\"".to_owned()),
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f64>().prop_map(|number| number.to_string()),
        "[0-9]{1,40}",
        any::<String>().prop_map(|text| Value::String(text).to_string()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_bytes_have_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        answer(&bytes).ok();
    }

    #[test]
    fn a_scenario_cut_and_overwritten_has_an_answer(
        cut in 0_usize..900,
        at in 0_usize..900,
        noise in proptest::collection::vec(any::<u8>(), 0..6),
    ) {
        let mut bytes = serde_json::to_vec(&full()).unwrap();
        bytes.truncate(bytes.len() - cut.min(bytes.len()) / 8);
        let at = at.min(bytes.len());
        let end = (at + noise.len()).min(bytes.len());
        bytes.splice(at..end, noise);
        answer(&bytes).ok();
    }

    #[test]
    fn a_scenario_with_an_odd_value_anywhere_has_an_answer(
        choice in any::<prop::sample::Index>(),
        odd in odd_json(),
    ) {
        let text = serde_json::to_string(&full()).unwrap();
        let starts: Vec<usize> = text.match_indices([':', ',', '[']).map(|(at, _)| at + 1).collect();
        let start = starts[choice.index(starts.len())];
        let end = start + text[start..].find([',', '}', ']']).unwrap_or(0);
        let mutated = format!("{}{odd}{}", &text[..start], &text[end..]);
        answer(mutated.as_bytes()).ok();
    }

    #[test]
    fn no_secret_of_an_address_survives(
        host in "[a-z]{1,8}",
        user in "SECRET[A-Za-z0-9!$&*+,;=:@%._~-]{0,8}",
        query in "SECRET[!-~]{0,8}",
    ) {
        let url = format!("http://{user}:{user}@{host}/v1?{query}");
        prop_assert!(!shown_url(&url).contains("SECRET"), "{}", shown_url(&url));
    }
}

#[test]
fn the_full_scenario_is_sound_but_for_its_file() {
    let told = answer(full().to_string().as_bytes()).unwrap_err();
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.starts_with("BAD_FILE: prefix_cache.groups.overrides.group-1.input_length.path"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn unknown_keys_are_named_whatever_they_are(key in any::<String>()) {
        let mut scenario = base();
        scenario["service"][&key] = json!(1);
        if let Err(problems) = load_text(&scenario.to_string()) {
            prop_assert_eq!(problems.len(), 1);
            let problem = problems.iter().next().unwrap();
            prop_assert!(problem.path.starts_with("service"));
            prop_assert!(!problem.to_string().contains('\n'));
        }
    }
}
