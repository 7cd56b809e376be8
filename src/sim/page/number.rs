//! How `prometheus_client` spells a number.

/// A float as `prometheus_client` writes it: Python's `repr`, but with an
/// exponent from seven digits on.
pub(super) fn number(value: f64) -> String {
    let text = python_repr(value);
    let dot = text.find('.').unwrap_or(0);
    if value <= 0.0 || dot <= 6 {
        return text;
    }
    let digits = format!("{}.{}{}", &text[..1], &text[1..dot], &text[dot + 1..]);
    let mantissa = digits.trim_end_matches(['0', '.']);
    format!("{mantissa}e+0{}", dot - 1)
}

fn python_repr(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 || (1e-4..1e16).contains(&size) {
        return format!("{value:?}");
    }
    let text = format!("{value:e}");
    let Some((mantissa, exponent)) = text.split_once('e') else {
        return text;
    };
    match exponent.strip_prefix('-') {
        Some(digits) => format!("{mantissa}e-{digits:0>2}"),
        None => format!("{mantissa}e+{exponent:0>2}"),
    }
}
