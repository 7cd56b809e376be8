//! One seed, many independent streams: each consumer of randomness asks for its
//! own labelled ChaCha stream, so adding one shifts no other.
//!
//! A stream's key is SHA-256 over the seed's decimal text, a newline and the
//! label. `ChaCha12` from that key; portable, the same on every machine.

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use sha2::{Digest as _, Sha256};

/// The root of all randomness of one scenario: the decimal text of
/// `run.random_seed`, which may be an integer of any size or sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seed(String);

impl Seed {
    /// A seed from the decimal text of an integer.
    pub fn from_decimal(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The stream of `label`, e.g. `lengths/input` or `seed/request-00000003`.
    pub fn stream(&self, label: &str) -> Stream {
        let mut digest = Sha256::new();
        digest.update(self.0.as_bytes());
        digest.update(b"\n");
        digest.update(label.as_bytes());
        Stream(ChaCha12Rng::from_seed(digest.finalize().into()))
    }
}

impl From<u64> for Seed {
    fn from(value: u64) -> Self {
        Self(value.to_string())
    }
}

/// A deterministic stream of random numbers.
#[derive(Clone, Debug)]
pub struct Stream(ChaCha12Rng);

impl Stream {
    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A uniform number in `0..bound`, without modulo bias (Lemire's rejection
    /// on the 128-bit product). `bound` must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a range must hold at least one number");
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let product = u128::from(self.next_u64()) * u128::from(bound);
            #[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
            let low = product as u64;
            if low >= threshold {
                return u64::try_from(product >> 64).expect("the high half fits 64 bits");
            }
        }
    }

    /// A uniform number in `min..=max`.
    pub fn between(&mut self, min: u64, max: u64) -> u64 {
        assert!(min <= max, "an empty range: {min}..={max}");
        match (max - min).checked_add(1) {
            Some(width) => min + self.below(width),
            None => self.next_u64(),
        }
    }

    /// A uniform number in `[0, 1)` with 53 random bits.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A standard normal number (Box and Muller 1958; one of the pair is used,
    /// so that each draw takes the same number of bits; `libm`, because the
    /// system's functions round differently from machine to machine).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * libm::log(1.0 - self.unit())).sqrt();
        radius * libm::cos(std::f64::consts::TAU * self.unit())
    }

    /// Puts `items` into a uniformly random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u64 + 1);
            items.swap(last, usize::try_from(other).expect("below a usize"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_with_different_labels_or_seeds_differ() {
        let seed = Seed::from(42);
        let first = |stream: &mut Stream| [stream.next_u64(), stream.next_u64()];
        assert_eq!(first(&mut seed.stream("a")), first(&mut seed.stream("a")));
        assert_ne!(first(&mut seed.stream("a")), first(&mut seed.stream("b")));
        assert_ne!(
            first(&mut Seed::from(43).stream("a")),
            first(&mut seed.stream("a"))
        );
    }

    #[test]
    fn ranges_are_covered_and_kept() {
        let mut stream = Seed::from(1).stream("range");
        let mut seen = [0_u32; 3];
        for _ in 0..3_000 {
            seen[usize::try_from(stream.between(5, 7)).unwrap() - 5] += 1;
        }
        assert!(
            seen.iter().all(|&count| (850..1_150).contains(&count)),
            "{seen:?}"
        );
        assert_eq!(stream.between(9, 9), 9);
    }

    #[test]
    fn normal_numbers_have_mean_zero_and_variance_one() {
        let mut stream = Seed::from(1).stream("normal");
        let draws: Vec<f64> = (0..20_000).map(|_| stream.normal()).collect();
        let mean = draws.iter().sum::<f64>() / 20_000.0;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 20_000.0;
        assert!(
            mean.abs() < 0.03 && (variance - 1.0).abs() < 0.04,
            "{mean} {variance}"
        );
    }

    #[test]
    fn a_shuffle_is_a_permutation() {
        let mut items: Vec<u32> = (0..100).collect();
        Seed::from(7).stream("shuffle").shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
