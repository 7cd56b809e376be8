//! The nearest reachable total, in exact arithmetic: a rate is the decimal
//! number that its shortest text spells, so 0.3 means three tenths and ties are
//! ties.

use super::Instance;

/// A rate as `numerator / 10^decimals`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Decimal {
    numerator: u128,
    denominator: u128,
}

/// Most decimals that count. A rate below 10⁻¹⁵ asks for less than half a token
/// of the largest data set, and a number has at most 17 digits.
const DECIMALS_MAX: u32 = 32;

impl Decimal {
    /// The exact value of the shortest text of `rate`, which is in 0..=1.
    fn from_rate(rate: f64) -> Self {
        let zero = Self {
            numerator: 0,
            denominator: 1,
        };
        let text = format!("{rate:e}");
        let (mantissa, exponent) = text.split_once('e').expect("`{:e}` writes an exponent");
        let exponent: i32 = exponent.parse().expect("an exponent is a small integer");
        let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
        let fraction_digits = i32::try_from(digits.len()).expect("at most 17 digits") - 1;
        let Ok(decimals) = u32::try_from(fraction_digits - exponent) else {
            return zero;
        };
        if decimals > DECIMALS_MAX {
            return zero;
        }
        Self {
            numerator: digits.parse().expect("at most 17 digits"),
            denominator: 10_u128.pow(decimals),
        }
    }
}

/// The total in `0..=max_blocks` nearest to `target_rate · input tokens`; the
/// smaller one where two are equally near.
pub(super) fn nearest_total(instance: &Instance, max_blocks: u64) -> u64 {
    let rate = Decimal::from_rate(instance.target_rate);
    let wanted = rate.numerator * u128::from(instance.total_input_tokens());
    let block = rate.denominator * u128::from(instance.block_size.tokens());
    let (below, rest) = (wanted / block, wanted % block);
    let nearest = below + u128::from(2 * rest > block);
    u64::try_from(nearest).map_or(max_blocks, |nearest| nearest.min(max_blocks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::solver::{Request, Start};
    use crate::units::BlockSize;

    fn nearest(rate: f64, input_tokens: u64, block: u64, max_blocks: u64) -> u64 {
        let instance = Instance {
            start: Start::Warm,
            block_size: BlockSize::new(block).unwrap(),
            target_rate: rate,
            requests: vec![Request {
                input_tokens,
                capacity_blocks: 0,
                lane: 0,
            }],
        };
        nearest_total(&instance, max_blocks)
    }

    #[test]
    fn the_real_target_decides_not_its_rounding_to_tokens() {
        // 8.4 tokens are nearer to 16 (7.6 away) than to 0 (8.4 away).
        assert_eq!(nearest(0.2, 42, 16, 1), 1);
    }

    #[test]
    fn ties_go_to_the_smaller_total() {
        // 0.3 · 80 = 24 tokens: half way between 1 and 2 blocks of 16. The
        // double nearest to 0.3 lies below it, that of 0.1 above.
        assert_eq!(nearest(0.3, 80, 16, 5), 1);
        assert_eq!(nearest(0.1, 80, 16, 5), 0);
        assert_eq!(nearest(0.100_000_1, 80, 16, 5), 1);
    }

    #[test]
    fn what_is_out_of_reach_is_cut_to_the_maximum() {
        assert_eq!(nearest(1.0, 192, 16, 6), 6);
        assert_eq!(nearest(0.0, 192, 16, 6), 0);
        assert_eq!(nearest(f64::MIN_POSITIVE, 192, 16, 6), 0);
        assert_eq!(nearest(1e-5, 679, 16, 35), 0);
        assert_eq!(
            nearest(0.123_456_789_012_345_67, 1_000_000, 1, 900_000),
            123_457
        );
    }
}
