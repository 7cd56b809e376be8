//! Engine labels to ranks: the scenario's map first, then the digits at the end
//! of the label, and no label at all only where there is one rank.

use std::collections::BTreeMap;

use crate::engine::ReadOptions;
use crate::engine::error::MetricsError;
use crate::engine::exposition::Sample;
use crate::units::DpRank;

/// The ranks of the labels on one page, checked against `dp_size`.
pub(crate) struct RankMap<'o> {
    label: &'static str,
    ranks: BTreeMap<String, DpRank>,
    options: &'o ReadOptions,
}

impl<'o> RankMap<'o> {
    /// Reads every engine label of `series`: no two labels may be one rank,
    /// and none may lie outside `0..dp_size`.
    pub(crate) fn new(
        label: &'static str,
        series: &[Sample<'_>],
        options: &'o ReadOptions,
    ) -> Result<Self, MetricsError> {
        let mut numbers: BTreeMap<String, u64> = BTreeMap::new();
        for value in series.iter().filter_map(|sample| present(sample, label)) {
            if !numbers.contains_key(value) {
                numbers.insert(value.to_owned(), number(value, options)?);
            }
        }
        let ranks = in_range(&numbers, options)?;
        Ok(Self {
            label,
            ranks,
            options,
        })
    }

    /// Distinct engine labels on the page.
    pub(crate) fn engines_seen(&self) -> usize {
        self.ranks.len()
    }

    /// The rank of one sample.
    pub(crate) fn rank(&self, sample: &Sample<'_>) -> Result<DpRank, MetricsError> {
        let known = present(sample, self.label).and_then(|label| self.ranks.get(label));
        match known {
            Some(rank) => Ok(*rank),
            None if self.options.dp_size == 1 => Ok(DpRank(0)),
            None => Err(MetricsError::LabelMissing {
                series: sample.name.to_string(),
                line: sample.line,
                configured: self.options.dp_size,
            }),
        }
    }
}

/// A label with an empty value is a label that is not there (Prometheus' data
/// model).
fn present<'a>(sample: &'a Sample<'_>, label: &str) -> Option<&'a str> {
    sample.label(label).filter(|value| !value.is_empty())
}

fn number(label: &str, options: &ReadOptions) -> Result<u64, MetricsError> {
    if let Some(rank) = options.engine_label_map.get(label) {
        return Ok(u64::from(rank.0));
    }
    let digits = label.len() - label.trim_end_matches(|l: char| l.is_ascii_digit()).len();
    label[label.len() - digits..]
        .parse()
        .map_err(|_| MetricsError::LabelUnknown {
            label: label.to_owned(),
        })
}

fn in_range(
    numbers: &BTreeMap<String, u64>,
    options: &ReadOptions,
) -> Result<BTreeMap<String, DpRank>, MetricsError> {
    let configured = options.dp_size;
    let mut ranks = BTreeMap::new();
    let mut taken: BTreeMap<DpRank, &String> = BTreeMap::new();
    for (label, number) in numbers {
        let rank = u32::try_from(*number)
            .ok()
            .filter(|rank| *rank < configured);
        let Some(rank) = rank.map(DpRank) else {
            return Err(out_of_range(label, *number, numbers, configured));
        };
        if let Some(first) = taken.insert(rank, label) {
            return Err(MetricsError::LabelsCollide {
                first: first.clone(),
                second: label.clone(),
                rank,
            });
        }
        ranks.insert(label.clone(), rank);
    }
    Ok(ranks)
}

/// More engines than ranks is a wrong `dp_size`; as many, a label that does not
/// mean what its digits say.
fn out_of_range(
    label: &str,
    rank: u64,
    numbers: &BTreeMap<String, u64>,
    configured: u32,
) -> MetricsError {
    if numbers.len() > usize::try_from(configured).unwrap_or(usize::MAX) {
        let labels: Vec<String> = numbers.keys().map(|label| format!("`{label}`")).collect();
        return MetricsError::DpSizeMismatch {
            seen: numbers.len(),
            labels: labels.join(", "),
            configured,
        };
    }
    MetricsError::RankOutOfRange {
        label: label.to_owned(),
        rank,
        configured,
    }
}
