//! AISBench's CSV and JSON read into values. It knows text, not files.

use serde_json::Value;

use super::details::ResultError;
use super::table::{Cell, Figure, MetricRow, Results};

/// Reads the request table (`<dataset>.csv`): its stage and rows.
pub fn parse_table(csv: &str) -> Result<(String, Vec<MetricRow>), ResultError> {
    let wrong = |what: String| ResultError::new("the request table", what);
    let mut reader = ::csv::Reader::from_reader(csv.as_bytes());
    let header = reader
        .headers()
        .map_err(|error| wrong(error.to_string()))?
        .clone();
    let names: Vec<&str> = header.iter().collect();
    let [first, second, statistics @ .., last] = names.as_slice() else {
        return Err(wrong("it has fewer than three columns".to_owned()));
    };
    if (*first, *second, *last) != ("Performance Parameters", "Stage", "N") {
        return Err(wrong(format!("its columns are `{}`", names.join(","))));
    }
    let mut stage = String::new();
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| wrong(error.to_string()))?;
        let metric = record.get(0).unwrap_or_default();
        record.get(1).unwrap_or_default().clone_into(&mut stage);
        let cells = statistics.iter().enumerate().map(|(place, statistic)| {
            let text = record.get(place + 2).unwrap_or_default();
            let (value, unit) =
                quantity(text).ok_or_else(|| wrong(format!("{metric} {statistic} is `{text}`")))?;
            Ok(Cell {
                statistic: (*statistic).to_owned(),
                value,
                unit,
            })
        });
        let cells = cells.collect::<Result<_, ResultError>>()?;
        let count = record.get(names.len() - 1).unwrap_or_default();
        rows.push(MetricRow {
            metric: metric.to_owned(),
            cells,
            count: count
                .parse()
                .map_err(|_| wrong(format!("{metric} N is `{count}`")))?,
        });
    }
    if rows.is_empty() {
        return Err(wrong("it has no rows".to_owned()));
    }
    Ok((stage, rows))
}

/// Reads the common metrics (`<dataset>.json`) of one stage.
pub fn parse_common(json: &str, stage: &str) -> Result<Vec<Figure>, ResultError> {
    let wrong = |what: String| ResultError::new("the common metrics", what);
    let document: Value = serde_json::from_str(json).map_err(|error| wrong(error.to_string()))?;
    let entries = document
        .as_object()
        .ok_or_else(|| wrong("it is no object".to_owned()))?;
    let figures = entries.iter().map(|(name, stages)| {
        let stated = &stages[stage];
        let read = match stated {
            Value::String(text) => quantity(text),
            other => other.as_f64().map(|value| (value, String::new())),
        };
        let (value, unit) =
            read.ok_or_else(|| wrong(format!("`{name}` of stage `{stage}` is {stated}")))?;
        Ok(Figure {
            name: name.clone(),
            value,
            unit,
        })
    });
    figures.collect()
}

impl Results {
    /// Both files of one run.
    pub fn parse(csv: &str, json: &str) -> Result<Self, ResultError> {
        let (stage, rows) = parse_table(csv)?;
        let common = parse_common(json, &stage)?;
        Ok(Self {
            stage,
            rows,
            common,
        })
    }
}

/// `244.4 ms` or `165.5`.
fn quantity(text: &str) -> Option<(f64, String)> {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let value: f64 = number.parse().ok()?;
    value.is_finite().then(|| (value, unit.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_table_is_refused_with_its_place() {
        let header = "Performance Parameters,Stage,Average,N\n";
        for (csv, expected) in [
            ("", "fewer than three columns"),
            ("a,b,c\n", "its columns are `a,b,c`"),
            (header, "no rows"),
            (
                "Performance Parameters,Stage,Average,N\nE2EL,total,nan ms,4\n",
                "E2EL Average is `nan ms`",
            ),
            (
                "Performance Parameters,Stage,Average,N\nE2EL,total,1.0 ms,x\n",
                "E2EL N is `x`",
            ),
        ] {
            let error = parse_table(csv).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let cut = r#"{"Benchmark Duration": {"total": "682.4"#;
        assert!(parse_common(cut, "total").is_err());
        let other = r#"{"Total Requests": {"stable": 4}}"#;
        assert!(parse_common(other, "total").is_err());
    }
}
