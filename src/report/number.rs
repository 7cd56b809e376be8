//! Numbers as people read them. What was not measured is `n/a`, never 0.

/// What stands for an absent number.
pub(super) const ABSENT: &str = "n/a";

/// Milliseconds with about four significant digits.
pub(super) fn ms(value: Option<f64>) -> String {
    decimal(value)
}

/// A number with about four significant digits.
pub(super) fn decimal(value: Option<f64>) -> String {
    let Some(value) = value else {
        return ABSENT.to_owned();
    };
    match value.abs() {
        size if size >= 1_000.0 => grouped(&format!("{value:.0}")),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A number beside an axis: no more decimals than the tick has.
pub(super) fn axis(value: f64) -> String {
    // Adding 0 takes the sign off a 0.
    let rounded = (value * 1e3).round() / 1e3 + 0.0;
    if rounded.abs() >= 1_000.0 {
        grouped(&format!("{rounded:.0}"))
    } else {
        rounded.to_string()
    }
}

/// A ratio in 0..=1 as percent.
pub(super) fn percent(ratio: Option<f64>) -> String {
    ratio.map_or_else(
        || ABSENT.to_owned(),
        |ratio| format!("{:.2} %", ratio * 100.0),
    )
}

/// Percentage points with their sign.
pub(super) fn points(difference: Option<f64>) -> String {
    difference.map_or_else(|| ABSENT.to_owned(), |pp| format!("{pp:+.2} pp"))
}

/// A whole number with its thousands apart.
pub(super) fn count(value: impl Into<i128>) -> String {
    grouped(&value.into().to_string())
}

/// A whole number that may be absent.
pub(super) fn maybe_count(value: Option<u64>) -> String {
    value.map_or_else(|| ABSENT.to_owned(), count)
}

fn grouped(digits: &str) -> String {
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", digits),
    };
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    format!("{sign}{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_is_never_zero() {
        assert_eq!(
            (ms(None), percent(None)),
            ("n/a".to_owned(), "n/a".to_owned())
        );
        assert_eq!(
            (ms(Some(0.0)), percent(Some(0.0))),
            ("0.000".to_owned(), "0.00 %".to_owned())
        );
        assert_eq!(points(None), "n/a");
    }

    #[test]
    fn digits_follow_the_size() {
        let shown: Vec<_> = [0.04, 8.181_8, 281.349, 9_000_000.0]
            .map(|value| decimal(Some(value)))
            .into();
        assert_eq!(shown, ["0.040", "8.18", "281.3", "9,000,000"]);
        assert_eq!(count(102_400_u64), "102,400");
        assert_eq!(count(-1_234_i64), "-1,234");
        assert_eq!(count(999_u64), "999");
        assert_eq!(points(Some(-0.5)), "-0.50 pp");
        assert_eq!([-1e-9, -0.5, 2_000.0].map(axis), ["0", "-0.5", "2,000"]);
    }
}
