//! Finds and reads a tokenizer's file: beside the scenario, or in the local
//! Hugging Face cache. It refuses to know what stands in the file.
#![allow(
    clippy::disallowed_methods,
    reason = "edge: the tokenizer's file and the variables that name the cache"
)]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

#[cfg(feature = "hub")]
use crate::tokenizer::hub;
use crate::tokenizer::{HfTokenizer, TokenizerError};

/// The file that is loaded.
const FILE: &str = "tokenizer.json";

/// Loads the tokenizer that `name` means, seen from `base_dir`: a directory or
/// a file there, else a model's id in the local Hugging Face cache, at
/// `revision` (default `main`).
pub fn load(
    name: &str,
    base_dir: &Path,
    revision: Option<&str>,
) -> Result<HfTokenizer, TokenizerError> {
    let path = locate(name, base_dir, revision)?;
    let bytes = fs::read(&path).map_err(|source| TokenizerError::Unreadable {
        path: path.clone(),
        source,
    })?;
    HfTokenizer::from_bytes(&bytes, name, revision).map_err(|error| match error {
        TokenizerError::Invalid { message, .. } => TokenizerError::Invalid {
            path: path.display().to_string(),
            message,
        },
        other => other,
    })
}

/// Path of the `tokenizer.json` that [`load`] reads; with the feature `hub` it
/// is downloaded where it is nowhere.
pub fn locate(
    name: &str,
    base_dir: &Path,
    revision: Option<&str>,
) -> Result<PathBuf, TokenizerError> {
    match resolve(name, base_dir, revision, &hub_caches()) {
        #[cfg(feature = "hub")]
        Err(TokenizerError::NotFound { looked_at, .. })
            if hub_folder(name).is_some() && !hub::is_offline() =>
        {
            hub::download(name, revision.unwrap_or("main"), FILE).map_err(|message| {
                TokenizerError::Download {
                    name: name.to_owned(),
                    message,
                    looked_at,
                }
            })
        }
        other => other,
    }
}

/// Path of the `tokenizer.json` that `name` means; `caches` are the Hugging
/// Face caches to look into, in order.
pub fn resolve(
    name: &str,
    base_dir: &Path,
    revision: Option<&str>,
    caches: &[PathBuf],
) -> Result<PathBuf, TokenizerError> {
    let local = base_dir.join(name);
    if local.is_file() {
        return Ok(local);
    }
    if local.is_dir() {
        let file = local.join(FILE);
        if file.is_file() {
            return Ok(file);
        }
        return Err(TokenizerError::NoTokenizerJson { directory: local });
    }
    let mut looked_at = vec![local];
    if let Some(folder) = hub_folder(name) {
        for cache in caches {
            let model = cache.join(&folder);
            let file = snapshot(&model, revision.unwrap_or("main")).join(FILE);
            if file.is_file() {
                return Ok(file);
            }
            looked_at.push(file);
        }
    }
    Err(TokenizerError::NotFound {
        name: name.to_owned(),
        looked_at,
    })
}

/// The cache's folder of a model id (`owner/name`, or an old bare `name`);
/// `None` for what can only be a path.
fn hub_folder(id: &str) -> Option<String> {
    let parts: Vec<&str> = id.split('/').collect();
    let is_part = |part: &&str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter))
    };
    (parts.len() <= 2 && parts.iter().all(is_part)).then(|| format!("models--{}", parts.join("--")))
}

/// Folder of a revision: what the name points at, else the commit itself.
fn snapshot(model: &Path, revision: &str) -> PathBuf {
    let commit = fs::read_to_string(model.join("refs").join(revision));
    let commit = commit.as_deref().map_or(revision, str::trim);
    model.join("snapshots").join(commit)
}

/// The caches that the Hugging Face tools would use, the most specific first.
fn hub_caches() -> Vec<PathBuf> {
    let folder = |variable: &str| {
        env::var_os(variable)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let caches = [
        folder("HF_HUB_CACHE"),
        folder("HUGGINGFACE_HUB_CACHE"),
        folder("HF_HOME").map(|home| home.join("hub")),
        folder("XDG_CACHE_HOME").map(|cache| cache.join("huggingface/hub")),
        folder("HOME").map(|home| home.join(".cache/huggingface/hub")),
    ];
    let mut found: Vec<PathBuf> = Vec::new();
    for cache in caches.into_iter().flatten() {
        if !found.contains(&cache) {
            found.push(cache);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_directory_or_a_file_beside_the_scenario_wins() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path();
        put(&base.join("org/model/tokenizer.json"), "{}");
        put(&base.join("cache/models--org--model/refs/main"), "abc\n");
        put(
            &base.join("cache/models--org--model/snapshots/abc/tokenizer.json"),
            "{}",
        );
        let caches = [base.join("cache")];
        for name in ["org/model", "./org/model", "org/model/tokenizer.json"] {
            let found = resolve(name, base, None, &caches).unwrap();
            assert_eq!(
                fs::canonicalize(found).unwrap(),
                fs::canonicalize(base.join("org/model/tokenizer.json")).unwrap()
            );
        }
    }

    #[test]
    fn a_model_id_is_found_in_the_cache_at_its_revision() {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("hub/models--org--m.1");
        put(&model.join("refs/main"), "aaa\n");
        put(&model.join("snapshots/aaa/tokenizer.json"), "{}");
        put(&model.join("snapshots/bbb/tokenizer.json"), "{}");
        let caches = [folder.path().join("none"), folder.path().join("hub")];
        let at = |revision| resolve("org/m.1", Path::new("/nowhere"), revision, &caches);
        assert!(at(None).unwrap().ends_with("snapshots/aaa/tokenizer.json"));
        assert!(
            at(Some("bbb"))
                .unwrap()
                .ends_with("snapshots/bbb/tokenizer.json")
        );
        let Err(TokenizerError::NotFound { looked_at, .. }) = at(Some("ccc")) else {
            panic!("found a revision that is not there");
        };
        assert_eq!(looked_at.len(), 3, "{looked_at:?}");
    }

    #[test]
    fn a_directory_without_the_file_says_how_to_make_it() {
        let folder = tempfile::tempdir().unwrap();
        put(&folder.path().join("m/tokenizer.model"), "x");
        let error = resolve("m", folder.path(), None, &[]).unwrap_err();
        assert_eq!(error.code(), "TOKENIZER_JSON_MISSING");
        assert!(error.hint().unwrap().contains("save_pretrained"));
    }

    #[test]
    fn what_can_only_be_a_path_is_not_looked_up_in_the_cache() {
        for (id, folder) in [
            ("gpt2", Some("models--gpt2")),
            ("Qwen/Qwen2.5-7B", Some("models--Qwen--Qwen2.5-7B")),
            ("../x", None),
            ("/abs/x", None),
            ("a/b/c", None),
            ("a b", None),
        ] {
            assert_eq!(hub_folder(id).as_deref(), folder, "{id}");
        }
    }
}
