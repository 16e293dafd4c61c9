//! The two CSV forms: a row a request, and a row a file and period. Both have a header that names the columns, in any order;
//! other columns are ignored.
//!
//! | form | needs | takes |
//! |---|---|---|
//! | requests | `t_s` (seconds since `--start`) or `unix_s` (since 1970 UTC); one of `file`, `file_id`, `path`, `url` | `method`, `status`, `bytes` (`-1` or `-` for none), `bytes_written`, `client` |
//! | counts | one of `file`, `file_id`, `path`, `url`, `series`; `period` or `hour` (number from `--start`); `count` or `requests` | `writes` and `metadata` (how many of them), `bytes`, `bytes_written` |
//!
//! All rows count, whatever their status: who made the table has chosen them.

use super::open::LogFormat;
use super::request::{Line, Parsed, Request, by_column, method, number, number_or_dash};
use super::summary::Reason;
use clockwork_wire::nfs3::Class;

/// Most columns of a table.
const COLUMNS_MAX: usize = 64;

/// What a column means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    File,
    Url,
    Relative,
    Unix,
    Period,
    Count,
    Method,
    Status,
    Sent,
    Taken,
    Writes,
    Metadata,
    Client,
    Other,
}

/// Rows of a table.
#[derive(Debug, Clone)]
pub(super) struct Table {
    columns: Vec<Column>,
    format: LogFormat,
    /// When `t_s` is 0 and period 0 begins, in seconds since 1970 UTC.
    start_s: i64,
    period_s: u32,
    post: Class,
    scratch: Vec<u8>,
}

fn columns(header: &[u8], format: LogFormat) -> Vec<Column> {
    let header = header.strip_prefix(b"\xef\xbb\xbf").unwrap_or(header);
    let one = |field: &[u8]| {
        let field = field.trim_ascii();
        let field = field.strip_prefix(b"\"").and_then(|field| field.strip_suffix(b"\"")).unwrap_or(field);
        match field.to_ascii_lowercase().as_slice() {
            b"file" | b"file_id" | b"path" | b"series" => Column::File,
            b"url" => Column::Url,
            b"t_s" => Column::Relative,
            b"unix_s" => Column::Unix,
            b"period" | b"hour" => Column::Period,
            b"count" | b"requests" if format == LogFormat::Counts => Column::Count,
            b"method" => Column::Method,
            b"status" => Column::Status,
            b"bytes" => Column::Sent,
            b"bytes_written" => Column::Taken,
            b"writes" if format == LogFormat::Counts => Column::Writes,
            b"metadata" if format == LogFormat::Counts => Column::Metadata,
            b"client" => Column::Client,
            _ => Column::Other,
        }
    };
    header.split(|byte| *byte == b',').take(COLUMNS_MAX).map(one).collect()
}

/// Which of the two forms a header is of, if any.
pub(super) fn header_format(header: &[u8]) -> Option<LogFormat> {
    let columns = columns(header, LogFormat::Counts);
    let has = |column| columns.contains(&column);
    let file = has(Column::File) || has(Column::Url);
    if file && has(Column::Period) && has(Column::Count) {
        Some(LogFormat::Counts)
    } else if file && (has(Column::Relative) || has(Column::Unix)) {
        Some(LogFormat::Requests)
    } else {
        None
    }
}

impl Table {
    /// `post` is what a POST counts as.
    pub(super) fn new(format: LogFormat, start_s: i64, period_s: u32, post: Class) -> Self {
        Self { columns: Vec::new(), format, start_s, period_s, post, scratch: Vec::new() }
    }

    pub(super) fn parse<'a>(&'a mut self, line: &'a [u8]) -> Parsed<'a> {
        if self.columns.is_empty() {
            let found = header_format(line);
            self.columns = columns(line, self.format);
            return if found == Some(self.format) { Ok(Line::Note) } else { Err(Reason::Fields) };
        }
        if line.is_empty() {
            return Err(Reason::Blank);
        }
        let mut row = Request::NONE;
        let (mut time, mut class) = (None, None);
        by_column(&self.columns, Fields { rest: Some(line) }, |column, field| match column {
            Column::Method => {
                class = Some(method(field, self.post).unwrap_or(Class::Read));
                Ok(())
            }
            column => self.take(column, field, &mut row, &mut time),
        })?;
        row.unix_s = time.ok_or(Reason::Time)?;
        if row.writes.saturating_add(row.metadata) > row.count {
            return Err(Reason::Number);
        }
        match (row.count, class) {
            (1, Some(class)) => row.be(class, row.sent, row.taken),
            // The bytes of several requests together say nothing of the file's size.
            (1, None) if row.writes + row.metadata == 0 => row.size = row.sent,
            _ => {}
        }
        if row.writes == 0 {
            row.taken = 0;
        }
        if row.target.is_empty() {
            return Err(Reason::Path);
        }
        if memchr::memmem::find(row.target, b"\"\"").is_some() {
            undouble(row.target, &mut self.scratch);
            row.target = &self.scratch;
        }
        Ok(Line::Request(row))
    }

