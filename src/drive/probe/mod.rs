//! Carries out a prefix-reuse probe against a live server: reads the engine,
//! calibrates, sends the requests of the design one at a time, and hands back
//! the judged record, whatever ended the probe. Designs and verdicts are
//! [`crate::probe`]'s; files and words for people are nobody's business here.

mod address;
mod engine;
mod error;
mod finish;
mod prober;
mod proc_files;
mod procedures;
mod process;
mod script;
mod sender;

use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use address::Address;
pub use error::ProbeError;
pub use proc_files::ProcFiles;
pub use process::Process;

use crate::probe::{
    Basis, BlockEvidence, Control, Design, DocumentWriter, DoseCase, EngineRecord, Fact,
    FactSource, NeedleCase, ProbeRecord, RequestRow,
};
use crate::rng::Seed;
use crate::service::chat::{ChatClient, ChatSettings, Headers, OWN_BODY_KEYS};
use crate::service::{ControlClient, ControlSettings};
use crate::units::BlockSize;
use engine::{Engine, RANK_HEADER};
use prober::{Arm, Prober};
use sender::{Sender, Stop, unless};

/// Time for opening a connection, and for one request that is no chat.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(30);

/// What a probe is to do, every option resolved.
#[derive(Clone, Debug)]
pub struct ProbeSettings {
    /// Where the server is.
    pub address: Address,
    /// Model; `None` for the only one the server has.
    pub model: Option<String>,
    /// Credential.
    pub api_key: crate::secret::Secret,
    /// Further headers.
    pub headers: Headers,
    /// Further body keys; `None` for the default ones.
    pub extra_body: Option<Map<String, Value>>,
    /// The engine's attention block.
    pub block: Option<BlockSize>,
    /// Tokens between retained states; 0 for none, `None` for what the engine
    /// says.
    pub retention_tokens: Option<u64>,
    /// How long the server may take to start; `None`: it must be up.
    pub wait_ready: Option<Duration>,
    /// Time for the whole probe, once the server is up.
    pub budget: Option<Duration>,
    /// Time for one request.
    pub timeout: Duration,
    /// The caller's label of what is under test.
    pub arm: Option<String>,
    /// What to send.
    pub design: Design,
    /// Whether the single arm is run first.
    pub with_control: bool,
    /// A single arm that was run before.
    pub control: Option<Control>,
    /// Options for the record, credentials left out.
    pub options: Value,
    /// Wall-clock start, RFC 3339.
    pub started: String,
    /// Unique to this run: begins every document.
    pub salt: String,
    /// Where processes are looked up.
    pub files: ProcFiles,
}

