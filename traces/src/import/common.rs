//! Common Log Format, also with what the Combined one adds, with a virtual host in front, or with further fields behind.

use super::request::{Line, Parsed, Request, method, number_or_dash};
use super::summary::Reason;
use super::time;
use super::zone::Clock;
use clockwork_wire::nfs3::Class;

/// Reads lines; remembers the last time, because many lines in a row have the same.
#[derive(Debug, Clone)]
pub(super) struct Common {
    last: Vec<u8>,
    last_s: i64,
    clock: Clock,
    post: Class,
}

impl Default for Common {
    fn default() -> Self {
        Self::new(Clock::default(), Class::Write)
    }
}

/// Whether a line has the form, so that a log may be told by it.
pub(super) fn looks_right(line: &[u8]) -> bool {
    matches!(Common::default().parse(line), Ok(_) | Err(Reason::NoRequest | Reason::Request | Reason::Path))
}

impl Common {
    /// `post` is what a POST counts as.
    pub(super) fn new(clock: Clock, post: Class) -> Self {
        Self { last: Vec::new(), last_s: 0, clock, post }
    }

    /// `host ident user [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.0" 200 2326 ...`
    pub(super) fn parse<'a>(&mut self, line: &'a [u8]) -> Parsed<'a> {
        if line.is_empty() {
            return Err(Reason::Blank);
        }
        // The user's name may hold anything, also blanks: the time is what stands between the first ` [` and `] "`.
        let open = memchr::memmem::find(line, b" [").ok_or(Reason::Form)?;
        let rest = &line[open + 2..];
        let close = memchr::memchr(b']', rest).ok_or(Reason::Form)?;
        let unix_s = self.time(&rest[..close])?;
        let client = &line[..memchr::memchr(b' ', line).unwrap_or(open)];
        let rest = rest[close + 1..].strip_prefix(b" \"").ok_or(Reason::Form)?;
        let (request, rest) = quoted(rest).ok_or(Reason::Form)?;
        let mut fields = rest.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
        let status = fields.next().and_then(status).ok_or(Reason::Status)?;
        // The bytes may be missing: some servers leave them out for answers without a body.
        let bytes = fields.next().map_or(Some(0), number_or_dash).ok_or(Reason::Number)?;
        let (verb, target) = split_request(request)?;
        let Some(class) = method(verb, self.post) else { return Ok(Line::Left(Reason::Method)) };
        let mut request = Request { unix_s, target, is_url: true, status, client, ..Request::NONE };
        request.be(class, bytes, 0);
        Ok(Line::Request(request))
    }

    fn time(&mut self, text: &[u8]) -> Result<i64, Reason> {
        if self.last == text {
            return Ok(self.last_s);
        }
        let moment = time::common(text).ok_or(Reason::Time)?;
        let unix_s = self.clock.unix_s(moment);
        self.last.clear();
        self.last.extend_from_slice(text);
        self.last_s = unix_s;
        Ok(unix_s)
    }
}

/// What stands before the closing quote, and what follows it. A quote after a backslash does not close.
fn quoted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut from = 0;
    loop {
        let at = from + memchr::memchr(b'"', bytes.get(from..)?)?;
        let slashes = bytes[..at].iter().rev().take_while(|byte| **byte == b'\\').count();
        if slashes % 2 == 0 {
            return Some((&bytes[..at], &bytes[at + 1..]));
        }
        from = at + 1;
    }
}

/// A status from 100 to 999; 0 for `-`.
pub(super) fn status(bytes: &[u8]) -> Option<u16> {
    match number_or_dash(bytes)? {
        0 => Some(0),
        status => u16::try_from(status).ok().filter(|status| (100..1_000).contains(status)),
    }
}

