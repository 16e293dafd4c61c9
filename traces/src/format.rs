//! The trace file: hourly totals of a site, and what is known of its files, as checked text.
//!
//! UTF-8, lines ended by LF, words separated by one space:
//!
//! ```text
//! clockwork-trace 1                          the format and its version
//! site NAME                                  lower-case letters, digits and '-'
//! about TEXT                                 what was counted, to the end of the line
//! starts TEXT                                when hour 0 began, to the end of the line
//! hours N                                    followed by N counts, at most 24 a line
//! 3565 3004 - 1734 ...                       requests in each hour; '-' where the hour is missing
//! files N weeks W                            followed by N lines, or the line `synthetic` instead
//! ID BYTES COUNT COUNT ...                   a file: number, size in bytes, requests in each of W weeks
//! synthetic N exponent E drift D             N files, Zipf exponent E, drift D (see `site`)
//! end crc32 XXXXXXXX                         CRC-32 (IEEE) of every byte before this line, in hexadecimal
//! ```
//!
//! The checksum is verified before anything else is read, so a damaged file is never half understood.

use std::fmt::Write as _;

/// The version of the format that this code reads and writes.
pub const VERSION: u32 = 1;
/// Most bytes that a trace file may have.
pub const FILE_BYTES_MAX: usize = 64 << 20;
/// Most hours that a trace may have (over a hundred years).
pub const HOURS_MAX: usize = 1_000_000;
/// Most files that a trace may name.
pub const FILES_MAX: usize = 1_000_000;
/// Most weeks of file popularity that a trace may have.
pub const WEEKS_MAX: usize = 10_000;
/// Most counts of file popularity (files times weeks) that a trace may have.
pub const COUNTS_MAX: usize = 16_000_000;

/// A trace as it stands in its file.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// Name of the site: lower-case letters, digits and `-`.
    pub name: String,
    /// What was counted, in words.
    pub about: String,
    /// When hour 0 began.
    pub starts: String,
    /// Requests in each hour; `None` where the hour is missing (which is not zero).
    pub hours: Vec<Option<u64>>,
    /// What is known of the files.
    pub files: TraceFiles,
}

/// What a trace says about the files of its site.
#[derive(Debug, Clone, PartialEq)]
pub enum TraceFiles {
    /// Every file with its requests in each week.
    Counted {
        /// Weeks that are counted for every file.
        weeks: usize,
        /// The files in the order of the trace.
        files: Vec<CountedFile>,
    },
    /// Nothing is known but totals: files are made by rule.
    Synthetic {
        /// Number of files.
        files: usize,
        /// Zipf exponent: the file of rank r gets a share proportional to r^-exponent.
        exponent: f64,
        /// Standard deviation of the slow change of a file's share, on the log scale.
        drift: f64,
    },
}

/// One file of a trace with counted files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedFile {
    /// Number of the file in its trace.
    pub id: u32,
    /// Size in bytes.
    pub bytes: u64,
    /// Requests in each week.
    pub requests: Vec<u64>,
}

/// Why bytes are not a trace. Line numbers start at 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Larger than [`FILE_BYTES_MAX`].
    #[error("the trace has {bytes} bytes, more than the {FILE_BYTES_MAX} that a trace may have")]
    TooLarge {
        /// Size of what was given, in bytes.
        bytes: usize,
    },
    /// The first line is not that of a trace.
    #[error("this is not a trace: the first line is not `clockwork-trace VERSION`")]
    NotATrace,
    /// A version that this code does not read.
    #[error(
        "the trace is of version {found}; this program reads version {VERSION}: use a program that is newer"
    )]
    Version {
        /// The version named by the file.
        found: String,
    },
    /// The last line is missing: the file was cut off.
    #[error("the trace does not end in `end crc32 XXXXXXXX`: it was cut off or edited; copy it again")]
    NoEnd,
    /// The content is not what was written.
    #[error(
        "checksum of the trace is {found:08x}, its last line says {stated:08x}: it is damaged; copy it again"
    )]
    Checksum {
        /// CRC-32 of the content.
        found: u32,
        /// CRC-32 in the last line.
        stated: u32,
    },
    /// Bytes that are not UTF-8.
    #[error("line {line}: bytes that are not UTF-8")]
    NotText {
        /// Line number.
        line: usize,
    },
    /// A line that is not as the format says.
    #[error("line {line}: expected {expected}, found {found:?}")]
    Line {
        /// Line number.
        line: usize,
        /// What the format asks for.
        expected: &'static str,
        /// The beginning of what is there.
        found: String,
    },
    /// A number beyond its limit.
    #[error("line {line}: {what} is {found}, the limit is {limit}")]
    Limit {
        /// Line number.
        line: usize,
        /// What is limited.
        what: &'static str,
        /// The number in the file.
        found: usize,
        /// The limit.
        limit: usize,
    },
}

