//! What a hit is worth: the time to the first token against the tokens that had
//! to be computed for it, by least squares, and whether hits saved anything.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rows::Row;
use crate::rng::Seed;
use crate::stats::{
    Interval, Percent, Summary, line_of_sums, slope_sums, summarize, sums_interval,
};

/// Fewer requests than this fit no line worth stating.
const POINTS_MIN: usize = 10;

/// Where computing a whole prompt takes less than this share of TTFT, no hit
/// can shorten it much.
const PROMPT_SHARE_NEGLIGIBLE: f64 = 0.1;

/// TTFT against uncached prompt tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HitWorth {
    /// Requests with a TTFT and known cached tokens.
    pub points: u64,
    /// TTFT of those with cached tokens, ms.
    pub ttft_hit_ms: Summary,
    /// TTFT of those without, ms.
    pub ttft_miss_ms: Summary,
    /// The fit; absent with fewer than 10 points or one token count alone.
    pub fit: Option<WorthFit>,
}

/// The fitted line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorthFit {
    /// Milliseconds for each 1,000 uncached tokens.
    pub ms_per_1000_uncached_tokens: f64,
    /// Its 95 % interval.
    pub interval: Option<Interval>,
    /// TTFT of a prompt served wholly from the cache, ms.
    pub intercept_ms: f64,
    /// Share of the variance of TTFT that uncached tokens explain, 0..=1.
    pub r_squared: f64,
    /// Slope × hits of the executed theory, mean over requests, ms.
    pub theoretical_saving_ms: f64,
    /// Slope × tokens really served, mean over requests, ms.
    pub realized_saving_ms: f64,
    /// The slope's interval lies above 0: hits are seen to shorten the first
    /// token. Otherwise nothing is shown, neither that they do nor that they do
    /// not.
    pub benefit: bool,
    /// Slope × mean prompt tokens / mean TTFT: the share of the time to the
    /// first token that computing a whole prompt takes; its 95 % interval.
    pub prompt_share: Option<Interval>,
}

impl WorthFit {
    /// Whether it is shown that hits can save next to nothing.
    pub(super) fn shows_no_benefit(&self) -> bool {
        self.prompt_share
            .is_some_and(|share| share.high < PROMPT_SHARE_NEGLIGIBLE)
    }
}

