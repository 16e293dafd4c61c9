//! W3C extended logs: `#Fields` names what follows, blanks lie between the fields.
//!
//! Needed are `cs-uri-stem` or `cs-uri`, and `time` with `date` (or a `#Date` before); taken are `cs-method`, `sc-status`,
//! `sc-bytes`, `cs-bytes` (of writes) and `c-ip`. Times are UTC, as the draft of the format says; where a server writes local
//! time, the offset is an option of the import.

use super::common::status;
use super::request::{Line, Parsed, Request, by_column, method, number_or_dash};
use super::summary::Reason;
use super::time::{self, Moment};
use super::zone::Clock;
use clockwork_wire::nfs3::Class;

/// Most fields of a line.
const FIELDS_MAX: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Date,
    Time,
    Stem,
    Url,
    Method,
    Status,
    Sent,
    Taken,
    Client,
    Other,
}

/// Reads lines.
#[derive(Debug, Clone)]
pub(super) struct W3c {
    fields: Vec<Field>,
    /// The date of the last `#Date`.
    date: Option<Vec<u8>>,
    clock: Clock,
    /// The last date and when it began, because many lines in a row have the same.
    day: (Vec<u8>, i64),
    post: Class,
}

impl Default for W3c {
    fn default() -> Self {
        Self::new(Clock::default(), Class::Write)
    }
}

impl W3c {
    /// `post` is what a POST counts as.
    pub(super) fn new(clock: Clock, post: Class) -> Self {
        Self { fields: Vec::new(), date: None, clock, day: (Vec::new(), 0), post }
    }

    pub(super) fn parse<'a>(&mut self, line: &'a [u8]) -> Parsed<'a> {
        if let Some(directive) = line.strip_prefix(b"#") {
            return self.directive(directive);
        }
        if line.trim_ascii().is_empty() {
            return Err(Reason::Blank);
        }
        if self.fields.is_empty() {
            return Err(Reason::Fields);
        }
        let mut request = Request { is_url: true, ..Request::NONE };
        let (mut date, mut clock, mut class) = (None, None, Some(Class::Read));
        let (mut sent, mut taken) = (0, 0);
        let words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
        by_column(&self.fields, words.map(Ok), |field, word| {
            match field {
                Field::Date => date = Some(word),
                Field::Time => clock = Some(word),
                Field::Stem => request.target = word,
                Field::Url if request.target.is_empty() => request.target = word,
                Field::Method if word == b"-" => {}
                Field::Method => class = method(word, self.post),
                Field::Status => request.status = status(word).ok_or(Reason::Status)?,
                Field::Sent => sent = number_or_dash(word).ok_or(Reason::Number)?,
                Field::Taken => taken = number_or_dash(word).ok_or(Reason::Number)?,
                Field::Client => request.client = if word == b"-" { b"" } else { word },
                Field::Url | Field::Other => {}
            }
            Ok(())
        })?;
        request.unix_s = self.time(date, clock.ok_or(Reason::Fields)?)?;
        match request.target {
            b"" => Err(Reason::Fields),
            b"-" => Err(Reason::NoRequest),
            _ => Ok(class.map_or(Line::Left(Reason::Method), |class| {
                request.be(class, sent, taken);
                Line::Request(request)
            })),
        }
    }

    fn directive<'a>(&mut self, directive: &[u8]) -> Parsed<'a> {
        if let Some(names) = directive.strip_prefix(b"Fields:") {
            let names = names.split(u8::is_ascii_whitespace).filter(|name| !name.is_empty());
            self.fields = names.take(FIELDS_MAX).map(field).collect();
        } else if let Some(date) = directive.strip_prefix(b"Date:") {
            self.date = date.trim_ascii().get(..10).map(<[u8]>::to_vec);
        }
        Ok(Line::Note)
    }

    fn time(&mut self, date: Option<&[u8]>, clock: &[u8]) -> Result<i64, Reason> {
        let date = date.or(self.date.as_deref()).ok_or(Reason::Time)?;
        if self.day.0 != date {
            let midnight = time::iso(date).filter(|_| date.len() == 10).map(Moment::unix_s);
            self.day = (date.to_vec(), midnight.ok_or(Reason::Time)?);
        }
        let ((hour, minute, second), rest) = time::clock(clock).ok_or(Reason::Time)?;
        if hour > 23 || minute > 59 || second > 60 || !rest.is_empty() {
            return Err(Reason::Time);
        }
        let second = i64::from(hour * 3_600 + minute * 60 + second.min(59));
        Ok(self.clock.unix_s(Moment { local_s: self.day.1 + second, offset_s: None }))
    }
}

