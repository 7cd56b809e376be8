//! What the program said, as tests ask for it.

use std::collections::BTreeSet;
use std::process::Output;

use serde_json::Value;

/// Findings about this machine and this size of run, not about the server.
const OF_THE_MACHINE: &[&str] = &[
    "CLIENT_LATE",
    "COALESCED_EVENTS",
    "FEW_SAMPLES",
    "HIT_WITHOUT_BENEFIT",
    "POLL_FAILURES",
    "SATURATED_BY_CAP",
];

/// One line of the account: `(input, hit)` tokens.
pub(crate) type Line = (u64, u64);

/// How a run ended.
pub(crate) struct Judged {
    /// Exit status.
    pub(crate) status: i32,
    /// Everything on stdout.
    pub(crate) stdout: String,
    /// Everything on stderr.
    pub(crate) stderr: String,
    /// `analysis.json`; null where the run ended before.
    pub(crate) document: Value,
}

impl Judged {
    pub(crate) fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let stdout = text(&output.stdout);
        Self {
            status: output.status.code().unwrap_or(-1),
            document: serde_json::from_str(&stdout).unwrap_or_default(),
            stdout,
            stderr: text(&output.stderr),
        }
    }

    /// Codes of the findings, without those of the machine.
    pub(crate) fn findings(&self) -> Vec<&str> {
        let all = self.judgment()["findings"].as_array();
        let codes: BTreeSet<&str> = all
            .unwrap_or_else(|| panic!("no judgment: {}", self.stderr))
            .iter()
            .filter_map(|finding| finding["code"].as_str())
            .filter(|code| !OF_THE_MACHINE.contains(code))
            .collect();
        codes.into_iter().collect()
    }

    /// Codes in the list of warnings that the reference tool knows.
    pub(crate) fn warnings(&self) -> Vec<&str> {
        let all = self.document["warnings"].as_array().into_iter().flatten();
        let codes: BTreeSet<&str> = all.filter_map(|one| one["code"].as_str()).collect();
        codes.into_iter().collect()
    }

    /// The finding with this code.
    pub(crate) fn finding(&self, code: &str) -> &Value {
        let mut all = self.judgment()["findings"].as_array().unwrap().iter();
        all.find(|finding| finding["code"] == code)
            .unwrap_or_else(|| panic!("no {code} in {:?}", self.findings()))
    }

    /// The judgment.
    pub(crate) fn judgment(&self) -> &Value {
        &self.document["pcload"]
    }

    /// A line of the whole account: `planned`, `planned_server`, `executed`,
    /// `usage` or `counters`.
    pub(crate) fn line(&self, name: &str) -> Option<Line> {
        line(&self.judgment()["hits"]["overall"][name])
    }

    /// Lost tokens by cause.
    pub(crate) fn causes(&self) -> Vec<(String, i64)> {
        let all = self.judgment()["attribution"]["causes"].as_array().unwrap();
        all.iter()
            .map(|one| {
                let cause = one["cause"].as_str().unwrap().to_owned();
                (cause, one["lost_tokens"].as_i64().unwrap())
            })
            .collect()
    }

    /// Expected − cached tokens.
    pub(crate) fn gap(&self) -> i64 {
        self.judgment()["attribution"]["gap_tokens"]
            .as_i64()
            .unwrap()
    }

    /// Asserts that the run went through, that executed theory, usage and
    /// counters are one, for the whole and for each rank, and that nothing is
    /// left to say.
    pub(crate) fn assert_exact(&self) -> Line {
        assert_eq!(self.status, 0, "{}", self.stderr);
        assert_eq!(self.findings(), [""; 0], "{}", self.stdout);
        assert_eq!(self.warnings(), [""; 0]);
        self.assert_agrees()
    }

    /// Asserts that executed theory, usage and counters are one.
    pub(crate) fn assert_agrees(&self) -> Line {
        let executed = self.line("executed").unwrap();
        assert_eq!(self.line("usage"), Some(executed));
        assert_eq!(self.line("counters"), Some(executed));
        for rank in self.judgment()["hits"]["ranks"].as_array().unwrap() {
            let counted = line(&rank["counters"]);
            for column in ["executed", "usage"] {
                // A run that leaves routing to the server has no such column.
                if let Some(told) = line(&rank[column]) {
                    assert_eq!(Some(told), counted, "{column} of {rank}");
                }
            }
        }
        assert_eq!((self.gap(), self.causes()), (0, Vec::new()));
        executed
    }

    /// Asserts that the run was stopped by this error before it measured.
    pub(crate) fn assert_stopped_by(&self, code: &str) {
        assert_eq!(self.status, 3, "{}", self.stderr);
        assert_eq!(self.stdout, "");
        let errors: Vec<&str> = self
            .stderr
            .lines()
            .filter(|line| line.starts_with("ERROR: "))
            .collect();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(
            errors[0].starts_with(&format!("ERROR: {code}: ")),
            "{errors:?}"
        );
    }
}

fn line(value: &Value) -> Option<Line> {
    Some((
        value["input_tokens"].as_u64()?,
        value["hit_tokens"].as_u64()?,
    ))
}
