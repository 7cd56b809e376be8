//! Load profiles: the TOML of `profiles/`, as strictly checked as a scenario.
//! It reads no files itself and does not know how many requests there are.

use std::io;
use std::path::Path;
use std::time::Duration;

use toml::{Table, Value};

use super::profile_fields::Fields;
pub use super::profile_fields::{ProfileError, ProfileProblem};
use super::trace::parse_trace;

/// Stable code of everything that is wrong with a profile.
pub const PROFILE_INVALID: &str = "PROFILE_INVALID";

/// Most stages of one profile.
pub(super) const STAGES_MAX: usize = 1_000;

/// A load profile, every rule checked that needs no data set.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadProfile {
    /// At least one, in order.
    pub stages: Vec<Stage>,
    /// Leading requests kept out of the statistics.
    pub warmup_requests: usize,
    /// Trailing requests kept out of the statistics.
    pub cooldown_requests: usize,
    /// Whether the profile may end before the data set does.
    pub partial: bool,
}

/// One stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// How requests are released.
    pub load: StageLoad,
    /// How it ends.
    pub end: StageEnd,
}

/// How a stage releases requests.
#[derive(Clone, Debug, PartialEq)]
pub enum StageLoad {
    /// By completions.
    Closed {
        /// Requests in flight, at least 1.
        concurrency: u32,
        /// Time in which the concurrency moves here from the stage before.
        ramp: Duration,
    },
    /// By the clock.
    Open {
        /// Requests per second; greater than 0, infinite for all at once.
        rate: f64,
        /// Law of the gaps.
        arrival: Arrival,
        /// Most requests in flight.
        max_in_flight: Option<u32>,
    },
    /// By recorded times.
    Trace {
        /// Offsets from the start of the stage, ascending.
        times: Vec<Duration>,
        /// Most requests in flight.
        max_in_flight: Option<u32>,
    },
}

/// Law of the gaps between arrivals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrival {
    /// Equal gaps.
    Constant,
    /// A Poisson process.
    Poisson,
    /// Gamma gaps of this shape: below 1 burstier than Poisson.
    Gamma {
        /// Greater than 0.
        burstiness: f64,
    },
}

/// How a stage ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StageEnd {
    /// After so many requests, at least 1.
    Requests(usize),
    /// After this share of the data set, in percent.
    Percent(f64),
    /// After so long.
    Duration(Duration),
    /// With the data set; only the last stage.
    Rest,
}

/// Reads the file a profile names, relative to the profile's own folder.
pub type FileReader<'a> = dyn Fn(&Path) -> io::Result<Vec<u8>> + 'a;

impl LoadProfile {
    /// A closed loop over the whole data set.
    pub fn closed(concurrency: u32) -> Self {
        Self::one_stage(StageLoad::Closed {
            concurrency,
            ramp: Duration::ZERO,
        })
    }

    /// A constant rate, in requests per second, over the whole data set.
    pub fn constant_rate(rate: f64) -> Self {
        Self::one_stage(StageLoad::Open {
            rate,
            arrival: Arrival::Constant,
            max_in_flight: None,
        })
    }

    fn one_stage(load: StageLoad) -> Self {
        let end = StageEnd::Rest;
        Self {
            stages: vec![Stage { load, end }],
            warmup_requests: 0,
            cooldown_requests: 0,
            partial: false,
        }
    }

    /// Reads a profile. Files it names are read through `read`.
    pub fn parse(text: &str, read: &FileReader<'_>) -> Result<Self, ProfileError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let table: Table =
            toml::from_str(text).map_err(|error| ProfileError::syntax(text, &error))?;
        let mut problems = Vec::new();
        let mut fields = Fields::new(&table, String::new(), &mut problems);
        fields.only(
            &["stages", "warmup_requests", "cooldown_requests", "partial"],
            &[],
        );
        let warmup_requests = fields.count("warmup_requests", 0).unwrap_or(0);
        let cooldown_requests = fields.count("cooldown_requests", 0).unwrap_or(0);
        let partial = fields.boolean("partial").unwrap_or(false);
        let tables = stage_tables(&mut fields);
        let mut stages = Vec::new();
        for (index, table) in tables.iter().enumerate() {
            let path = format!("stages[{index}]");
            let fields = Fields::new(table, path, &mut problems);
            stages.extend(parse_stage(fields, index + 1 == tables.len(), read));
        }
        if problems.is_empty() {
            Ok(Self {
                stages,
                warmup_requests,
                cooldown_requests,
                partial,
            })
        } else {
            Err(ProfileError::Problems(problems))
        }
    }
}