/// Reads a trace: version and checksum first, then line by line.
///
/// # Errors
/// [`FormatError`] says what is wrong, in which line, and what to do.
pub fn read(bytes: &[u8]) -> Result<Trace, FormatError> {
    if bytes.len() > FILE_BYTES_MAX {
        return Err(FormatError::TooLarge { bytes: bytes.len() });
    }
    check_version(bytes)?;
    let body = check_sum(bytes)?;
    let text = std::str::from_utf8(body).map_err(|error| FormatError::NotText {
        line: 1 + body[..error.valid_up_to()].iter().filter(|b| **b == b'\n').count(),
    })?;
    let mut lines = Lines { lines: text.split_terminator('\n'), line: 1 };
    lines.next("the version")?;
    let name = lines.tagged("site ", "`site NAME`")?;
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        return Err(lines.wrong("a site name of lower-case letters, digits and '-'", name));
    }
    let about = lines.tagged("about ", "`about TEXT`")?;
    let starts = lines.tagged("starts ", "`starts TEXT`")?;
    let hours = read_hours(&mut lines)?;
    let files = read_files(&mut lines)?;
    if let Some(more) = lines.lines.next() {
        lines.line += 1;
        return Err(lines.wrong("the end of the trace", more));
    }
    Ok(Trace { name: name.into(), about: about.into(), starts: starts.into(), hours, files })
}

/// Writes a trace; [`read`] gives it back. Text fields lose line ends, which the format cannot hold.
#[must_use]
pub fn write(trace: &Trace) -> String {
    let flat = |text: &str| text.replace(['\n', '\r'], " ");
    let mut out = format!(
        "clockwork-trace {VERSION}\nsite {}\nabout {}\nstarts {}\nhours {}\n",
        flat(&trace.name),
        flat(&trace.about),
        flat(&trace.starts),
        trace.hours.len()
    );
    for day in trace.hours.chunks(24) {
        let words: Vec<String> =
            day.iter().map(|count| count.map_or_else(|| "-".into(), |c| c.to_string())).collect();
        out.push_str(&words.join(" "));
        out.push('\n');
    }
    // Writing to a string cannot fail.
    match &trace.files {
        TraceFiles::Counted { weeks, files } => {
            let _ = writeln!(out, "files {} weeks {weeks}", files.len());
            for file in files {
                let _ = write!(out, "{} {}", file.id, file.bytes);
                for count in &file.requests {
                    let _ = write!(out, " {count}");
                }
                out.push('\n');
            }
        }
        TraceFiles::Synthetic { files, exponent, drift } => {
            let _ = writeln!(out, "synthetic {files} exponent {exponent:.2} drift {drift:.2}");
        }
    }
    let sum = crc32fast::hash(out.as_bytes());
    let _ = writeln!(out, "end crc32 {sum:08x}");
    out
}

fn check_version(bytes: &[u8]) -> Result<(), FormatError> {
    let first = bytes.split(|b| *b == b'\n').next().unwrap_or_default();
    let version = first.strip_prefix(b"clockwork-trace ").ok_or(FormatError::NotATrace)?;
    if version == VERSION.to_string().as_bytes() {
        return Ok(());
    }
    Err(FormatError::Version { found: beginning(&String::from_utf8_lossy(version)) })
}

