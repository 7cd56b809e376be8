//! The driver around a child that is a small shell script in place of Python:
//! how each of its ends is reported, and what is kept.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

use pcload::sim::{Config, Server};
use pcload::tokenizer::HfTokenizer;
use serde_json::{Value, json};
use tempfile::TempDir;

const TOKENIZER: &[u8] = include_bytes!("../../assets/demo/tokenizer/tokenizer.json");
const CORPUS: &[u8] = include_bytes!("../../assets/demo/corpus.jsonl");
const KEY: &str = "sk-test-0123456789abcdef";

/// A scenario, a server, and a child that behaves as `mode` says.
struct Scene {
    folder: TempDir,
    server: Option<Server>,
    runtime: tokio::runtime::Runtime,
}

impl Scene {
    fn new(mode: &str) -> Self {
        Self::with(mode, |_| {})
    }

    fn with(mode: &str, change: impl Fn(&mut Value)) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let tokenizer = HfTokenizer::from_bytes(TOKENIZER, "demo", None).unwrap();
        let config = Config {
            model: "m".to_owned(),
            api_key: Some(KEY.to_owned()),
            ..Config::default()
        };
        let server = runtime.block_on(Server::start(config, Arc::new(tokenizer)));
        let server = server.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
        fs::create_dir(folder.path().join("tokenizer")).unwrap();
        write("tokenizer/tokenizer.json", TOKENIZER);
        write("corpus.jsonl", CORPUS);
        write("mode", mode.as_bytes());
        write("python", include_bytes!("fake_python.sh"));
        let python = folder.path().join("python");
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
        let url = server.base_url();
        let mut scenario = json!({
            "schema_version": "1.0",
            "run": {"run_id": "set", "random_seed": 1, "output_dir": "./out/set"},
            "tokenizer": {"path": "./tokenizer", "block_size": 16},
            "corpus": {"path": "./corpus.jsonl"},
            "requests": {
                "count": 8,
                "input_length": {"mode": "fixed", "value": 64},
                "output_length": {"mode": "fixed", "value": 2},
            },
            "prefix_cache": {"mode": "warmup", "target_hit_rate": 0.5, "groups": {"count": 2}},
            "service": {
                "inference_url": format!("{url}/v1/completions"),
                "metrics_url": format!("{url}/metrics"),
                "reset_url": format!("{url}/reset_prefix_cache"),
                "model": "m",
                "dp_size": 1,
                "poll_interval_seconds": 0,
            },
            "aisbench": {"work_dir": "./ais", "model": {"batch_size": 2}},
        });
        change(&mut scenario);
        write("scenario.json", scenario.to_string().as_bytes());
        Self {
            folder,
            server: Some(server),
            runtime,
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pcload"));
        command
            .current_dir(self.path())
            .args(["run", "--scenario", "scenario.json", "--driver", "aisbench"])
            .arg("--python")
            .arg(self.path().join("python"))
            .env("PCLOAD_API_KEY", KEY)
            .stdin(Stdio::null());
        command
    }

    fn run(&self) -> Run {
        Run::of(self.command().output().unwrap())
    }

    /// Directory of the only run.
    fn run_directory(&self) -> PathBuf {
        let sets = fs::read_dir(self.path().join("out")).unwrap();
        let set = sets.map(|entry| entry.unwrap().path()).next().unwrap();
        set.join("result/runs/1")
    }

    /// Manifest of the only set.
    fn manifest(&self) -> PathBuf {
        let result = self.run_directory().ancestors().nth(2).unwrap().to_owned();
        let entries = fs::read_dir(result).unwrap();
        let mut paths = entries.map(|entry| entry.unwrap().path());
        paths
            .find(|path| path.to_string_lossy().ends_with(".manifest.json"))
            .unwrap()
    }

    fn records(&self) -> usize {
        let path = self.run_directory().join("records.jsonl");
        fs::read_to_string(path).unwrap().lines().count()
    }

    fn analysis(&self) -> Value {
        let path = self.run_directory().join("analysis.json");
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            self.runtime.block_on(server.shutdown());
        }
    }
}

struct Run {
    status: i32,
    stdout: String,
    stderr: String,
}

