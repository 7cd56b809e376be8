//! `pcload schema` and `pcload completions`: descriptions of the program itself.

use clap::CommandFactory as _;
use schemars::{JsonSchema, schema_for};
use serde_json::{Value, json};

use super::args::{Cli, SchemaArgs, SchemaKind};
use super::exit::{Exit, Failure};
use super::{doctor, output, probe};
use crate::analyze::Analysis;
use crate::analyze::compare::RunComparison;
use crate::analyze::parity::Parity;
use crate::artifacts::{self, FullRow, RequestRow};
use crate::drive::aisbench::Exported;
use crate::measure::{Calibration, RequestRecord};
use crate::probe::{Comparison, ProbeRecord};
use crate::scenario;
use crate::service::KvSample;
use crate::sim;

/// Prints a JSON Schema.
pub(super) fn run(args: &SchemaArgs) -> Result<Exit, Failure> {
    output::print(&format!("{:#}\n", schema(args.kind)))?;
    Ok(Exit::Done)
}

/// Of what has a type the schema is the type's own; documents that are put
/// together field by field have a file beside this one.
fn schema(kind: SchemaKind) -> Value {
    match kind {
        SchemaKind::Scenario => scenario::schema(),
        SchemaKind::Profile => scenario::profile_schema(),
        SchemaKind::Manifest => written(include_str!("manifest.json")),
        SchemaKind::Row => typed::<FullRow>("pcload row", "A line of `full.jsonl`."),
        SchemaKind::Request => {
            typed::<RequestRow<'_>>("pcload request", "A line of `requests.jsonl`.")
        }
        SchemaKind::Analysis => artifacts::analysis_schema(schema_for!(Analysis).into()),
        SchemaKind::Record => schema_for!(RequestRecord).into(),
        SchemaKind::Kv => typed::<KvSample>("pcload KV sample", "A line of `kv.jsonl`."),
        SchemaKind::Inspect => written(include_str!("inspect.json")),
        SchemaKind::Prepare => written(include_str!("prepare.json")),
        SchemaKind::Validate => written(include_str!("validate.json")),
        SchemaKind::Doctor => typed::<doctor::Document>("pcload doctor", "What it prints."),
        SchemaKind::Report => written(include_str!("report.json")),
        SchemaKind::Demo => written(include_str!("demo.json")),
        SchemaKind::BothDrivers => written(include_str!("both-drivers.json")),
        SchemaKind::Comparison => comparison(),
        SchemaKind::Parity => with_html(typed::<Parity>(
            "pcload parity",
            "What `pcload compare` prints of a native and an AISBench run.",
        )),
        SchemaKind::Calibration => {
            typed::<Calibration>("pcload calibration", "What `pcload calibrate` prints.")
        }
        SchemaKind::Probe => typed::<ProbeRecord>("pcload probe", "The record of a probe."),
        SchemaKind::ProbeSummary => {
            typed::<probe::Summary<'_>>("pcload probe summary", "What `pcload probe` prints.")
        }
        SchemaKind::ProbeComparison => with_html(typed::<Comparison>(
            "pcload probe comparison",
            "What `pcload compare` prints of two records of a probe.",
        )),
        SchemaKind::AisbenchExport => typed::<Exported>(
            "pcload export aisbench",
            "What `pcload export aisbench` prints.",
        ),
        SchemaKind::Sim => written(include_str!("sim.json")),
        SchemaKind::Truth => sim::truth_schema(),
        SchemaKind::Log => written(include_str!("log.json")),
    }
}

fn written(text: &str) -> Value {
    serde_json::from_str(text).expect("the files beside this one are JSON")
}

fn typed<T: JsonSchema>(title: &str, description: &str) -> Value {
    let mut schema: Value = schema_for!(T).into();
    schema["title"] = title.into();
    schema["description"] = description.into();
    schema
}

fn comparison() -> Value {
    let mut schema = typed::<RunComparison>(
        "pcload comparison",
        "What `pcload compare` and `pcload run --ab` print of two runs.",
    );
    schema["properties"]["sentences"] = json!({
        "type": "array", "items": {"type": "string"},
        "description": "What is found, for people.",
    });
    with_html(schema)
}

fn with_html(mut schema: Value) -> Value {
    schema["properties"]["html"] = json!({
        "type": "string", "description": "Path of the page, where one was asked for.",
    });
    schema
}

/// Prints completions for a shell.
pub(super) fn completions(shell: clap_complete::Shell) -> Result<Exit, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "pcload", &mut text);
    output::print(&String::from_utf8_lossy(&text))?;
    Ok(Exit::Done)
}