/// `GET /a b HTTP/1.0`: the method, and the URL, in which some clients leave blanks; HTTP/0.9 has no version.
pub(super) fn split_request(request: &[u8]) -> Result<(&[u8], &[u8]), Reason> {
    if request.is_empty() || request == b"-" {
        return Err(Reason::NoRequest);
    }
    let blank = memchr::memchr(b' ', request).ok_or(Reason::Request)?;
    let (verb, target) = (&request[..blank], &request[blank + 1..]);
    let is_verb = !verb.is_empty()
        && verb.len() <= 20
        && verb.iter().all(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'-' | b'_'));
    if !is_verb {
        return Err(Reason::Request);
    }
    let target = match memchr::memrchr(b' ', target) {
        Some(at) if target[at + 1..].starts_with(b"HTTP/") => &target[..at],
        _ => target,
    };
    if target.is_empty() { Err(Reason::Path) } else { Ok((verb, target)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(line: &[u8]) -> (i64, String, u16, u64, String) {
        match Common::default().parse(line) {
            Ok(Line::Request(r)) => (
                r.unix_s,
                String::from_utf8_lossy(r.target).into_owned(),
                r.status,
                r.sent,
                String::from_utf8_lossy(r.client).into_owned(),
            ),
            other => panic!("{}: {other:?}", String::from_utf8_lossy(line)),
        }
    }

    #[test]
    fn common_combined_and_virtual_host_lines_are_read() {
        let (time, host) = (971_211_336, "127.0.0.1".to_owned());
        let wanted = (time, "/apache_pb.gif".to_owned(), 200, 2_326, host.clone());
        let line =
            br#"127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326"#;
        assert_eq!(request(line), wanted);
        let mut combined = line.to_vec();
        combined.extend(br#" "http://a/\"b\" [x] " "Mozilla/4.08 [en] (Win98; I ;Nav)" 0.002"#);
        assert_eq!(request(&combined), wanted);
        let mut virtual_host = b"example.org:80 ".to_vec();
        virtual_host.extend(line);
        assert_eq!(request(&virtual_host).1, "/apache_pb.gif");
        let odd = br#"::1 - john doe [10/Oct/2000:13:55:36 -0700] "GET /a b\"c HTTP/1.1" 304 -"#;
        assert_eq!(request(odd), (time, "/a b\\\"c".into(), 304, 0, "::1".into()));
        let old = br#"h - - [10/Oct/2000:13:55:36 -0700] "GET /" 200"#;
        assert_eq!(request(old), (time, "/".into(), 200, 0, "h".into()));
    }

    #[test]
    fn a14_malformed_lines_have_a_reason() {
        let with = |request: &[u8]| {
            [br#"h - - [10/Oct/2000:13:55:36 -0700] ""#.as_slice(), request, br#"" 400 0"#].concat()
        };
        for (line, reason) in [
            (with(b""), Reason::NoRequest),
            (with(b"-"), Reason::NoRequest),
            (with(b"\x16\x03\x01"), Reason::Request),
            (with(br"\x16\x03\x01 \x00"), Reason::Request),
            (with(b"\xff\xfe /a"), Reason::Request),
            (with(b"GET"), Reason::Request),
            (with(b"GET "), Reason::Path),
            (b"".to_vec(), Reason::Blank),
            (b"\r".to_vec(), Reason::Form),
            (b"\x00\x01\x02".to_vec(), Reason::Form),
            (br#"h - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0 200 5"#.to_vec(), Reason::Form),
            (br#"h - - [yesterday] "GET / HTTP/1.0" 200 5"#.to_vec(), Reason::Time),
            (br#"h - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" OK 5"#.to_vec(), Reason::Status),
            (br#"h - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 5x"#.to_vec(), Reason::Number),
            (br#"h - - [10/Oct/2000:13:55:36 -0700]"#.to_vec(), Reason::Form),
        ] {
            assert_eq!(Common::default().parse(&line), Err(reason), "{}", String::from_utf8_lossy(&line));
        }
        // Bytes that are no UTF-8 are a path like others, and a lone CR is a byte of it.
        assert_eq!(request(&with(b"GET /\xff\r HTTP/1.0")).1, "/\u{fffd}\r");
        assert_eq!(Common::default().parse(&with(b"OPTIONS * HTTP/1.0")), Ok(Line::Left(Reason::Method)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(cut in any::<prop::sample::Index>(), bytes in prop::collection::vec(any::<u8>(), 0..20)) {
            let line = br#"127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326 "-" "-""#;
            let at = cut.index(line.len());
            let mut mixed = line[..at].to_vec();
            mixed.extend(&bytes);
            mixed.extend(&line[at..]);
            let _ = Common::default().parse(&mixed);
            let _ = Common::default().parse(&bytes);
        }
    }
}
