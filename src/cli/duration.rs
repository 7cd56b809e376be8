//! Times as they are typed.

use std::time::Duration;

/// Longest time that an option takes: a year.
const SECONDS_MAX: f64 = 366.0 * 86_400.0;

/// A time: numbers with `ms`, `s`, `m` or `h`, one after the other; a bare
/// number is seconds.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "a time such as 90s, 25m or 1h30m is needed".to_owned();
    let mut seconds = 0.0;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let is_number = |letter: char| letter.is_ascii_digit() || letter == '.';
        let end = rest.find(|letter| !is_number(letter)).unwrap_or(rest.len());
        let number: f64 = rest[..end].parse().map_err(|_| wrong())?;
        rest = &rest[end..];
        let end = rest.find(is_number).unwrap_or(rest.len());
        seconds += number
            * match rest[..end].trim() {
                "ms" => 1e-3,
                "" | "s" => 1.0,
                "m" | "min" => 60.0,
                "h" => 3_600.0,
                _ => return Err(wrong()),
            };
        rest = &rest[end..];
    }
    if !(seconds > 0.0 && seconds <= SECONDS_MAX) {
        return Err("a time of more than 0 and at most a year is needed".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_units() {
        for (text, millis) in [
            ("25m", 1_500_000),
            ("1h30m", 5_400_000),
            ("90", 90_000),
            ("1.5s", 1_500),
            ("250ms", 250),
            ("2 min", 120_000),
        ] {
            let read = duration(text).unwrap();
            assert_eq!(read, Duration::from_millis(millis), "{text}");
        }
        for wrong in ["", "0", "m", "5x", "-1s", "1e3", "1..2", "99999999999h"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
