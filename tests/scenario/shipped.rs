//! The example scenarios and the scenario reference in the documentation.

use std::fs;
use std::path::{Path, PathBuf};

use pcload::scenario::{load, schema};
use serde_json::Value;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn example_scenarios_resolve() {
    let mut names = Vec::new();
    for entry in fs::read_dir(root().join("profiles/scenarios")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let read = |path: &Path| fs::read(path);
        let scenario = load(&fs::read(&path).unwrap(), &path, None, &read).unwrap();
        assert_eq!(scenario.run.run_id, name);
        assert_eq!(scenario.run.output_dir, root().join("outputs").join(&name));
        assert_eq!(
            scenario.corpus.path,
            root().join("assets/demo/corpus.jsonl")
        );
        assert!(scenario.notes.is_empty(), "{name}: {:?}", scenario.notes);
        // AISBench's own warm-up would fall into the measured window.
        assert_eq!(scenario.aisbench.extra_args.0, ["--num-warmups", "0"]);
        names.push(name);
    }
    for name in ["cold-4x4", "quickstart", "zipf-mixed"] {
        assert!(
            names.iter().any(|found| found == name),
            "{name} is not shipped"
        );
    }
}

/// A row of the reference for each key, in the order of the schema.
fn rows(schema: &Value, path: &str, mode: &str, found: &mut Vec<String>) {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (key, property) in properties.into_iter().flatten() {
        if property.get("const").is_some() && key == "mode" {
            continue;
        }
        let path = if path.is_empty() {
            key.clone()
        } else {
            format!("{path}.{key}")
        };
        let about = property["description"].as_str().unwrap();
        let default = property
            .get("default")
            .map(|default| format!("`{default}`"));
        let default = default.unwrap_or_default();
        found.push(format!("| `{path}` | {default} | {mode}{about} |"));
        modes(property, &path, found);
        rows(property, &path, mode, found);
        if let Some(items) = property.get("items") {
            rows(items, &format!("{path}[]"), mode, found);
        }
    }
}

/// The rows of an object that is told by its mode.
fn modes(schema: &Value, path: &str, found: &mut Vec<String>) {
    let Some(branches) = schema.get("oneOf").and_then(Value::as_array) else {
        return;
    };
    let name = |branch: &Value| branch["properties"]["mode"]["const"].clone();
    let goes_without = |branch: &&Value| {
        let required = branch.get("required").and_then(Value::as_array);
        !required.is_some_and(|keys| keys.iter().any(|key| key == "mode"))
    };
    let default = branches.iter().find(goes_without);
    let default = default.map_or_else(String::new, |branch| format!("`{}`", name(branch)));
    let names: Vec<String> = branches
        .iter()
        .map(|branch| format!("`{}`", name(branch)))
        .collect();
    found.push(format!(
        "| `{path}.mode` | {default} | {} |",
        names.join(", ")
    ));
    for branch in branches {
        let mode = format!("`{}`: ", name(branch).as_str().unwrap());
        rows(branch, path, &mode, found);
    }
}

#[test]
fn the_reference_lists_every_key_with_its_default() {
    let mut expected = Vec::new();
    rows(&schema(), "", "", &mut expected);
    let text = fs::read_to_string(root().join("docs/src/scenario.md")).unwrap();
    let (_, table) = text.split_once("<!-- keys -->\n").unwrap();
    let (table, _) = table.split_once("<!-- end of keys -->").unwrap();
    let found: Vec<&str> = table
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    let expected = expected.join("\n");
    assert_eq!(
        found.join("\n"),
        expected,
        "the rows should be:\n{expected}\n"
    );
}