/// `order` holds the rows that count, in send order; `executed` is aligned with
/// the rows.
pub(super) fn worth(
    rows: &[Row<'_>],
    executed: &[Option<u64>],
    order: &[usize],
    extra: &[Percent],
    seed: &Seed,
) -> HitWorth {
    let mut points = Vec::new();
    let (mut hit, mut miss) = (Vec::new(), Vec::new());
    let mut sums = Sums::default();
    for &index in order {
        let Some(point) = point(&rows[index]) else {
            continue;
        };
        let kind = if point.cached > 0 {
            &mut hit
        } else {
            &mut miss
        };
        kind.push(point.ttft_ms);
        sums.cached += point.cached as f64;
        sums.executed += executed[index].unwrap_or(0) as f64;
        sums.prompt += (point.cached + point.uncached) as f64;
        sums.ttft_ms += point.ttft_ms;
        points.push(slope_sums(point.uncached as f64, point.ttft_ms));
    }
    HitWorth {
        points: points.len() as u64,
        ttft_hit_ms: summarize(&hit, extra),
        ttft_miss_ms: summarize(&miss, extra),
        fit: fit(&points, &sums, seed),
    }
}

/// Sums over the points: tokens and milliseconds.
#[derive(Default)]
struct Sums {
    cached: f64,
    executed: f64,
    prompt: f64,
    ttft_ms: f64,
}

fn fit(points: &[[f64; 6]], all: &Sums, seed: &Seed) -> Option<WorthFit> {
    if points.len() < POINTS_MIN {
        return None;
    }
    let mut sums = [0.0; 6];
    for point in points {
        for (sum, term) in sums.iter_mut().zip(point) {
            *sum += term;
        }
    }
    let line = line_of_sums(sums)?;
    let slope = |sums| line_of_sums(sums).map(|line| line.slope * 1e3);
    let interval = sums_interval(points, slope, &mut seed.stream("bootstrap/worth"));
    let count = points.len() as f64;
    let share = |slope: f64| slope / 1e3 * all.prompt / all.ttft_ms;
    let prompt_share = interval
        .filter(|_| all.ttft_ms > 0.0)
        .map(|slope| Interval {
            low: share(slope.low),
            high: share(slope.high),
        });
    Some(WorthFit {
        ms_per_1000_uncached_tokens: line.slope * 1e3,
        interval,
        intercept_ms: line.intercept,
        r_squared: line.r_squared,
        theoretical_saving_ms: line.slope * all.executed / count,
        realized_saving_ms: line.slope * all.cached / count,
        benefit: interval.is_some_and(|interval| interval.low > 0.0),
        prompt_share,
    })
}

/// One request of the fit.
pub(super) struct Point {
    pub(super) uncached: u64,
    pub(super) cached: u64,
    pub(super) ttft_ms: f64,
}

pub(super) fn point(row: &Row<'_>) -> Option<Point> {
    let (_, derived) = row.counts()?;
    let cached = derived.cached_tokens?;
    Some(Point {
        uncached: derived.prompt_tokens?.saturating_sub(cached),
        cached,
        ttft_ms: derived.ttft_ms?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::fixture::{planned, rows_of};
    use crate::measure::sample::stream;

    /// TTFT of 20 ms plus `ms` for each 1,000 uncached tokens, and noise.
    fn of(ms: f64, noise_ms: f64) -> HitWorth {
        let mut noise = Seed::from(3).stream("noise");
        let records: Vec<_> = (0..200_u32)
            .map(|index| {
                let cached = u64::from(index % 4) * 256;
                let uncached = (1_024 - cached) as f64;
                let ttft = 20.0 + uncached * ms / 1e3 + noise_ms * noise.unit();
                let mut record = stream(&[ttft, ttft + 10.0], 2);
                record.sequence_index = index;
                let usage = record.usage.as_mut().unwrap();
                usage.prompt_tokens = 1_024;
                usage.cached_tokens = Some(cached);
                record
            })
            .collect();
        let plan: Vec<_> = (0..200).map(|index| planned(index, 1_024, 768)).collect();
        let rows = rows_of(&plan, &records);
        let order: Vec<usize> = (0..200).collect();
        worth(&rows, &[Some(768); 200], &order, &[], &Seed::from(1))
    }

    #[test]
    fn the_price_of_a_thousand_tokens_is_found() {
        let worth = of(50.0, 4.0);
        let fit = worth.fit.unwrap();
        assert!((fit.ms_per_1000_uncached_tokens - 50.0).abs() < 1.0);
        assert!(fit.interval.unwrap().covers(50.0) && fit.benefit);
        assert!((fit.intercept_ms - 22.0).abs() < 1.0);
        // 384 of 768 promised tokens were cached on average.
        assert!((fit.theoretical_saving_ms / fit.realized_saving_ms - 2.0).abs() < 1e-9);
        assert_eq!(
            (worth.ttft_hit_ms.count, worth.ttft_miss_ms.count),
            (150, 50)
        );
    }

    #[test]
    fn noise_shows_neither_a_benefit_nor_that_there_is_none() {
        // A slope that noise hides: the standard error of the slope is
        // 400 / √12 / (286 · √200) = 0.029 ms a token, 29 ms for 1,000.
        for ms in [0.0, 10.0] {
            let fit = of(ms, 400.0).fit.unwrap();
            assert!(!fit.benefit && fit.r_squared < 0.05, "{fit:?}");
            assert!(!fit.shows_no_benefit(), "{fit:?}");
        }
    }

    #[test]
    fn a_first_token_that_does_not_wait_for_the_prompt_shows_no_benefit() {
        // The same time for every prompt, and one with 10 ms of noise on it:
        // 1.96 · 0.7 ms for 1,000 tokens of 25 ms.
        for noise in [0.0, 10.0] {
            let fit = of(0.0, noise).fit.unwrap();
            assert!(!fit.benefit && fit.shows_no_benefit(), "{fit:?}");
        }
        // 51.2 ms for a whole prompt, where the average is 20 + 32.
        let fit = of(50.0, 0.0).fit.unwrap();
        assert!(fit.benefit && !fit.shows_no_benefit());
        assert!((fit.prompt_share.unwrap().low - 51.2 / 52.0).abs() < 1e-6);
    }

    #[test]
    fn nothing_is_fitted_through_a_handful_of_points() {
        assert_eq!(
            worth(&[], &[], &[], &[], &Seed::from(1)),
            HitWorth::default()
        );
    }
}