/// What happens while a probe runs.
#[derive(Clone, Copy, Debug)]
pub enum ProbeEvent<'a> {
    /// The engine was read.
    Engine(&'a EngineRecord),
    /// The single arm begins, or (false) the probe itself.
    Begin {
        /// Whether it is the single arm of another probe.
        control: bool,
    },
    /// A request was answered; its verdict is that of the moment.
    Row(&'a RequestRow),
    /// A dose was judged.
    Dose(&'a DoseCase),
    /// A needle was judged.
    Needle(&'a NeedleCase),
}

/// Is told of every event.
pub type Watch<'a> = &'a mut dyn FnMut(ProbeEvent<'_>);

/// How a probe ended.
#[derive(Debug)]
pub struct ProbeOutcome {
    /// Everything that was seen, judged.
    pub record: ProbeRecord,
    /// Why the server could no longer be used, where that ended it.
    pub failure: Option<ProbeError>,
}

/// Runs a probe until it is done, `stop` is cancelled, its budget is used up,
/// or the server fails. An error means that nothing was judged and there is no
/// record.
pub async fn run(
    settings: &ProbeSettings,
    stop: &CancellationToken,
    watch: Watch<'_>,
) -> Result<ProbeOutcome, ProbeError> {
    check(settings)?;
    let control = control_settings(settings);
    if let Some(limit) = settings.wait_ready {
        let client = ControlClient::new(control.clone())?;
        match unless(stop, client.ready(limit)).await {
            Err(_) => return Ok(finish::interrupted_before(settings)),
            Ok(ready) => ready?,
        }
    }
    let deadline = settings.budget.map(|budget| begin() + budget);
    let wanted = settings.model.as_deref();
    let reading = engine::read(&control, &settings.address, wanted, &settings.files);
    let Ok(engine) = unless(stop, reading).await else {
        return Ok(finish::interrupted_before(settings));
    };
    let mut engine = engine?;
    admit(settings, &engine)?;
    let mut notes = Vec::new();
    let retention_tokens = retention(settings, &mut engine, &mut notes)?;
    (*watch)(ProbeEvent::Engine(&engine.record));
    let chat = chat(settings, &engine, &mut notes)?;
    let counters = engine.counters.clone();
    let seed = Seed::from_decimal(settings.salt.as_str());
    let mut prober = Prober {
        sender: Sender::new(chat, counters, settings.timeout, deadline, stop.clone()),
        writer: DocumentWriter::new(settings.salt.as_str(), seed.stream("documents")),
        phrases: seed.stream("pass-phrases"),
        basis: Basis {
            block: BlockEvidence {
                option: settings.block,
                metric: engine.metric_block.and_then(BlockSize::new),
                size_on_command_line: engine.block_repeats_flag,
                cached_tokens: Vec::new(),
            },
            retention_tokens,
        },
        context_tokens: engine.context_tokens,
        calibration: None,
        sized: false,
        notes,
        watch,
    };
    let mut arm = Arm::default();
    let mut quoted = settings.control.clone();
    let ended = all(settings, &engine, &mut prober, &mut arm, &mut quoted).await;
    finish::finish(settings, engine, prober, arm, quoted, ended).await
}

/// The single arm where it is wanted, then the probe itself.
async fn all(
    settings: &ProbeSettings,
    engine: &Engine,
    prober: &mut Prober<'_>,
    arm: &mut Arm,
    quoted: &mut Option<Control>,
) -> Result<(), Stop> {
    let default_body = match &settings.extra_body {
        Some(body) => {
            prober.sender.extra_body.clone_from(body);
            None
        }
        None => json!({"chat_template_kwargs": {"enable_thinking": false}})
            .as_object()
            .cloned(),
    };
    prober.calibrate(arm, default_body).await?;
    if settings.with_control {
        (prober.watch)(ProbeEvent::Begin { control: true });
        let design = settings.design.control();
        let mut single = Arm::default();
        let ended = prober.carry_out(&mut single, &design).await;
        *quoted = Some(finish::control(settings, engine, prober, single, &design));
        ended?;
    }
    (prober.watch)(ProbeEvent::Begin { control: false });
    prober.carry_out(arm, &settings.design).await
}

/// What can be checked before the server is asked anything.
fn check(settings: &ProbeSettings) -> Result<(), ProbeError> {
    settings.design.check()?;
    let body = settings.extra_body.iter().flat_map(Map::keys);
    if let Some(key) = body
        .into_iter()
        .find(|key| OWN_BODY_KEYS.contains(&key.as_str()))
    {
        return Err(ProbeError::OwnBodyKey { key: key.clone() });
    }
    match (settings.retention_tokens, settings.block) {
        (Some(interval), Some(block)) => multiple(interval, block.tokens()),
        _ => Ok(()),
    }
}

fn multiple(interval: u64, block: u64) -> Result<(), ProbeError> {
    if interval.is_multiple_of(block) {
        return Ok(());
    }
    Err(ProbeError::RetentionNotAMultiple { interval, block })
}

/// What the engine must be like before anything is sent to it.
fn admit(settings: &ProbeSettings, engine: &Engine) -> Result<(), ProbeError> {
    if engine.prefix_caching == Some(false) {
        return Err(ProbeError::PrefixCachingOff);
    }
    if let Some(context) = engine.context_tokens {
        settings.design.check_context(context)?;
        if settings.with_control {
            settings.design.control().check_context(context)?;
        }
    }
    let trusted = engine.metric_block.filter(|_| !engine.block_repeats_flag);
    match (settings.retention_tokens, settings.block, trusted) {
        (Some(interval), None, Some(block)) => multiple(interval, block),
        _ => Ok(()),
    }
}

/// The retention interval of the verdicts: the option, else what the engine
/// says of itself, unless no block fits it.
fn retention(
    settings: &ProbeSettings,
    engine: &mut Engine,
    notes: &mut Vec<String>,
) -> Result<u64, ProbeError> {
    if let Some(block) = settings.block {
        let fact = Fact::new(block.tokens(), FactSource::Option);
        engine.record.offer("block_size", fact);
    }
    let stated = engine.retention_tokens();
    if let Some(interval) = settings.retention_tokens {
        let fact = Fact::new(interval, FactSource::Option);
        engine.record.offer("retention_interval", fact);
        if stated > 0 && stated != interval {
            notes.push(format!(
                "the engine keeps states every {stated} tokens, yet --retention {interval} is what \
                 the turns are judged by"
            ));
        }
        return Ok(interval);
    }
    match settings.block {
        Some(block) if !stated.is_multiple_of(block.tokens()) => {
            Err(ProbeError::RetentionNotAMultiple {
                interval: stated,
                block: block.tokens(),
            })
        }
        _ => Ok(stated),
    }
}

fn control_settings(settings: &ProbeSettings) -> ControlSettings {
    let address = &settings.address;
    let model = settings.model.clone().unwrap_or_default();
    let mut control = ControlSettings::new(&address.chat, &address.metrics, model);
    control.timeout = CONTROL_TIMEOUT.min(settings.timeout);
    control.api_key = settings.api_key.clone();
    control.headers = settings.headers.clone();
    control
}

/// The chat client. Between several ranks a conversation would wander, and its
/// prefix with it, so all requests ask for one rank.
fn chat(
    settings: &ProbeSettings,
    engine: &Engine,
    notes: &mut Vec<String>,
) -> Result<ChatClient, ProbeError> {
    let mut headers = settings.headers.clone();
    let named = |(name, _): &(String, String)| name.eq_ignore_ascii_case(RANK_HEADER);
    if engine.ranks > 1 && !headers.0.iter().any(named) {
        headers.0.push((RANK_HEADER.to_owned(), "0".to_owned()));
        notes.push(format!(
            "the server has {} data-parallel ranks: every request asks for rank 0 \
             ({RANK_HEADER}), since a conversation that wanders between ranks is not reused; \
             --header {RANK_HEADER}=1 chooses another",
            engine.ranks
        ));
    }
    Ok(ChatClient::new(&ChatSettings {
        url: settings.address.chat.clone(),
        model: engine.model.clone(),
        api_key: settings.api_key.clone(),
        headers,
        connect_timeout: CONTROL_TIMEOUT.min(settings.timeout),
    })?)
}

#[expect(clippy::disallowed_methods, reason = "edge: the budget begins here")]
fn begin() -> Instant {
    Instant::now()
}
