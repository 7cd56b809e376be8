//! A fresh folder with the demo's tokenizer and corpus and a small scenario, and
//! the program run in it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

/// No command of these tests takes longer, however slow the machine; a hang
/// must not hang the tests.
const HANG_AFTER: Duration = Duration::from_secs(600);

/// The folder, removed with this value.
pub(crate) struct Folder {
    temporary: TempDir,
}

impl Folder {
    /// A folder with `tokenizer/`, `corpus.jsonl` and `scenario.json`.
    pub(crate) fn new() -> Self {
        let folder = Self::empty();
        let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/demo");
        fs::create_dir(folder.path("tokenizer")).unwrap();
        for file in ["tokenizer/tokenizer.json", "corpus.jsonl"] {
            fs::copy(assets.join(file), folder.path(file)).unwrap();
        }
        folder.write_scenario(&scenario());
        folder
    }

    /// A folder with nothing in it.
    pub(crate) fn empty() -> Self {
        Self {
            temporary: TempDir::new().unwrap(),
        }
    }

    /// A path in it.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.temporary.path().join(name)
    }

    /// Writes `scenario.json`.
    pub(crate) fn write_scenario(&self, scenario: &Value) {
        fs::write(self.path("scenario.json"), scenario.to_string()).unwrap();
    }

    /// The program, to be run in the folder, free of what the caller's
    /// environment holds for it.
    pub(crate) fn command(&self, arguments: &[&str]) -> assert_cmd::Command {
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_pcload"));
        command
            .args(arguments)
            .current_dir(self.temporary.path())
            .env_remove("PCLOAD_API_KEY")
            .env_remove("RAYON_NUM_THREADS")
            .env("RUST_BACKTRACE", "0")
            .timeout(HANG_AFTER);
        command
    }

    /// Runs the program in the folder.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.command(arguments))
    }

    /// Runs a command that must succeed.
    pub(crate) fn done(&self, arguments: &[&str]) -> Ran {
        let ran = self.run(arguments);
        assert_eq!(ran.status, 0, "{arguments:?}: {}", ran.stderr);
        ran
    }

    /// Prepares `scenario.json`; returns the paths on stdout.
    pub(crate) fn prepare(&self) -> Prepared {
        let ran = self.done(&["prepare", "--quiet", "--scenario", "scenario.json"]);
        Prepared(ran.json())
    }

    /// All files and directories below, with the digests of the files' bytes.
    pub(crate) fn listing(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        list(self.temporary.path(), self.temporary.path(), &mut found);
        found
    }
}

fn list(root: &Path, folder: &Path, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(root).unwrap().display().to_string();
        if path.is_dir() {
            found.insert(name, "directory".to_owned());
            list(root, &path, found);
        } else {
            let digest = pcload::units::sha256_hex(&fs::read(&path).unwrap());
            found.insert(name, digest);
        }
    }
}

/// What `prepare` printed.
pub(crate) struct Prepared(pub(crate) Value);

impl Prepared {
    /// The manifest's path.
    pub(crate) fn manifest(&self) -> &str {
        self.path("manifest")
    }

    /// The path of `full`, `requests`, `manifest`, `analysis` or `log`.
    pub(crate) fn path(&self, file: &str) -> &str {
        self.0[file].as_str().unwrap()
    }

    /// The manifest.
    pub(crate) fn read_manifest(&self) -> Value {
        read_json(self.manifest())
    }

    /// Bytes of a file, the stamps taken out of it, since two sets of one
    /// scenario differ in them alone.
    pub(crate) fn unstamped(&self, file: &str) -> String {
        let text = fs::read_to_string(self.path(file)).unwrap();
        let manifest = self.read_manifest();
        let run_id = manifest["run_id"].as_str().unwrap();
        let (_, stamp) = run_id.split_at(run_id.len() - "YYYYMMDD_HHMMSS".len());
        text.replace(stamp, "STAMP")
    }
}

/// A JSON file.
pub(crate) fn read_json(path: impl AsRef<Path>) -> Value {
    let path = path.as_ref();
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap()
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Runs `command` to its end.
    pub(crate) fn of(mut command: assert_cmd::Command) -> Self {
        let output = command.output().unwrap();
        let ran = Self {
            status: output.status.code().expect("ended by itself"),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        };
        assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
        ran
    }

    /// Stdout as one JSON document.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("stdout is no JSON ({error}): {}", self.stdout))
    }

    /// The error lines.
    pub(crate) fn errors(&self) -> Vec<&str> {
        let lines = self.stderr.lines();
        lines.filter(|line| line.starts_with("ERROR: ")).collect()
    }

    /// Asserts a failure with one error line that has this code and holds these
    /// words; nothing on stdout, and on stderr besides it only hints, and words
    /// that were said before.
    #[track_caller]
    pub(crate) fn fails(&self, status: i32, code: &str, words: &[&str]) {
        let errors = self.errors();
        assert_eq!(errors.len(), 1, "{}", self.stderr);
        let error = errors[0];
        assert!(error.starts_with(&format!("ERROR: {code}: ")), "{error}");
        for word in words {
            assert!(self.stderr.contains(word), "no `{word}` in {}", self.stderr);
        }
        assert_eq!(self.status, status, "{error}");
        assert_eq!(self.stdout, "", "{error}");
        let after = self.stderr.lines().skip_while(|line| *line != error);
        for line in after.skip(1) {
            assert!(line.starts_with("hint: "), "{}", self.stderr);
        }
    }
}

/// A small scenario: 12 requests of 128 tokens in two groups from a cold start.
pub(crate) fn scenario() -> Value {
    json!({
        "schema_version": "1.0",
        "run": {"run_id": "small", "random_seed": 7, "output_dir": "./out/small"},
        "tokenizer": {"path": "./tokenizer", "block_size": 16},
        "corpus": {"path": "./corpus.jsonl"},
        "requests": {
            "count": 12,
            "input_length": {"mode": "fixed", "value": 128},
            "output_length": {"mode": "fixed", "value": 4},
        },
        "prefix_cache": {
            "mode": "cold",
            "target_hit_rate": 0.5,
            "groups": {"count": 2},
        },
        "service": {"dp_size": 1},
    })
}

/// `value` with the value at a dotted path replaced or added.
pub(crate) fn with(mut value: Value, path: &str, new: Value) -> Value {
    let mut place = &mut value;
    for key in path.split('.') {
        place = &mut place[key];
    }
    *place = new;
    value
}
