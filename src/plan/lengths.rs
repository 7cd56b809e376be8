//! Input and output lengths by every rule of a scenario. Each list has exactly
//! the asked count, and the same seed gives the same list on every machine.

use crate::rng::Stream;
use crate::scenario::{InputLength, OutputLength, TruncatedNormal};

use super::normal;

/// `count` input lengths, in tokens; `Err` holds how many the rule gives when
/// that is another number.
pub(super) fn input(
    rule: &InputLength,
    count: usize,
    stream: &mut Stream,
) -> Result<Vec<u64>, usize> {
    match rule {
        InputLength::Fixed(value) => Ok(vec![*value; count]),
        InputLength::Explicit(values) => exactly(values, count),
        InputLength::Ranges(ranges) => {
            let given = ranges
                .iter()
                .fold(0_usize, |sum, range| sum.saturating_add(range.count));
            if given != count {
                return Err(given);
            }
            let mut values = Vec::with_capacity(count);
            for range in ranges {
                let draws = (0..range.count).map(|_| stream.between(range.min, range.max));
                values.extend(draws);
            }
            Ok(values)
        }
        InputLength::TruncatedNormal(rule) => Ok(truncated_normal(rule, count, stream)),
    }
}

/// `count` output lengths, in tokens; `Err` as for [`input`].
pub(super) fn output(
    rule: &OutputLength,
    count: usize,
    stream: &mut Stream,
) -> Result<Vec<u64>, usize> {
    match rule {
        OutputLength::Fixed(value) => Ok(vec![*value; count]),
        OutputLength::Explicit(values) => exactly(values, count),
        OutputLength::Uniform { min, max } => {
            Ok((0..count).map(|_| stream.between(*min, *max)).collect())
        }
        OutputLength::TruncatedNormal(rule) => Ok(truncated_normal(rule, count, stream)),
    }
}

fn exactly(values: &[u64], count: usize) -> Result<Vec<u64>, usize> {
    if values.len() == count {
        Ok(values.to_vec())
    } else {
        Err(values.len())
    }
}

fn truncated_normal(rule: &TruncatedNormal, count: usize, stream: &mut Stream) -> Vec<u64> {
    let distribution = normal::Rounded::new(rule);
    (0..count).map(|_| distribution.at(stream.unit())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Seed;
    use crate::scenario::LengthRange;

    fn stream() -> Stream {
        Seed::from(42).stream("lengths")
    }

    #[test]
    fn ranges_are_drawn_in_their_order() {
        let range = |min, max, count| LengthRange { min, max, count };
        let rule = InputLength::Ranges(vec![range(10, 19, 30), range(100, 100, 2), range(5, 6, 3)]);
        let values = input(&rule, 35, &mut stream()).unwrap();
        assert!(values[..30].iter().all(|value| (10..=19).contains(value)));
        assert_eq!(&values[30..32], &[100, 100]);
        assert!(values[32..].iter().all(|value| (5..=6).contains(value)));
        assert_eq!(input(&rule, 36, &mut stream()), Err(35));
    }

    #[test]
    fn explicit_values_must_be_as_many_as_asked() {
        let rule = InputLength::Explicit(vec![3, 1, 2]);
        assert_eq!(input(&rule, 3, &mut stream()), Ok(vec![3, 1, 2]));
        assert_eq!(input(&rule, 2, &mut stream()), Err(3));
        assert_eq!(
            output(&OutputLength::Explicit(vec![]), 1, &mut stream()),
            Err(0)
        );
    }

    #[test]
    fn uniform_outputs_cover_their_range() {
        let rule = OutputLength::Uniform { min: 8, max: 11 };
        let mut values = output(&rule, 400, &mut stream()).unwrap();
        values.sort_unstable();
        values.dedup();
        assert_eq!(values, [8, 9, 10, 11]);
    }
}
