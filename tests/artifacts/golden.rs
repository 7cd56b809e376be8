//! Test tools: the recorded tokenizers, and the reference's recorded sets, copied into a fresh directory
//! under the names that their manifests speak of.

use std::fs;
use std::path::{Path, PathBuf};

use pcload::artifacts::{PreparedSet, pyjson};
use pcload::tokenizer::{Identity, Tokenizer, TokenizerError};
use pcload::units::sha256_hex;
use serde_json::Value;

/// The recorded sets with rows.
pub(crate) const GOLDEN_PREPARED: [&str; 17] = [
    "run-bos",
    "run-childfail",
    "run-cold",
    "run-noreset",
    "run-noreset-assume",
    "run-warm",
    "tiny-cold-8g-dp4-unreachable",
    "tiny-cold-csv",
    "tiny-cold-dp1-seq",
    "tiny-cold-dp2-3g-asc",
    "tiny-cold-float-exp",
    "tiny-cold-overrides",
    "tiny-cold-target1",
    "tiny-warm-collide-marker",
    "tiny-warm-default",
    "tiny-warm-target0",
    "tiny-warm-target1",
];

/// Folder of a recorded set.
pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/golden")
        .join(name)
}

/// Text of a file.
pub(crate) fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Value of a JSON file.
pub(crate) fn read_json(path: impl AsRef<Path>) -> Value {
    serde_json::from_str(&read(path)).unwrap()
}

/// A copy of a recorded set under its own names.
pub(crate) struct GoldenSet {
    directory: tempfile::TempDir,
    run_id: String,
}

impl GoldenSet {
    /// Copies the set. The recorded manifests have shortened paths, which their
    /// `effective_config_sha256` does not know: it is refreshed.
    pub(crate) fn copy(name: &str) -> Self {
        Self::copy_from(&folder(name))
    }

    /// [`copy`](Self::copy) from any folder.
    pub(crate) fn copy_from(folder: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut manifest = read_json(folder.join("manifest.json"));
        let run_id = manifest["run_id"].as_str().unwrap().to_owned();
        let set = Self { directory, run_id };
        fs::create_dir(set.result_dir()).unwrap();
        for file in ["full.jsonl", "requests.jsonl", "analysis.json"] {
            fs::copy(folder.join(file), set.file(file)).unwrap();
        }
        let config = pyjson::canonical(&manifest["effective_config"]);
        manifest["effective_config_sha256"] = sha256_hex(config.as_bytes()).into();
        set.write_manifest(&manifest);
        set
    }

    /// Directory of the four files.
    pub(crate) fn result_dir(&self) -> PathBuf {
        self.directory.path().join("result")
    }

    /// One of them.
    pub(crate) fn file(&self, ending: &str) -> PathBuf {
        self.result_dir().join(format!("{}.{ending}", self.run_id))
    }

    /// `full.jsonl`.
    pub(crate) fn full(&self) -> PathBuf {
        self.file("full.jsonl")
    }

    /// `requests.jsonl`.
    pub(crate) fn requests(&self) -> PathBuf {
        self.file("requests.jsonl")
    }

    /// `manifest.json`.
    pub(crate) fn manifest(&self) -> PathBuf {
        self.file("manifest.json")
    }

    /// `analysis.json`.
    pub(crate) fn analysis(&self) -> PathBuf {
        self.file("analysis.json")
    }

    /// The set, opened.
    pub(crate) fn open(&self) -> PreparedSet {
        PreparedSet::open(&self.manifest()).unwrap()
    }

    /// Writes the manifest anew.
    pub(crate) fn write_manifest(&self, manifest: &Value) {
        fs::write(self.manifest(), pyjson::document(manifest)).unwrap();
    }

    /// Changes the manifest.
    pub(crate) fn edit_manifest(&self, edit: impl FnOnce(&mut Value)) {
        let mut manifest = read_json(self.manifest());
        edit(&mut manifest);
        self.write_manifest(&manifest);
    }

    /// Changes rows of a row file.
    pub(crate) fn edit_rows(&self, file: &str, edit: impl FnOnce(&mut Vec<Value>)) {
        let path = self.file(file);
        let mut rows = read(&path)
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        edit(&mut rows);
        let text: String = rows.iter().map(|row| pyjson::line(row) + "\n").collect();
        fs::write(path, text).unwrap();
    }

    /// Makes the manifest's digests, byte and row counts fit the files.
    pub(crate) fn refresh_digests(&self) {
        let sections =
            [("full", self.full()), ("requests", self.requests())].map(|(name, path)| {
                let text = read(path);
                (name, sha256_hex(text.as_bytes()), text.len())
            });
        self.edit_manifest(|manifest| {
            for (name, sha256, bytes) in sections {
                manifest["artifacts"][name]["sha256"] = sha256.into();
                manifest["artifacts"][name]["bytes"] = bytes.into();
            }
        });
    }
}

/// A recorded tokenizer.
pub(crate) struct GoldenTokenizer {
    inner: tokenizers::Tokenizer,
    identity: Identity,
    special_ids: Vec<u32>,
    prefix_ids: Vec<u32>,
}

impl GoldenTokenizer {
    /// The tokenizer in a recorded folder.
    pub(crate) fn load(name: &str) -> Self {
        let path = folder("tokenizers").join(name).join("tokenizer.json");
        let inner = tokenizers::Tokenizer::from_file(&path).unwrap();
        let prefix = inner.encode("", true).unwrap();
        let special_ids = inner
            .get_added_tokens_decoder()
            .into_iter()
            .filter(|(_, token)| token.special)
            .map(|(id, _)| id)
            .collect::<std::collections::BTreeSet<u32>>();
        Self {
            identity: Identity {
                class: "tokenizers.BPE".to_owned(),
                path: format!("../tokenizers/{name}"),
                revision: None,
                file_sha256: sha256_hex(&fs::read(&path).unwrap()),
            },
            special_ids: special_ids.into_iter().collect(),
            prefix_ids: prefix.get_ids().to_vec(),
            inner,
        }
    }
}

impl GoldenTokenizer {
    /// Pretends that the file is another.
    pub(crate) fn set_file_sha256(&mut self, sha256: String) {
        self.identity.file_sha256 = sha256;
    }
}

impl Tokenizer for GoldenTokenizer {
    fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        Ok(self.inner.encode(text, false).unwrap().get_ids().to_vec())
    }

    fn decode(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        Ok(self.inner.decode(ids, false).unwrap())
    }

    fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    fn special_ids(&self) -> &[u32] {
        &self.special_ids
    }

    fn prefix_ids(&self) -> &[u32] {
        &self.prefix_ids
    }

    fn suffix_ids(&self) -> &[u32] {
        &[]
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }
}