impl Run {
    fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self {
            status: output.status.code().unwrap(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    fn assert(&self, status: i32, code: &str) {
        assert_eq!(self.status, status, "{}", self.stderr);
        let line = format!("ERROR: {code}: ");
        assert!(self.stderr.contains(&line), "{}", self.stderr);
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.is_file() {
            found.push(path);
        }
    }
    found
}

#[test]
fn a_run_that_goes_well_prints_the_analysis_and_keeps_its_files() {
    let scene = Scene::new("good");
    let run = scene.run();
    assert_eq!(run.status, 0, "{}", run.stderr);
    let document: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(document["runtime"]["aisbench_exit_code"], 0);
    assert_eq!(document["pcload"]["run"]["driver"], "aisbench");
    assert_eq!(document["pcload"]["aisbench"]["classes"], "stock");
    assert!(run.stderr.contains("words of the child"), "{}", run.stderr);
    assert_eq!(scene.records(), 8);
    for file in ["config.py", "dataset.jsonl", "summary.csv", "summary.json"] {
        assert!(
            scene.run_directory().join("aisbench").join(file).is_file(),
            "{file}"
        );
    }
    let args = fs::read_to_string(scene.path().join("args")).unwrap();
    assert!(args.contains("--mode perf"), "{args}");
    assert!(args.trim_end().ends_with("--num-warmups 0"), "{args}");
}

#[test]
fn a_native_run_beside_it_gives_the_parity_table() {
    let scene = Scene::new("good");
    assert_eq!(scene.run().status, 0);
    let by_aisbench = scene.run_directory();
    let native = by_aisbench.with_file_name("2");
    let pcload = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pcload"));
        command.current_dir(scene.path()).env("PCLOAD_API_KEY", KEY);
        Run::of(command.args(args).output().unwrap())
    };
    let run = pcload(&["run", "--scenario", "scenario.json", "--quiet"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let sides = [native.to_str().unwrap(), by_aisbench.to_str().unwrap()];
    for [left, right] in [sides, [sides[1], sides[0]]] {
        let compared = pcload(&["compare", left, right]);
        assert_eq!(compared.status, 0, "{}", compared.stderr);
        let table: Value = serde_json::from_str(&compared.stdout).unwrap();
        let rows = table["rows"].as_array().unwrap();
        let requests = rows.iter().find(|row| row["metric"] == "requests").unwrap();
        assert_eq!(requests["native"], 8.0);
        assert_eq!(requests["aisbench"], 8.0);
        let tokens = rows.iter().find(|row| row["metric"] == "input_tokens");
        assert_eq!(tokens.unwrap()["native"], 512.0);
    }
}

#[test]
fn a_set_may_be_named_from_where_one_is() {
    let scene = Scene::new("good");
    assert_eq!(scene.run().status, 0);
    let manifest = scene.manifest();
    let relative = manifest.strip_prefix(scene.path()).unwrap();
    fs::remove_dir_all(scene.path().join("ais")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_pcload"))
        .current_dir(scene.path())
        .args([
            "run",
            "--driver",
            "aisbench",
            "--python",
            "./python",
            "--manifest",
        ])
        .arg(relative)
        .env("PCLOAD_API_KEY", KEY)
        .output()
        .unwrap();
    let run = Run::of(output);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let args = fs::read_to_string(scene.path().join("args")).unwrap();
    let config = args.split(' ').nth(2).unwrap();
    assert!(Path::new(config).is_absolute(), "{args}");
}

#[test]
fn an_export_holds_a_configuration_data_and_a_script() {
    let scene = Scene::new("good");
    assert_eq!(scene.run().status, 0);
    let manifest = scene.manifest();
    let export = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_pcload"))
            .current_dir(scene.path())
            .arg("export")
            .args(args)
            .arg("--manifest")
            .arg(&manifest)
            .env("PCLOAD_API_KEY", KEY)
            .output()
            .unwrap();
        Run::of(output)
    };
    let run = export(&["aisbench", "--out", "ex"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let folder = scene.path().join("ex");
    let script = fs::read_to_string(folder.join("run.sh")).unwrap();
    assert!(
        script.contains("PCLOAD_AISBENCH_KEY:?") && !script.contains(KEY),
        "{script}"
    );
    let rows = fs::read_to_string(folder.join("dataset.jsonl")).unwrap();
    assert_eq!(rows.lines().count(), 8);
    for file in [
        "config.py",
        "pcload_aisbench.py",
        "tokenizer/tokenizer.json",
    ] {
        assert!(folder.join(file).is_file(), "{file}");
    }
    let run = export(&["vllm-json"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let document: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(
        (&document["num_prompts"], &document["completed"]),
        (&json!(8), &json!(8))
    );
    assert_eq!(document["max_concurrency"], 2);
}

#[test]
fn the_key_is_in_the_environment_and_nowhere_else() {
    let scene = Scene::new("good");
    let run = scene.run();
    assert_eq!(run.status, 0, "{}", run.stderr);
    let variables = fs::read_to_string(scene.path().join("env")).unwrap();
    assert!(variables.contains(&format!("PCLOAD_AISBENCH_KEY={KEY}")));
    assert!(!run.stderr.contains(KEY) && !run.stdout.contains(KEY));
    for path in files(scene.path()) {
        let bytes = fs::read(&path).unwrap();
        let holds = bytes.windows(KEY.len()).any(|part| part == KEY.as_bytes());
        // The stand-in writes down what it was given, for the line above.
        assert!(!holds || path.ends_with("env"), "{}", path.display());
    }
}

#[test]
fn quiet_sends_the_words_of_the_child_into_a_file() {
    let scene = Scene::new("good");
    let run = Run::of(scene.command().arg("--quiet").output().unwrap());
    assert_eq!((run.status, run.stderr.as_str()), (0, ""));
    let log = scene.run_directory().join("aisbench/output.log");
    assert!(
        fs::read_to_string(log)
            .unwrap()
            .contains("words of the child")
    );
}

#[test]
fn a_python_without_the_package_is_told_how_to_get_it() {
    for mode in ["no-package", "no-python"] {
        let run = Scene::new(mode).run();
        run.assert(3, "AISBENCH_NOT_FOUND");
        assert!(
            run.stderr.contains("pip install ais-bench-benchmark"),
            "{}",
            run.stderr
        );
    }
    let scene = Scene::new("good");
    fs::remove_file(scene.path().join("python")).unwrap();
    scene.run().assert(3, "AISBENCH_NOT_FOUND");
}

#[test]
fn a_child_that_fails_fails_the_run_and_keeps_what_is_known() {
    let scene = Scene::new("fails");
    let run = scene.run();
    run.assert(3, "AISBENCH_FAILED");
    assert!(
        run.stderr.contains("AISBench failed with exit code 7"),
        "{}",
        run.stderr
    );
    assert!(
        run.stderr.contains("2 of 8 requests are known"),
        "{}",
        run.stderr
    );
    assert_eq!(scene.records(), 2);
    let analysis = scene.analysis();
    assert_eq!(analysis["status"], "incomplete");
    assert_eq!(analysis["runtime"]["aisbench_exit_code"], 7);
    assert!(scene.run_directory().join("metrics-after.prom").is_file());
}

#[test]
fn a_child_that_is_killed_fails_the_run() {
    let scene = Scene::new("killed");
    let run = scene.run();
    run.assert(3, "AISBENCH_KILLED");
    assert!(run.stderr.contains("signal 9"), "{}", run.stderr);
    assert_eq!(scene.records(), 0);
}

#[test]
fn missing_and_broken_results_are_no_success_whatever_the_child_says() {
    for (mode, words, known) in [
        ("no-results", "no details", 0),
        ("cut", "do not hold every row", 3),
        ("cut-table", "the common metrics", 8),
    ] {
        let scene = Scene::new(mode);
        let run = scene.run();
        run.assert(3, "AISBENCH_RESULTS");
        assert!(run.stderr.contains(words), "{mode}: {}", run.stderr);
        assert_eq!(scene.records(), known, "{mode}");
    }
}

fn spawn(scene: &Scene) -> (Child, String) {
    let mut child = scene
        .command()
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("the child waits") {
        assert!(lines.read_line(&mut said).unwrap() > 0, "{said}");
    }
    child.stderr = Some(lines.into_inner());
    (child, said)
}

#[test]
fn an_interrupt_reaches_the_child_and_what_it_has_is_kept() {
    let scene = Scene::new("waits");
    let (child, _) = spawn(&scene);
    let id = i32::try_from(child.id()).unwrap();
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(id),
        nix::sys::signal::Signal::SIGINT,
    )
    .unwrap();
    let run = Run::of(child.wait_with_output().unwrap());
    run.assert(130, "INTERRUPTED");
    assert_eq!(scene.records(), 3);
    assert_eq!(scene.analysis()["status"], "interrupted");
}

#[test]
fn what_aisbench_cannot_do_is_refused_before_anything_is_sent() {
    let scene = Scene::new("good");
    let rate = scene.command().args(["--rate", "5"]).output().unwrap();
    Run::of(rate).assert(2, "AISBENCH_UNSUPPORTED");
    let args = |args: Value| {
        Scene::with("good", move |scenario| {
            scenario["aisbench"]["extra_args"] = args.clone();
        })
    };
    args(json!(["--num-prompts", "3"]))
        .run()
        .assert(2, "AISBENCH_ARGUMENT");
    args(json!({"--work-dir": "x"}))
        .run()
        .assert(2, "AISBENCH_ARGUMENT");
    let fine = args(json!({"--num-warmups": 0})).run();
    assert_eq!(fine.status, 0, "{}", fine.stderr);
}
