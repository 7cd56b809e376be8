//! From options as typed to settings: the key from where it stands, the record
//! of the options without it, the file to write.

#![allow(
    clippy::disallowed_methods,
    reason = "edge: reads the environment, key and control files, and the clock"
)]

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::args::{CommonArgs, ControlArgs, Probe};
use crate::cli::exit::Failure;
use crate::cli::inputs::unreadable;
use crate::cli::secrets;
use crate::drive::phases::fresh_nonce;
use crate::drive::probe::{Address, ProbeError, ProbeSettings, ProcFiles};
use crate::probe::{Control, Design, Doses, PROBE_SCHEMA_VERSION, ProbeKind, ProbeRecord};
use crate::secret::{Redactor, Secret, shown_url};
use crate::service::chat::Headers;
use crate::units::BlockSize;

/// Variables that hold the key, the first one that is set wins.
const KEY_VARIABLES: &[&str] = &["PCLOAD_API_KEY", "OPENAI_API_KEY", "VLLM_API_KEY"];

/// Largest record that is read.
const RECORD_BYTES_MAX: u64 = 256 << 20;

/// Largest key file that is read.
const KEY_BYTES_MAX: u64 = 64 << 10;

/// A probe as it is meant, and where its record goes.
pub(super) struct Resolved {
    /// What to do.
    pub(super) settings: ProbeSettings,
    /// File of the record.
    pub(super) out: PathBuf,
    /// File of the report, where one is wanted.
    pub(super) html: Option<PathBuf>,
}

/// Resolves what was typed.
pub(super) fn resolve(probe: &Probe) -> Result<Resolved, Failure> {
    let (design, control, common) = parts(probe);
    let api_key = api_key(common)?;
    let headers = Headers(common.header.clone());
    let mut redactor = Redactor::new(&api_key, [common.url.as_str()]);
    headers.keep_out(&mut redactor);
    secrets::keep_out(&redactor);
    let now = jiff::ZonedDateTime::now();
    let stamp = now.strftime("%Y%m%d_%H%M%S").to_string();
    let out = out(common, design.kind(), &stamp)?;
    if let Some(html) = &common.html {
        writable(html, "report")?;
    }
    let settings = ProbeSettings {
        address: Address::parse(&common.url)?,
        model: common.model.clone().filter(|model| !model.is_empty()),
        api_key,
        headers,
        extra_body: common.extra_body.clone(),
        block: block(common.block)?,
        retention_tokens: common.retention,
        wait_ready: common.wait_ready,
        budget: common.budget,
        timeout: common.timeout,
        arm: common.arm.clone(),
        with_control: control.is_some_and(|control| control.with_control),
        control: quoted(control)?,
        options: options(common, &design),
        design,
        started: now.timestamp().to_string(),
        salt: fresh_nonce(),
        files: ProcFiles::of_this_machine(),
    };
    let html = common.html.clone();
    Ok(Resolved {
        settings,
        out,
        html,
    })
}

fn parts(probe: &Probe) -> (Design, Option<&ControlArgs>, &CommonArgs) {
    match probe {
        Probe::Single(args) => {
            let design = Design::Single {
                tokens: args.tokens,
                turns: args.turns,
            };
            (design, None, &args.common)
        }
        Probe::Alternation(args) => {
            let design = Design::Alternation {
                tokens: args.tokens,
                rounds: args.rounds,
                noise: args.noise,
                noise_tokens: args.noise_tokens,
            };
            (design, Some(&args.control), &args.common)
        }
        Probe::Dose(args) => {
            let doses = if args.find_knee {
                Doses::FindKnee {
                    resolution: args.resolution,
                    repeats: args.repeats,
                }
            } else {
                Doses::Listed(args.doses.clone())
            };
            let design = Design::Dose {
                tokens: args.tokens,
                doses,
            };
            (design, Some(&args.control), &args.common)
        }
        Probe::Needle(args) => {
            let design = Design::Needle {
                tokens: args.tokens,
                depths: args.depths.clone(),
                interleave_tokens: args.interleave,
            };
            (design, Some(&args.control), &args.common)
        }
    }
}

fn block(tokens: Option<u64>) -> Result<Option<BlockSize>, Failure> {
    match tokens {
        None => Ok(None),
        Some(tokens) => match BlockSize::new(tokens) {
            Some(block) => Ok(Some(block)),
            None => Err(Failure::input(
                "PROBE_OPTION_INVALID",
                "`--block` is 0; at least 1 is needed",
            )),
        },
    }
}

