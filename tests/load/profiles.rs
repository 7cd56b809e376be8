//! Every shipped profile explains itself and can be laid over a data set.

use std::path::PathBuf;

use pcload::plan::LoadPlan;
use pcload::rng::Seed;
use pcload::scenario::LoadProfile;

#[test]
fn every_shipped_profile_resolves_and_explains_itself() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("profiles");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "toml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let profile = LoadProfile::parse(&text, &|path| std::fs::read(folder.join(path)))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let plan = LoadPlan::new(&profile, 100, &Seed::from(1))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(plan.planned_requests, 100, "{name}");
        let head = text.lines().take_while(|line| line.starts_with('#'));
        assert!(head.count() >= 3, "{name} explains itself at its head");
        names.push(name);
    }
    names.sort();
    assert_eq!(
        names,
        [
            "bursty", "constant", "latency", "poisson", "ramp", "saturate", "soak", "spike",
            "steps"
        ]
    );
}
