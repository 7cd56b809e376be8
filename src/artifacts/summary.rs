//! `input_length_summary` and `output_length_summary`: the distribution of
//! token counts as the manifest states it.

use serde_json::{Value, json};

/// Most bins a summary has.
const BINS_MAX: u64 = 10;

/// The summary of `lengths`, in tokens; null figures for no lengths.
///
/// Percentiles interpolate linearly at `(n − 1)·p`. Bins are equally wide from
/// the minimum; each states the smallest and largest length inside it, and
/// empty ones are left out.
pub fn length_summary(lengths: &[u64]) -> Value {
    let mut sorted = lengths.to_vec();
    sorted.sort_unstable();
    let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else {
        return json!({
            "min": null, "max": null, "mean": null,
            "p50": null, "p90": null, "p95": null, "p99": null, "bins": [],
        });
    };
    let mean = sorted.iter().sum::<u64>() as f64 / sorted.len() as f64;
    json!({
        "min": min,
        "max": max,
        "mean": mean,
        "p50": percentile(&sorted, 0.5),
        "p90": percentile(&sorted, 0.9),
        "p95": percentile(&sorted, 0.95),
        "p99": percentile(&sorted, 0.99),
        "bins": bins(&sorted, min, max),
    })
}

/// [`length_summary`] with the sum of all lengths, as `inspect` prints it.
pub(crate) fn length_summary_with_total(lengths: &[u64]) -> Value {
    let mut summary = length_summary(lengths);
    summary["total"] = lengths.iter().sum::<u64>().into();
    summary
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a place in a list is not negative and fits"
)]
fn percentile(sorted: &[u64], share: f64) -> f64 {
    let place = (sorted.len() - 1) as f64 * share;
    let below = place.floor() as usize;
    let above = place.ceil() as usize;
    if below == above {
        return sorted[below] as f64;
    }
    let fraction = place - below as f64;
    sorted[below] as f64 * (1.0 - fraction) + sorted[above] as f64 * fraction
}

fn bins(sorted: &[u64], min: u64, max: u64) -> Vec<Value> {
    let width = (max - min + 1).div_ceil(BINS_MAX).max(1);
    sorted
        .chunk_by(|left, right| (left - min) / width == (right - min) / width)
        .map(|bin| {
            json!({
                "min": bin.first(),
                "max": bin.last(),
                "count": bin.len(),
            })
        })
        .collect()
}