    fn take<'a>(
        &self,
        column: Column,
        field: &'a [u8],
        row: &mut Request<'a>,
        time: &mut Option<i64>,
    ) -> Result<(), Reason> {
        match column {
            Column::File => row.target = field,
            Column::Url => (row.target, row.is_url) = (field, true),
            Column::Relative => *time = Some(self.start_s.saturating_add(seconds(field)?)),
            Column::Unix => *time = Some(seconds(field)?),
            Column::Period => {
                let period = signed(field).ok_or(Reason::Time)?;
                let since = period.checked_mul(i64::from(self.period_s)).ok_or(Reason::FarTime)?;
                *time = Some(self.start_s.saturating_add(since));
            }
            Column::Count => {
                row.count = number(field).filter(|count| *count < 1 << 48).ok_or(Reason::Number)?
            }
            Column::Writes => row.writes = number(field).ok_or(Reason::Number)?,
            Column::Metadata => row.metadata = number(field).ok_or(Reason::Number)?,
            Column::Status => {
                let status = number_or_dash(field).and_then(|status| u16::try_from(status).ok());
                row.status = status.ok_or(Reason::Status)?;
            }
            Column::Sent | Column::Taken if field == b"-1" || field.is_empty() => {}
            Column::Sent => row.sent = number_or_dash(field).ok_or(Reason::Number)?,
            Column::Taken => row.taken = number_or_dash(field).ok_or(Reason::Number)?,
            Column::Client => row.client = field,
            Column::Method | Column::Other => {}
        }
        Ok(())
    }
}

/// Whole seconds of a number that may have a fraction.
fn seconds(field: &[u8]) -> Result<i64, Reason> {
    let whole = field.split(|byte| *byte == b'.').next().unwrap_or_default();
    signed(whole).ok_or(Reason::Time)
}

fn signed(field: &[u8]) -> Option<i64> {
    let (negative, digits) = field.strip_prefix(b"-").map_or((false, field), |digits| (true, digits));
    let value = i64::try_from(number(digits)?).ok()?;
    Some(if negative { -value } else { value })
}

/// Fields of a row, by RFC 4180: between commas, perhaps in quotes. Doubled quotes stay as they are.
struct Fields<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<&'a [u8], Reason>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.rest.take()?;
        let Some(quoted) = rest.strip_prefix(b"\"") else {
            let end = memchr::memchr(b',', rest).unwrap_or(rest.len());
            self.rest = rest.get(end + 1..);
            return Some(Ok(&rest[..end]));
        };
        let mut end = 0;
        while let Some(more) = quoted.get(end..).and_then(|rest| memchr::memchr(b'"', rest)) {
            end += more;
            match quoted.get(end + 1) {
                Some(b'"') => end += 2,
                None | Some(b',') => {
                    self.rest = quoted.get(end + 2..);
                    return Some(Ok(&quoted[..end]));
                }
                Some(_) => break,
            }
        }
        // Quotes that do not end, or within a field.
        Some(Err(Reason::Columns))
    }
}

fn undouble(field: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let mut rest = field;
    while let Some(at) = memchr::memmem::find(rest, b"\"\"") {
        out.extend_from_slice(&rest[..=at]);
        rest = &rest[at + 2..];
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row<T>(header: &str, line: &[u8], then: impl FnOnce(Parsed<'_>) -> T) -> T {
        let format = header_format(header.as_bytes()).unwrap();
        let mut table = Table::new(format, 1_000, 60, Class::Write);
        assert_eq!(table.parse(header.as_bytes()), Ok(Line::Note));
        then(table.parse(line))
    }

    #[test]
    fn both_forms_are_known_by_their_headers() {
        let format = |header: &str| header_format(header.as_bytes());
        assert_eq!(format("t_s,file_id,method,status,bytes,remote"), Some(LogFormat::Requests));
        assert_eq!(format("\"URL\",unix_s"), Some(LogFormat::Requests));
        assert_eq!(format("file_id,hour,count"), Some(LogFormat::Counts));
        assert_eq!(format("\u{feff}series, period, count"), Some(LogFormat::Counts));
        assert_eq!(format("a,b,c"), None);
        assert_eq!(format(""), None);
    }

    #[test]
    fn rows_are_read_by_column() {
        row("t_s,file_id,method,status,bytes,remote", b"45701,154,PUT,404,-1,0", |parsed| {
            let Ok(Line::Request(request)) = parsed else { panic!("{parsed:?}") };
            assert_eq!((request.unix_s, request.target, request.count), (46_701, &b"154"[..], 1));
            assert_eq!((request.status, request.sent, request.writes), (404, 0, 1));
        });
        row("count,period,file", b"7,-2,\"a \"\"b\"\", c\"", |parsed| {
            let Ok(Line::Request(request)) = parsed else { panic!("{parsed:?}") };
            assert_eq!((request.unix_s, request.target, request.count), (880, &b"a \"b\", c"[..], 7));
        });
    }

    #[test]
    fn a14_wrong_rows_have_a_reason() {
        for (line, reason) in [
            (&b""[..], Reason::Blank),
            (b"1,a", Reason::Columns),
            (b"1,a,2,3", Reason::Columns),
            (b"x,a,2", Reason::Time),
            (b"1,a,-2", Reason::Number),
            (b"1,,2", Reason::Path),
            (b"1,\"a,2", Reason::Columns),
            (b"1,a,2,\"b", Reason::Columns),
            (b"1,a,2,", Reason::Columns),
            (b"1,\"a\"b,2", Reason::Columns),
            (b"99999999999999999,a,9", Reason::FarTime),
            (b"\xff\x00,a,2", Reason::Time),
        ] {
            row("period,file,count", line, |parsed| {
                let found = match parsed {
                    // Where it lies far from all others, the importer says so.
                    Ok(Line::Request(request)) if request.unix_s > 1 << 50 => Reason::FarTime,
                    Err(found) => found,
                    other => panic!("{line:?}: {other:?}"),
                };
                assert_eq!(found, reason, "{line:?}");
            });
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_row_or_not(line in prop::collection::vec(prop::sample::select(b"\"\",,1a\xff-.".to_vec()), 0..40)) {
            row("t_s,file,bytes", &line, |parsed| { let _ = parsed; });
        }
    }
}