fn api_key(common: &CommonArgs) -> Result<Secret, Failure> {
    if let Some(path) = &common.api_key_file {
        let text = read_text(path, "key file", KEY_BYTES_MAX)?;
        let key = text.trim();
        if key.is_empty() || key.contains(char::is_whitespace) {
            return Err(Failure::input(
                "API_KEY_INVALID",
                format!("the key file `{}` does not hold one key", path.display()),
            ));
        }
        return Ok(Secret::new(key));
    }
    let typed = common.api_key.clone().filter(|key| !key.is_empty());
    let of_environment = || {
        let variables = KEY_VARIABLES.iter();
        let mut keys = variables.filter_map(|name| std::env::var(name).ok());
        keys.find(|key| !key.is_empty())
    };
    Ok(Secret::new(
        typed.or_else(of_environment).unwrap_or_default(),
    ))
}

/// Options for the record. Header values and the URL's secrets stay out.
fn options(common: &CommonArgs, design: &Design) -> Value {
    let headers: Vec<&str> = common
        .header
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    json!({
        "url": shown_url(&common.url),
        "model": common.model,
        "design": design,
        "block": common.block,
        "retention": common.retention,
        "budget_seconds": common.budget.map(|budget| budget.as_secs_f64()),
        "timeout_seconds": common.timeout.as_secs_f64(),
        "headers": headers,
        "extra_body": common.extra_body,
    })
}

/// The file to write, checked before hours of probing go into it.
fn out(common: &CommonArgs, kind: ProbeKind, stamp: &str) -> Result<PathBuf, Failure> {
    let Some(path) = &common.out else {
        let name = |suffix: &str| {
            PathBuf::from(format!("pcload-probe-{}-{stamp}{suffix}.json", kind.name()))
        };
        let free = (2..100).map(|number| name(&format!("-{number}")));
        let mut names = std::iter::once(name("")).chain(free);
        return Ok(names
            .find(|path| !path.exists())
            .unwrap_or_else(|| name("")));
    };
    writable(path, "record")?;
    Ok(path.clone())
}

/// Whether there is a place for the file.
fn writable(path: &Path, what: &str) -> Result<(), Failure> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if path.is_dir() || !folder.is_dir() {
        let message = format!("cannot write the {what} `{}`", path.display());
        let hint = "name a file in a directory that exists";
        return Err(Failure::input("OUT_UNWRITABLE", message).hint(hint));
    }
    Ok(())
}

fn quoted(control: Option<&ControlArgs>) -> Result<Option<Control>, Failure> {
    let Some(path) = control.and_then(|control| control.control.as_deref()) else {
        return Ok(None);
    };
    let record = record(path)?;
    if record.probe != ProbeKind::Single {
        let message = format!(
            "`{}` is a record of `probe {}`",
            path.display(),
            record.probe.name()
        );
        let hint = "--control quotes a record of `probe single`";
        return Err(Failure::input("NOT_A_CONTROL", message).hint(hint));
    }
    let name = path.file_name().unwrap_or(path.as_os_str());
    Ok(Some(Control::of(&record, name.to_string_lossy())))
}

/// Reads the record of a probe.
pub(in crate::cli) fn record(path: &Path) -> Result<ProbeRecord, Failure> {
    let text = read_text(path, "record", RECORD_BYTES_MAX)?;
    let wrong = |what: String| {
        let message = format!("`{}` is no record of a probe: {what}", path.display());
        Failure::input("NOT_A_PROBE_RECORD", message)
    };
    let value: Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    if value.get("kind").and_then(Value::as_str) != Some(ProbeRecord::KIND) {
        return Err(wrong(format!("its `kind` is not `{}`", ProbeRecord::KIND)));
    }
    let version = value.get("schema_version").cloned().unwrap_or_default();
    if version != json!(PROBE_SCHEMA_VERSION) {
        let message = format!(
            "`{}` has version {version} of its format; this program reads {PROBE_SCHEMA_VERSION}",
            path.display()
        );
        return Err(Failure::input("RECORD_VERSION", message));
    }
    serde_json::from_value(value).map_err(|error| wrong(error.to_string()))
}

fn read_text(path: &Path, what: &str, limit: u64) -> Result<String, Failure> {
    let failed = |error: std::io::Error| unreadable(what, path, &error);
    let file = fs::File::open(path).map_err(failed)?;
    let mut text = String::new();
    let read = file
        .take(limit + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    if read as u64 > limit {
        let message = format!(
            "the {what} `{}` has more than {limit} bytes",
            path.display()
        );
        return Err(Failure::input("FILE_TOO_LARGE", message));
    }
    Ok(text)
}

impl From<ProbeError> for Failure {
    fn from(error: ProbeError) -> Self {
        let make = if error.is_input() {
            Self::input
        } else {
            Self::world
        };
        let failure = make(error.code(), error.to_string());
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}