fn stage_tables<'a>(fields: &mut Fields<'a, '_>) -> Vec<&'a Table> {
    let Some(stages) = fields.get("stages") else {
        fields.problem(
            "stages",
            "is missing; at least one `[[stages]]` is needed",
            None,
        );
        return Vec::new();
    };
    let tables: Option<Vec<&Table>> = match stages {
        Value::Array(items) => items.iter().map(Value::as_table).collect(),
        _ => None,
    };
    match tables {
        Some(tables) if (1..=STAGES_MAX).contains(&tables.len()) => tables,
        _ => {
            let message = format!("must be 1 to {STAGES_MAX} `[[stages]]` tables");
            fields.problem("stages", &message, None);
            Vec::new()
        }
    }
}

const ENDS: [&str; 2] = ["requests", "duration"];
const CLOSED: [&str; 2] = ["concurrency", "ramp"];
const OPEN: [&str; 4] = ["rate", "arrival", "burstiness", "max_in_flight"];
const TRACE: [&str; 2] = ["times", "max_in_flight"];

fn parse_stage(mut fields: Fields<'_, '_>, last: bool, read: &FileReader<'_>) -> Option<Stage> {
    let end = parse_end(&mut fields, last);
    let mode = fields.choice("mode", &["closed", "open", "trace"])?;
    let own: &[&str] = match mode {
        "closed" => &CLOSED,
        "open" => &OPEN,
        _ => &TRACE,
    };
    let allowed: Vec<&str> = ["mode"].iter().chain(&ENDS).chain(own).copied().collect();
    let others: Vec<(&str, &str)> = [("closed", &CLOSED[..]), ("open", &OPEN), ("trace", &TRACE)]
        .iter()
        .flat_map(|(mode, keys)| keys.iter().map(move |key| (*key, *mode)))
        .collect();
    fields.only(&allowed, &others);
    let load = match mode {
        "closed" => parse_closed(&mut fields),
        "open" => parse_open(&mut fields),
        _ => parse_times(&mut fields, read),
    }?;
    Some(Stage { load, end: end? })
}

fn parse_closed(fields: &mut Fields<'_, '_>) -> Option<StageLoad> {
    let concurrency = fields.required_count("concurrency")?;
    let concurrency = fields.fits_u32("concurrency", concurrency)?;
    let ramp = fields.duration("ramp");
    Some(StageLoad::Closed {
        concurrency,
        ramp: ramp.unwrap_or(Duration::ZERO),
    })
}

fn parse_open(fields: &mut Fields<'_, '_>) -> Option<StageLoad> {
    let rate = fields.required_number(
        "rate",
        |rate| rate > 0.0,
        "a number greater than 0 (requests per second)",
    );
    let arrival = match fields.get("arrival") {
        Some(_) => fields.choice("arrival", &["constant", "poisson", "gamma"]),
        None => Some("constant"),
    };
    let burstiness = if arrival == Some("gamma") {
        fields.required_number(
            "burstiness",
            |shape| shape > 0.0 && shape.is_finite(),
            "a finite number greater than 0",
        )
    } else {
        if fields.get("burstiness").is_some() {
            fields.problem("burstiness", "belongs to `arrival = \"gamma\"`", None);
        }
        None
    };
    let arrival = match (arrival?, burstiness) {
        ("gamma", burstiness) => Arrival::Gamma {
            burstiness: burstiness?,
        },
        ("poisson", _) => Arrival::Poisson,
        _ => Arrival::Constant,
    };
    Some(StageLoad::Open {
        rate: rate?,
        arrival,
        max_in_flight: max_in_flight(fields),
    })
}

fn parse_times(fields: &mut Fields<'_, '_>, read: &FileReader<'_>) -> Option<StageLoad> {
    let max_in_flight = max_in_flight(fields);
    let path = fields.required_text("times")?;
    let bytes = match read(Path::new(path)) {
        Ok(bytes) => bytes,
        Err(error) => {
            fields.problem("times", &format!("cannot read `{path}`: {error}"), None);
            return None;
        }
    };
    match parse_trace(Path::new(path), &bytes) {
        Ok(times) => Some(StageLoad::Trace {
            times,
            max_in_flight,
        }),
        Err(error) => {
            fields.problem("times", &format!("`{path}`: {error}"), None);
            None
        }
    }
}

fn max_in_flight(fields: &mut Fields<'_, '_>) -> Option<u32> {
    fields.get("max_in_flight")?;
    let limit = fields.required_count("max_in_flight")?;
    fields.fits_u32("max_in_flight", limit)
}

