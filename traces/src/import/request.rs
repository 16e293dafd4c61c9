//! What a line of a log says.

use super::summary::Reason;
use clockwork_wire::nfs3::Class;

/// One request, or several alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request<'a> {
    /// When it was, in seconds since 1970 UTC.
    pub(super) unix_s: i64,
    /// What was asked for, as the log has it.
    pub(super) target: &'a [u8],
    /// The file's handle, by which it is known whatever it is called; empty where the log has none.
    pub(super) handle: &'a [u8],
    /// Whether `target` is a URL, of which the path names the file; otherwise it is the file's name as it stands.
    pub(super) is_url: bool,
    /// Status of the answer; 0 where the log says nothing.
    pub(super) status: u16,
    /// Bytes sent; 0 where the log says nothing.
    pub(super) sent: u64,
    /// Bytes taken, of a write; 0 where the log says nothing.
    pub(super) taken: u64,
    /// Size that the file shows to have at least; 0 where nothing is said.
    pub(super) size: u64,
    /// How many of the requests wrote data.
    pub(super) writes: u64,
    /// How many of them concerned metadata alone.
    pub(super) metadata: u64,
    /// Who asked; empty where the log says nothing.
    pub(super) client: &'a [u8],
    /// How many requests this stands for.
    pub(super) count: u64,
}

impl Request<'_> {
    /// One request of which nothing is known.
    pub(super) const NONE: Self = Self {
        unix_s: 0,
        target: b"",
        handle: b"",
        is_url: false,
        status: 0,
        sent: 0,
        taken: 0,
        size: 0,
        writes: 0,
        metadata: 0,
        client: b"",
        count: 1,
    };
}

impl Request<'_> {
    /// Makes one request of this class, with what is known of bytes sent and taken. A file has at least the size that a read
    /// of it brought, or a write to it.
    pub(super) fn be(&mut self, class: Class, sent: u64, taken: u64) {
        self.sent = sent;
        match class {
            Class::Read => self.size = sent,
            Class::Write => (self.writes, self.taken, self.size) = (1, taken, taken),
            Class::Metadata => self.metadata = 1,
        }
    }
}

/// What a line is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// A request.
    Request(Request<'a>),
    /// A header or a directive.
    Note,
    /// Sound, but not to be counted.
    Left(Reason),
}

/// What becomes of a line: a fault has a reason.
pub(super) type Parsed<'a> = Result<Line<'a>, Reason>;

/// Gives every field of a line to the column that it stands in. A line with more or fewer fields than columns is bad.
pub(super) fn by_column<'a, C: Copy>(
    columns: &[C],
    mut fields: impl Iterator<Item = Result<&'a [u8], Reason>>,
    mut take: impl FnMut(C, &'a [u8]) -> Result<(), Reason>,
) -> Result<(), Reason> {
    for column in columns {
        take(*column, fields.next().ok_or(Reason::Columns)??)?;
    }
    if fields.next().is_none() { Ok(()) } else { Err(Reason::Columns) }
}

/// The class of an HTTP method that is for a file; `post` is that of POST.
pub(super) fn method(method: &[u8], post: Class) -> Option<Class> {
    match method {
        b"GET" | b"REPORT" | b"SEARCH" => Some(Class::Read),
        b"POST" => Some(post),
        b"PUT" | b"PATCH" => Some(Class::Write),
        b"HEAD" | b"PROPFIND" | b"PROPPATCH" | b"DELETE" | b"MOVE" | b"COPY" | b"MKCOL" => {
            Some(Class::Metadata)
        }
        _ => None,
    }
}

/// A number as logs write it: decimal digits, or `-` for none.
pub(super) fn number_or_dash(bytes: &[u8]) -> Option<u64> {
    if bytes == b"-" { Some(0) } else { number(bytes) }
}

/// Decimal digits.
pub(super) fn number(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() || bytes.len() > 19 {
        return None;
    }
    bytes.iter().try_fold(0_u64, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 10).then(|| value.wrapping_mul(10).wrapping_add(u64::from(digit)))
    })
}

/// The file that a URL names: its path without query, fragment, scheme and host, with `%XX` decoded into `scratch` where there
/// is any. `None` if that is no path.
pub(super) fn file_of<'a>(url: &'a [u8], scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    let path = if url.first() == Some(&b'/') { url } else { after_host(url)? };
    match memchr::memchr3(b'?', b'#', b'%', path) {
        None => Some(path),
        Some(at) if path[at] != b'%' => Some(&path[..at]),
        Some(at) => {
            let end = memchr::memchr2(b'?', b'#', &path[at..]).map_or(path.len(), |more| at + more);
            decode(&path[..end], scratch);
            Some(scratch)
        }
    }
}

/// What follows `http://host`; `/` if nothing does.
fn after_host(url: &[u8]) -> Option<&[u8]> {
    let colon = memchr::memchr(b':', url).filter(|at| (1..=10).contains(at))?;
    let rest = url[colon..].strip_prefix(b"://")?;
    Some(memchr::memchr(b'/', rest).map_or(b"/".as_slice(), |slash| &rest[slash..]))
}

fn decode(path: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let hex = |byte: u8| (byte as char).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut rest = path;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let pair = (after.first().copied().and_then(hex), after.get(1).copied().and_then(hex));
        match (byte, pair) {
            (b'%', (Some(high), Some(low))) => {
                out.push(high << 4 | low);
                rest = &after[2..];
            }
            _ => out.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_file_is_the_path_of_the_url() {
        let file = |url: &str| file_of(url.as_bytes(), &mut Vec::new()).map(<[u8]>::to_vec);
        for (url, wanted) in [
            ("/", "/"),
            ("/a/b.html", "/a/b.html"),
            ("/a?x=1#y", "/a"),
            ("/a#y?x", "/a"),
            ("/a%20b%2f?x=%41", "/a b/"),
            ("/100%", "/100%"),
            ("/%zz%4", "/%zz%4"),
            ("http://host:80/a?x", "/a"),
            ("https://host", "/"),
        ] {
            assert_eq!(file(url).as_deref(), Some(wanted.as_bytes()), "{url}");
        }
        for none in ["", "-", "*", "a/b", "host:443", "\x16\x03"] {
            assert_eq!(file(none), None, "{none:?}");
        }
        assert_eq!(file_of(b"/%ff", &mut Vec::new()), Some(&b"/\xff"[..]));
    }

    #[test]
    fn numbers_are_digits() {
        assert_eq!((number(b"0"), number(b"0042"), number_or_dash(b"-")), (Some(0), Some(42), Some(0)));
        for wrong in [&b""[..], b"-", b"+1", b"1.5", b"99999999999999999999", b"1 "] {
            assert_eq!(number(wrong), None);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_file_or_none(url in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut scratch = Vec::new();
            if let Some(file) = file_of(&url, &mut scratch) {
                prop_assert!(file.len() <= url.len().max(1));
            }
        }
    }
}
