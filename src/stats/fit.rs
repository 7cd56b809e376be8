//! A straight line through points by least squares, from sums alone, so that
//! resampling can add up sums instead of points.

use serde::{Deserialize, Serialize};

/// `y = intercept + slope · x`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Value at x = 0.
    pub intercept: f64,
    /// Change of y for each unit of x.
    pub slope: f64,
    /// Share of the variance of y that the line explains, 0..=1; 1 where y has
    /// no variance.
    pub r_squared: f64,
}

/// What one point adds to the sums of a fit: `[1, x, y, x², xy, y²]`.
pub fn slope_sums(x: f64, y: f64) -> [f64; 6] {
    [1.0, x, y, x * x, x * y, y * y]
}

/// The line from summed [`slope_sums`]; `None` when x does not vary.
pub fn line_of_sums([count, x, y, xx, xy, yy]: [f64; 6]) -> Option<Line> {
    if count < 2.0 {
        return None;
    }
    let spread_x = xx - x * x / count;
    let spread_y = yy - y * y / count;
    let together = xy - x * y / count;
    // Rounding leaves a spread of the order of the squares' last bit.
    if spread_x <= xx * 1e-12 {
        return None;
    }
    let slope = together / spread_x;
    let r_squared = if spread_y <= yy * 1e-12 {
        1.0
    } else {
        (together * together / (spread_x * spread_y)).clamp(0.0, 1.0)
    };
    Some(Line {
        intercept: (y - slope * x) / count,
        slope,
        r_squared,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The least-squares line through `points`; `None` when x does not vary.
    fn least_squares(points: &[(f64, f64)]) -> Option<Line> {
        let mut sums = [0.0; 6];
        for &(x, y) in points {
            for (sum, term) in sums.iter_mut().zip(slope_sums(x, y)) {
                *sum += term;
            }
        }
        line_of_sums(sums)
    }

    #[test]
    fn a_line_is_found_where_there_is_one() {
        let line = least_squares(&[(0.0, 5.0), (10.0, 7.0), (30.0, 11.0)]).unwrap();
        assert!((line.intercept - 5.0).abs() < 1e-9 && (line.slope - 0.2).abs() < 1e-12);
        assert!((line.r_squared - 1.0).abs() < 1e-9);
    }

    #[test]
    fn textbook_values_with_residuals() {
        // x 1..4, y 6 5 7 10: slope 1.4, intercept 3.5, R² = 0.7.
        let line = least_squares(&[(1.0, 6.0), (2.0, 5.0), (3.0, 7.0), (4.0, 10.0)]).unwrap();
        assert!((line.slope - 1.4).abs() < 1e-12 && (line.intercept - 3.5).abs() < 1e-12);
        assert!((line.r_squared - 0.7).abs() < 1e-12);
    }

    #[test]
    fn no_line_without_spread() {
        assert_eq!(least_squares(&[(3.0, 1.0), (3.0, 2.0)]), None);
        assert_eq!(least_squares(&[(3.0, 1.0)]), None);
    }
}