fn parse_end(fields: &mut Fields<'_, '_>, last: bool) -> Option<StageEnd> {
    match (fields.get("requests"), fields.get("duration")) {
        (Some(_), Some(_)) => {
            fields.problem(
                "requests",
                "a stage ends by `requests` or by `duration`, not both",
                None,
            );
            None
        }
        (Some(Value::String(text)), None) => {
            let percent = text
                .strip_suffix('%')
                .and_then(|text| text.trim().parse().ok());
            let percent =
                percent.filter(|percent| (0.0..=100.0).contains(percent) && *percent > 0.0);
            if percent.is_none() {
                let message = format!("is `{text}`; a count or a share such as \"25%\" is needed");
                fields.problem("requests", &message, None);
            }
            percent.map(StageEnd::Percent)
        }
        (Some(_), None) => fields.required_count("requests").map(StageEnd::Requests),
        (None, Some(_)) => {
            let duration = fields.duration("duration")?;
            if duration.is_zero() {
                fields.problem("duration", "must be greater than 0", None);
                return None;
            }
            Some(StageEnd::Duration(duration))
        }
        (None, None) if last => Some(StageEnd::Rest),
        (None, None) => {
            fields.problem(
                "requests",
                "is missing; only the last stage may take the rest",
                Some("add `requests` or `duration`"),
            );
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_files(_: &Path) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn problems(text: &str) -> Vec<String> {
        match LoadProfile::parse(text, &no_files) {
            Err(ProfileError::Problems(problems)) => {
                problems.iter().map(ToString::to_string).collect()
            }
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn a_profile_is_read_with_its_defaults() {
        let text = r#"
            warmup_requests = 3
            [[stages]]
            mode = "closed"
            concurrency = 2
            ramp = "10s"
            requests = 10
            [[stages]]
            mode = "open"
            rate = 2.5
            arrival = "gamma"
            burstiness = 0.5
            max_in_flight = 7
            duration = 90
            [[stages]]
            mode = "trace"
            times = "t.csv"
        "#;
        let read = |path: &Path| {
            assert_eq!(path, Path::new("t.csv"));
            Ok(b"seconds\n0\n1\n".to_vec())
        };
        let profile = LoadProfile::parse(text, &read).unwrap();
        let ends: Vec<StageEnd> = profile.stages.iter().map(|stage| stage.end).collect();
        let seconds = Duration::from_secs;
        assert_eq!(
            ends,
            [
                StageEnd::Requests(10),
                StageEnd::Duration(seconds(90)),
                StageEnd::Rest
            ]
        );
        assert_eq!(
            profile.stages[1].load,
            StageLoad::Open {
                rate: 2.5,
                arrival: Arrival::Gamma { burstiness: 0.5 },
                max_in_flight: Some(7)
            }
        );
        assert_eq!(
            profile.stages[2].load,
            StageLoad::Trace {
                times: vec![seconds(0), seconds(1)],
                max_in_flight: None
            }
        );
        assert_eq!((profile.warmup_requests, profile.partial), (3, false));
    }

    #[test]
    fn all_problems_are_named_at_once() {
        let text = r#"
            warmup_request = 1
            partial = "yes"
            [[stages]]
            mode = "closed"
            concurrency = 0
            rate = 1
            [[stages]]
            mode = "opne"
            [[stages]]
            mode = "open"
            rate = -1
            burstiness = 2
            requests = "200%"
            duration = "5"
        "#;
        assert_eq!(
            problems(text),
            [
                "warmup_request: is not a known key (hint: did you mean `warmup_requests`?)",
                "partial: is `\"yes\"`; true or false is needed",
                "stages[0].requests: is missing; only the last stage may take the rest (hint: add `requests` or `duration`)",
                "stages[0].rate: belongs to `mode = \"open\"`",
                "stages[0].concurrency: is `0`; a whole number of at least 1 is needed",
                "stages[1].requests: is missing; only the last stage may take the rest (hint: add `requests` or `duration`)",
                "stages[1].mode: is \"opne\"; one of closed, open, trace is needed (hint: did you mean `open`?)",
                "stages[2].requests: a stage ends by `requests` or by `duration`, not both",
                "stages[2].rate: is `-1`; a number greater than 0 (requests per second) is needed",
                "stages[2].burstiness: belongs to `arrival = \"gamma\"`",
            ]
        );
        assert_eq!(
            problems("")[0],
            "stages: is missing; at least one `[[stages]]` is needed"
        );
        assert_eq!(problems("stages = []").len(), 1);
        let Err(ProfileError::Syntax(words)) = LoadProfile::parse("a = 1\na = 2", &no_files) else {
            panic!("a key twice");
        };
        assert!(
            words.ends_with("(line 2:1)") && !words.contains('\n'),
            "{words}"
        );
    }
}