/// The bytes before the last line, if their checksum is as stated there.
fn check_sum(bytes: &[u8]) -> Result<&[u8], FormatError> {
    const END: &[u8] = b"end crc32 ";
    let inner = bytes.strip_suffix(b"\n").ok_or(FormatError::NoEnd)?;
    let start = inner.iter().rposition(|b| *b == b'\n').ok_or(FormatError::NoEnd)? + 1;
    let hex = inner[start..].strip_prefix(END).filter(|hex| hex.len() == 8).ok_or(FormatError::NoEnd)?;
    let stated = std::str::from_utf8(hex).ok().and_then(|hex| u32::from_str_radix(hex, 16).ok());
    let stated = stated.ok_or(FormatError::NoEnd)?;
    let found = crc32fast::hash(&bytes[..start]);
    if found == stated { Ok(&bytes[..start]) } else { Err(FormatError::Checksum { found, stated }) }
}

fn beginning(text: &str) -> String {
    text.chars().take(40).collect()
}

struct Lines<'a> {
    lines: std::str::SplitTerminator<'a, char>,
    /// Number of the line read last.
    line: usize,
}

impl<'a> Lines<'a> {
    fn next(&mut self, expected: &'static str) -> Result<&'a str, FormatError> {
        let found = self.lines.next();
        if expected != "the version" {
            self.line += 1;
        }
        found.ok_or(FormatError::Line { line: self.line, expected, found: "the end".into() })
    }

    fn tagged(&mut self, tag: &str, expected: &'static str) -> Result<&'a str, FormatError> {
        let line = self.next(expected)?;
        line.strip_prefix(tag).ok_or_else(|| self.wrong(expected, line))
    }

    fn wrong(&self, expected: &'static str, found: &str) -> FormatError {
        FormatError::Line { line: self.line, expected, found: beginning(found) }
    }

    fn number<T: std::str::FromStr>(&self, word: &str, expected: &'static str) -> Result<T, FormatError> {
        word.parse().map_err(|_| self.wrong(expected, word))
    }

    fn limited(
        &self,
        word: &str,
        what: &'static str,
        least: usize,
        limit: usize,
    ) -> Result<usize, FormatError> {
        let found: usize = self.number(word, what)?;
        if found < least || found > limit {
            return Err(FormatError::Limit { line: self.line, what, found, limit });
        }
        Ok(found)
    }
}

fn read_hours(lines: &mut Lines<'_>) -> Result<Vec<Option<u64>>, FormatError> {
    let word = lines.tagged("hours ", "`hours N`")?;
    let count = lines.limited(word, "the number of hours", 1, HOURS_MAX)?;
    let mut hours = Vec::with_capacity(count);
    while hours.len() < count {
        let line = lines.next("hourly counts")?;
        for word in line.split(' ') {
            if hours.len() == count {
                return Err(lines.wrong("as many hourly counts as stated", word));
            }
            hours.push(if word == "-" { None } else { Some(lines.number(word, "a count or '-'")?) });
        }
    }
    Ok(hours)
}

fn read_files(lines: &mut Lines<'_>) -> Result<TraceFiles, FormatError> {
    const EXPECTED: &str = "`files N weeks W` or `synthetic N exponent E drift D`";
    let line = lines.next(EXPECTED)?;
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["files", files, "weeks", weeks] => {
            let files = lines.limited(files, "the number of files", 1, FILES_MAX)?;
            let weeks = lines.limited(weeks, "the number of weeks", 1, WEEKS_MAX)?;
            if files * weeks > COUNTS_MAX {
                let (what, found) = ("files times weeks", files * weeks);
                return Err(FormatError::Limit { line: lines.line, what, found, limit: COUNTS_MAX });
            }
            let files = (0..files).map(|_| read_file(lines, weeks)).collect::<Result<_, _>>()?;
            Ok(TraceFiles::Counted { weeks, files })
        }
        ["synthetic", files, "exponent", exponent, "drift", drift] => {
            let within = |value: f64, word: &str| {
                if (0.0..=10.0).contains(&value) {
                    Ok(value)
                } else {
                    Err(lines.wrong("a number from 0 to 10", word))
                }
            };
            Ok(TraceFiles::Synthetic {
                files: lines.limited(files, "the number of files", 1, FILES_MAX)?,
                exponent: within(lines.number(exponent, "a number from 0 to 10")?, exponent)?,
                drift: within(lines.number(drift, "a number from 0 to 10")?, drift)?,
            })
        }
        _ => Err(lines.wrong(EXPECTED, line)),
    }
}

fn read_file(lines: &mut Lines<'_>, weeks: usize) -> Result<CountedFile, FormatError> {
    const EXPECTED: &str = "`ID BYTES` and a count for each week";
    let line = lines.next(EXPECTED)?;
    let mut words = line.split(' ');
    let id = lines.number(words.next().unwrap_or_default(), EXPECTED)?;
    let bytes = lines.number(words.next().unwrap_or_default(), EXPECTED)?;
    let requests: Vec<u64> = words.map(|word| lines.number(word, EXPECTED)).collect::<Result<_, _>>()?;
    if requests.len() != weeks {
        return Err(lines.wrong(EXPECTED, line));
    }
    Ok(CountedFile { id, bytes, requests })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn small() -> Trace {
        Trace {
            name: "small".into(),
            about: "a test".into(),
            starts: "now".into(),
            hours: (0..30).map(|h| (h != 7).then_some(h * h)).collect(),
            files: TraceFiles::Counted {
                weeks: 2,
                files: vec![
                    CountedFile { id: 0, bytes: 10, requests: vec![3, 4] },
                    CountedFile { id: 9, bytes: 0, requests: vec![0, 1] },
                ],
            },
        }
    }

    /// The same text with its checksum made right again.
    fn resealed(text: &str) -> Vec<u8> {
        let body = &text[..text.rfind("end crc32").unwrap()];
        format!("{body}end crc32 {:08x}\n", crc32fast::hash(body.as_bytes())).into_bytes()
    }

    #[test]
    fn what_is_written_is_read_back() {
        assert_eq!(read(write(&small()).as_bytes()), Ok(small()));
    }

    #[test]
    fn damage_is_named() {
        let text = write(&small());
        assert_eq!(read(b""), Err(FormatError::NotATrace));
        assert_eq!(read(b"clockwork-trace 2\n"), Err(FormatError::Version { found: "2".into() }));
        assert_eq!(read(&text.as_bytes()[..text.len() - 1]), Err(FormatError::NoEnd));
        let changed = text.replace("site small", "site smell");
        assert!(matches!(read(changed.as_bytes()), Err(FormatError::Checksum { .. })));
    }

    #[test]
    fn a_wrong_line_is_named_with_its_number() {
        let line = |from: &str, to: &str| match read(&resealed(&write(&small()).replace(from, to))) {
            Err(FormatError::Line { line, .. } | FormatError::Limit { line, .. }) => line,
            other => panic!("{from} -> {to}: {other:?}"),
        };
        assert_eq!(line("site small", "site Small"), 2);
        assert_eq!(line("hours 30", "hours 0"), 5);
        assert_eq!(line("hours 30", "hours 29"), 7);
        assert_eq!(line("\n576 ", "\n-576 "), 7);
        assert_eq!(line("files 2 weeks 2", "files 2 weeks 3"), 9);
        assert_eq!(line("files 2 weeks 2", "files 3 weeks 2"), 11);
        assert_eq!(line("9 0 0 1\n", "9 0 0 1\nmore\n"), 11);
        assert_eq!(line("files 2 weeks 2", "synthetic 5 exponent NaN drift 0"), 8);
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
            let mut sealed = b"clockwork-trace 1\nsite a\nabout b\nstarts c\nhours 2\n".to_vec();
            sealed.extend(&bytes);
            sealed.push(b'\n');
            let sum = crc32fast::hash(&sealed);
            sealed.extend(format!("end crc32 {sum:08x}\n").bytes());
            let _ = read(&sealed);
        }

        #[test]
        fn every_flipped_bit_is_noticed(at in 0usize..200, bit in 0u8..8) {
            let mut bytes = write(&small()).into_bytes();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            prop_assert!(read(&bytes) != Ok(small()) || bytes.eq_ignore_ascii_case(write(&small()).as_bytes()));
        }
    }
}
