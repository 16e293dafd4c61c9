//! Readers of the two forms that backtests come in. Bytes in, series out: opening and unpacking files is the caller's.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};

use super::Case;
use crate::error::ForecastError;
use crate::series::SERIES_PERIODS_MAX;

/// Most series read from one file.
pub const READ_SERIES_MAX: usize = 100_000;
/// Most values read from one file, gaps within a series included (1 GiB of doubles).
pub const READ_VALUES_MAX: usize = 1 << 27;
/// Longest line read, bytes.
pub const READ_LINE_BYTES_MAX: u64 = 32 << 20;

/// The series of a file in the M4 competition's form, in its order: a header, then a line a series, the id first, then
/// the values; fields may be quoted, empty fields after the last value are left out (as `NA` is), within they are
/// missing (NaN).
///
/// # Errors
/// [`ForecastError::BadLine`] with the line and what is wrong in it.
pub fn m4(input: impl Read) -> Result<Vec<(String, Vec<f64>)>, ForecastError> {
    let mut series = Vec::new();
    let mut total = 0;
    each_line(input, |line, text| {
        let mut fields = text.split(',').map(unquoted);
        let id = fields.next().unwrap_or_default().to_owned();
        let mut values = Vec::new();
        for field in fields {
            values.push(if field.is_empty() || field == "NA" { f64::NAN } else { number(line, field)? });
        }
        while values.last().is_some_and(|v| v.is_nan()) {
            values.pop();
        }
        total += values.len();
        check_size(line, series.len() + 1, total)?;
        series.push((id, values));
        Ok(())
    })?;
    Ok(series)
}

/// Cases of an M4 pair of files, matched by id, in the order of `train`.
///
/// # Errors
/// As [`m4`]; [`ForecastError::LengthMismatch`] where a series of one file is missing in the other.
pub fn m4_cases(train: impl Read, test: impl Read) -> Result<Vec<Case>, ForecastError> {
    let train = m4(train)?;
    let mut test: HashMap<String, Vec<f64>> = m4(test)?.into_iter().collect();
    let (left, right) = (train.len(), test.len());
    let mut cases = Vec::with_capacity(left);
    for (name, history) in train {
        match test.remove(&name) {
            Some(future) => cases.push(Case { name, history, future }),
            None => {
                return Err(ForecastError::LengthMismatch {
                    what: "series to train and to test",
                    left,
                    right,
                });
            }
        }
    }
    if !test.is_empty() {
        return Err(ForecastError::LengthMismatch { what: "series to train and to test", left, right });
    }
    Ok(cases)
}

/// The series of a file of counts, in order of appearance: a header, then lines `series,period,count`, periods counted
/// from 0 in any order. Periods without a line are missing (NaN) up to the last of the series.
///
/// # Errors
/// [`ForecastError::BadLine`] with the line and what is wrong in it, a period given twice included.
pub fn hourly(input: impl Read) -> Result<Vec<(String, Vec<f64>)>, ForecastError> {
    let mut series: Vec<(String, Vec<f64>)> = Vec::new();
    let mut position: HashMap<String, usize> = HashMap::new();
    let mut total = 0;
    each_line(input, |line, text| {
        let mut fields = text.split(',').map(unquoted);
        let (Some(name), Some(period), Some(count), None) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return Err(bad(line, "not `series,period,count`"));
        };
        let period: usize = period.parse().map_err(|_| bad(line, "the period is not a whole number"))?;
        if period >= SERIES_PERIODS_MAX {
            return Err(bad(line, "the period is beyond what a series may have"));
        }
        let count = number(line, count)?;
        let at = *position.entry(name.to_owned()).or_insert_with(|| {
            series.push((name.to_owned(), Vec::new()));
            series.len() - 1
        });
        let values = &mut series[at].1;
        if period >= values.len() {
            total += period + 1 - values.len();
            check_size(line, position.len(), total)?;
            values.resize(period + 1, f64::NAN);
        }
        if !values[period].is_nan() {
            return Err(bad(line, "the period is given twice"));
        }
        values[period] = count;
        Ok(())
    })?;
    Ok(series)
}

fn bad(line: usize, what: &str) -> ForecastError {
    ForecastError::BadLine { line, what: what.to_owned() }
}

fn check_size(line: usize, series: usize, values: usize) -> Result<(), ForecastError> {
    if series > READ_SERIES_MAX {
        return Err(bad(line, "more series than are read from one file"));
    }
    if values > READ_VALUES_MAX {
        return Err(bad(line, "more values than are read from one file"));
    }
    Ok(())
}

fn unquoted(field: &str) -> &str {
    field.trim().trim_matches('"')
}

fn number(line: usize, field: &str) -> Result<f64, ForecastError> {
    match field.parse::<f64>() {
        Ok(v) if v.is_finite() => Ok(v),
        _ => Err(bad(line, "a value is not a finite number")),
    }
}

/// Calls `take` with the number and text of each line after the header, blank ones left out.
fn each_line(
    input: impl Read,
    mut take: impl FnMut(usize, &str) -> Result<(), ForecastError>,
) -> Result<(), ForecastError> {
    let mut input = BufReader::new(input);
    let mut text = String::new();
    for line in 1usize.. {
        text.clear();
        let read = (&mut input).take(READ_LINE_BYTES_MAX).read_line(&mut text);
        match read {
            Ok(0) => return Ok(()),
            Ok(n) if n as u64 == READ_LINE_BYTES_MAX => return Err(bad(line, "the line is too long")),
            Ok(_) => {}
            Err(error) => return Err(ForecastError::BadLine { line, what: error.to_string() }),
        }
        let trimmed = text.trim_end_matches(['\r', '\n']);
        if line > 1 && !trimmed.is_empty() {
            take(line, trimmed)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m4_pairs_match_by_id() {
        let train = "\"V1\",\"V2\",\"V3\",\"V4\"\n\"H1\",\"1\",\"2\",\"\"\r\n\nH3,4,NA,6\n";
        let test = "V1,V2\nH3,7\nH1,3\n";
        let cases = m4_cases(train.as_bytes(), test.as_bytes()).unwrap();
        assert_eq!((cases[0].name.as_str(), &cases[0].history[..]), ("H1", &[1.0, 2.0][..]));
        assert!(cases[1].history[1].is_nan() && cases[1].future == [7.0]);
        assert!(m4_cases(train.as_bytes(), "V1,V2\nH3,7\n".as_bytes()).is_err());
        assert_eq!(m4("V1,V2\nH1,x\n".as_bytes()), Err(bad(2, "a value is not a finite number")));
    }

    #[test]
    fn hourly_counts_keep_gaps_and_refuse_nonsense() {
        let text = "series,period,count\na,0,5\nb,1,2\na,2,7\n";
        let series = hourly(text.as_bytes()).unwrap();
        assert_eq!((series[0].0.as_str(), series[0].1.len(), series[1].1.len()), ("a", 3, 2));
        assert!(series[0].1[1].is_nan() && series[1].1[0].is_nan());
        for broken in ["a,0", "a,-1,3", "a,0,inf", "a,99999999999,1", "a,0,1,2"] {
            let text = format!("series,period,count\n{broken}\n");
            assert!(
                matches!(hourly(text.as_bytes()), Err(ForecastError::BadLine { line: 2, .. })),
                "{broken}"
            );
        }
        assert!(hourly("h\na,0,1\na,0,1\n".as_bytes()).is_err());
        assert!(hourly(&b"h\n\xff\xfe,0,1\n"[..]).is_err());
    }
}
