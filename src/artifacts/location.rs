//! Where a set lives: `<output_dir>_<stamp>/result` and `log`, and the names of
//! its files. Names only; directories are made by the store.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use jiff::ToSpan as _;
use jiff::civil::DateTime;

/// Local time of a command, `YYYYMMDD_HHMMSS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(DateTime);

impl Stamp {
    /// The stamp of a local time; fractions of a second are dropped.
    pub fn new(local: DateTime) -> Self {
        let whole = local.with().subsec_nanosecond(0).build();
        Self(whole.expect("a time without a fraction is a time"))
    }

    /// The next second.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1.second()))
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.strftime("%Y%m%d_%H%M%S").fmt(f)
    }
}

/// Text that is no stamp.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not of the form YYYYMMDD_HHMMSS")]
pub struct NotAStamp(pub String);

impl FromStr for Stamp {
    type Err = NotAStamp;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || NotAStamp(text.to_owned());
        let digits = text.bytes().enumerate().all(|(place, byte)| match place {
            8 => byte == b'_',
            _ => byte.is_ascii_digit(),
        });
        if text.len() != 15 || !digits {
            return Err(wrong());
        }
        let stamp = DateTime::strptime("%Y%m%d_%H%M%S", text).map(Self);
        stamp
            .ok()
            .filter(|stamp| stamp.to_string() == text)
            .ok_or_else(wrong)
    }
}

/// The directory and the names of one set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetLocation {
    directory: PathBuf,
    run_id: String,
    stamp: Stamp,
}

impl SetLocation {
    /// The set of `run_id` made at `stamp`, beside `output_dir`.
    pub fn new(output_dir: &Path, run_id: &str, stamp: Stamp) -> Self {
        let mut directory = output_dir.as_os_str().to_owned();
        directory.push(format!("_{stamp}"));
        Self {
            directory: directory.into(),
            run_id: format!("{run_id}_{stamp}"),
            stamp,
        }
    }

    /// The set's own directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The stamped run id.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// When it was made.
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Directory of the artifacts.
    pub fn result_dir(&self) -> PathBuf {
        self.directory.join("result")
    }

    /// Directory of the logs.
    pub fn log_dir(&self) -> PathBuf {
        self.directory.join("log")
    }

    /// `full.jsonl`.
    pub fn full(&self) -> PathBuf {
        self.artifact("full.jsonl")
    }

    /// `requests.jsonl`.
    pub fn requests(&self) -> PathBuf {
        self.artifact("requests.jsonl")
    }

    /// `analysis.json`.
    pub fn analysis(&self) -> PathBuf {
        self.artifact("analysis.json")
    }

    /// `manifest.json`.
    pub fn manifest(&self) -> PathBuf {
        self.artifact("manifest.json")
    }

    /// Log file of `command`.
    pub fn log(&self, command: &str) -> PathBuf {
        log_path(&self.log_dir(), &self.run_id, command)
    }

    fn artifact(&self, ending: &str) -> PathBuf {
        self.result_dir().join(format!("{}.{ending}", self.run_id))
    }
}

/// `<log_dir>/<run_id>.<command>.log`.
pub(crate) fn log_path(log_dir: &Path, run_id: &str, command: &str) -> PathBuf {
    log_dir.join(format!("{run_id}.{command}.log"))
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    #[test]
    fn names_carry_the_stamp() {
        let stamp = Stamp::new(date(2026, 8, 25).at(12, 34, 56, 789));
        let set = SetLocation::new(Path::new("/o/out"), "name", stamp);
        assert_eq!(
            set.full(),
            Path::new("/o/out_20260825_123456/result/name_20260825_123456.full.jsonl")
        );
        assert_eq!(
            set.log("prepare"),
            Path::new("/o/out_20260825_123456/log/name_20260825_123456.prepare.log")
        );
    }

    #[test]
    fn the_second_after_a_year_is_the_next_year() {
        let stamp: Stamp = "20261231_235959".parse().unwrap();
        assert_eq!(stamp.next().to_string(), "20270101_000000");
    }

    #[test]
    fn only_real_times_are_stamps() {
        for wrong in [
            "20261301_000000",
            "20260101_000060",
            "20260825-123456",
            "20260825_12345",
            "20260825_1234567",
            "",
            "+0260825_123456",
        ] {
            assert!(wrong.parse::<Stamp>().is_err(), "{wrong}");
        }
    }
}