fn field(name: &[u8]) -> Field {
    match name {
        b"date" => Field::Date,
        b"time" => Field::Time,
        b"cs-uri-stem" => Field::Stem,
        b"cs-uri" => Field::Url,
        b"cs-method" => Field::Method,
        b"sc-status" => Field::Status,
        b"sc-bytes" | b"bytes" => Field::Sent,
        b"cs-bytes" => Field::Taken,
        b"c-ip" => Field::Client,
        _ => Field::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::super::zone::Zone;
    use super::*;
    use proptest::prelude::*;

    const FIELDS: &[u8] = b"#Fields: date time c-ip cs-method cs-uri-stem cs-uri-query sc-status sc-bytes";

    fn with_fields() -> W3c {
        let mut log = W3c::default();
        assert_eq!(log.parse(b"#Software: IIS"), Ok(Line::Note));
        assert_eq!(log.parse(FIELDS), Ok(Line::Note));
        log
    }

    #[test]
    fn lines_are_read_by_the_fields_named_before() {
        let line = b"2000-10-10 20:55:36 10.0.0.1 PUT /a+b - 200 5";
        let wanted = Request {
            unix_s: 971_211_336,
            target: b"/a+b",
            is_url: true,
            status: 200,
            sent: 5,
            writes: 1,
            client: b"10.0.0.1",
            ..Request::NONE
        };
        assert_eq!(with_fields().parse(line), Ok(Line::Request(wanted)));
        let mut log = W3c::new(Clock::new(&Zone::Offset(3_600)), Class::Write);
        let _ = (log.parse(b"#Date: 2000-10-10 00:00:00"), log.parse(b"#Fields: time cs-uri"));
        let parsed = log.parse(b"21:55:36\t/a?b");
        assert!(
            matches!(parsed, Ok(Line::Request(Request { unix_s: 971_211_336, target: b"/a?b", .. }))),
            "{parsed:?}"
        );
    }

    #[test]
    fn a14_malformed_lines_have_a_reason() {
        for (line, reason) in [
            (&b""[..], Reason::Blank),
            (b"2000-10-10 20:55:36 10.0.0.1", Reason::Columns),
            (b"2000-10-10 20:55:36 - GET /a - 200 5 more", Reason::Columns),
            (b"2000-10-10 20:55:66 - GET /a - 200 5", Reason::Time),
            (b"2000-99-10 20:55:36 - GET /a - 200 5", Reason::Time),
            (b"2000-10-10 20:55:36 - GET - - 200 5", Reason::NoRequest),
            (b"2000-10-10 20:55:36 - GET /a - x 5", Reason::Status),
            (b"2000-10-10 20:55:36 - GET /a - 200 x", Reason::Number),
            (b"\xff \x00 - GET /a - 200 5", Reason::Time),
        ] {
            assert_eq!(with_fields().parse(line), Err(reason), "{}", line.escape_ascii());
        }
        assert_eq!(W3c::default().parse(b"2000-10-10 20:55:36 /a"), Err(Reason::Fields));
        let options = with_fields();
        assert_eq!(
            options.clone().parse(b"2000-10-10 20:55:36 - TRACE /a - 200 5"),
            Ok(Line::Left(Reason::Method))
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut log = with_fields();
            let _ = log.parse(&bytes);
            let _ = log.parse(&[&b"#Date:"[..], &bytes].concat());
            let _ = log.parse(&[&b"2000-10-10 20:55:36 "[..], &bytes].concat());
        }
    }
}
