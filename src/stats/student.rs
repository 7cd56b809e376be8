//! Student's t distribution.

/// Normal quantiles of 97.5 % and of 80 %.
pub(super) const NORMAL_975: f64 = 1.959_964;
pub(super) const NORMAL_80: f64 = 0.841_621;

/// Quantile of Student's distribution with `freedom` degrees of freedom, at
/// least 2, where the normal one has `normal`: Cornish and Fisher's expansion
/// up to the fourth order (Abramowitz and Stegun, 26.7.5). It is right to 0.8 % at
/// 2 degrees, to 0.2 % from 3 on.
pub(super) fn student(normal: f64, freedom: f64) -> f64 {
    let z = normal;
    let square = z * z;
    let terms = [
        (square + 1.0) / 4.0,
        ((5.0 * square + 16.0) * square + 3.0) / 96.0,
        (((3.0 * square + 19.0) * square + 17.0) * square - 15.0) / 384.0,
        ((((79.0 * square + 776.0) * square + 1482.0) * square - 1920.0) * square - 945.0)
            / 92_160.0,
    ];
    let freedom = freedom.max(2.0);
    let series = terms
        .iter()
        .rev()
        .fold(0.0, |sum, term| (sum + term) / freedom);
    z * (1.0 + series)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        let tables = [
            (2.0, 4.3027, 1.0607),
            (3.0, 3.1824, 0.9785),
            (4.0, 2.7764, 0.9410),
            (9.0, 2.2622, 0.8834),
            (30.0, 2.0423, 0.8538),
            (1e9, 1.9600, 0.8416),
        ];
        for (freedom, upper, power) in tables {
            for (normal, table) in [(NORMAL_975, upper), (NORMAL_80, power)] {
                let ratio = student(normal, freedom) / table;
                let right = if freedom < 3.0 { 0.008 } else { 0.002 };
                assert!((ratio - 1.0).abs() < right, "{freedom} {normal}: {ratio}");
            }
        }
    }
}
