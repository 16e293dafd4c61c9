//! One JSON object a line, with the field names of nginx (as its documentation of `log_format escape=json` has them), Caddy and
//! Traefik.
//!
//! | what | fields, the first that is there |
//! |---|---|
//! | time | `StartUTC`, `ts`, `time_iso8601`, `time_local`, `msec`, `@timestamp`, `timestamp`, `time` |
//! | request | `request` ("GET /a HTTP/1.1"), or method and URL: `RequestMethod`, `request_method`, `method`, in Caddy's `request` `method`; `RequestPath`, `request_uri`, `uri`, `path`, `url`, in Caddy's `request` `uri` |
//! | status | `DownstreamStatus`, `OriginStatus`, `status` |
//! | bytes | `DownstreamContentSize`, `body_bytes_sent`, `bytes_sent`, `size`, `bytes` |
//! | bytes taken, of writes | `RequestContentSize`, `content_length`, `bytes_read`, `request_length` |
//! | client | `ClientHost`, `remote_addr`, `client`, in Caddy's `request` `remote_ip`, `client_ip`, `remote_addr` |

use super::common::{split_request, status};
use super::request::{Line, Parsed, Request, method, number_or_dash};
use super::summary::Reason;
use super::time;
use super::zone::Clock;
use clockwork_wire::nfs3::Class;

/// Deepest nesting of a line.
const DEPTH_MAX: u32 = 63;

/// Whether a line looks like such a log, so that it may be told by it.
pub(super) fn looks_right(line: &[u8]) -> bool {
    line.trim_ascii_start().starts_with(b"{") && members(line, |_, _, _| ()).is_some()
}

/// Reads lines.
#[derive(Debug, Clone)]
pub(super) struct Json {
    scratch: Vec<u8>,
    clock: Clock,
    post: Class,
}

impl Default for Json {
    fn default() -> Self {
        Self::new(Clock::default(), Class::Write)
    }
}

/// A value that is neither object nor array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value<'a> {
    /// What stands between the quotes, escapes as they are.
    Text(&'a [u8]),
    /// A number or a word.
    Bare(&'a [u8]),
}

impl<'a> Value<'a> {
    fn bytes(self) -> &'a [u8] {
        let (Self::Text(bytes) | Self::Bare(bytes)) = self;
        bytes
    }
}

/// The fields of a line that matter, each with how good its name is: the lowest wins.
#[derive(Default)]
struct Found<'a> {
    time: Option<(u8, Value<'a>)>,
    request: Option<(u8, &'a [u8])>,
    method: Option<(u8, &'a [u8])>,
    url: Option<(u8, &'a [u8])>,
    status: Option<(u8, &'a [u8])>,
    sent: Option<(u8, &'a [u8])>,
    taken: Option<(u8, &'a [u8])>,
    client: Option<(u8, &'a [u8])>,
}

impl<'a> Found<'a> {
    fn take(&mut self, parent: &[u8], key: &[u8], value: Value<'a>) {
        fn better<T>(slot: &mut Option<(u8, T)>, rank: u8, value: T) {
            if slot.as_ref().is_none_or(|(known, _)| rank < *known) {
                *slot = Some((rank, value));
            }
        }
        let bytes = value.bytes();
        match (parent, key) {
            (b"", b"StartUTC") => better(&mut self.time, 0, value),
            (b"", b"ts") => better(&mut self.time, 1, value),
            (b"", b"time_iso8601") => better(&mut self.time, 2, value),
            (b"", b"time_local") => better(&mut self.time, 3, value),
            (b"", b"msec") => better(&mut self.time, 4, value),
            (b"", b"@timestamp") => better(&mut self.time, 5, value),
            (b"", b"timestamp") => better(&mut self.time, 6, value),
            (b"", b"time") => better(&mut self.time, 7, value),
            (b"", b"request") => better(&mut self.request, 0, bytes),
            (b"", b"RequestMethod") => better(&mut self.method, 0, bytes),
            (b"", b"request_method") => better(&mut self.method, 1, bytes),
            (b"", b"method") => better(&mut self.method, 2, bytes),
            (b"request", b"method") => better(&mut self.method, 3, bytes),
            (b"", b"RequestPath") => better(&mut self.url, 0, bytes),
            (b"", b"request_uri") => better(&mut self.url, 1, bytes),
            (b"", b"uri") => better(&mut self.url, 2, bytes),
            (b"", b"path") => better(&mut self.url, 3, bytes),
            (b"", b"url") => better(&mut self.url, 4, bytes),
            (b"request", b"uri") => better(&mut self.url, 5, bytes),
            (b"", b"DownstreamStatus") => better(&mut self.status, 0, bytes),
            (b"", b"OriginStatus") => better(&mut self.status, 1, bytes),
            (b"", b"status") => better(&mut self.status, 2, bytes),
            (b"", b"DownstreamContentSize") => better(&mut self.sent, 0, bytes),
            (b"", b"body_bytes_sent") => better(&mut self.sent, 1, bytes),
            (b"", b"bytes_sent") => better(&mut self.sent, 2, bytes),
            (b"", b"size") => better(&mut self.sent, 3, bytes),
            (b"", b"bytes") => better(&mut self.sent, 4, bytes),
            (b"", b"RequestContentSize") => better(&mut self.taken, 0, bytes),
            (b"", b"content_length") => better(&mut self.taken, 1, bytes),
            (b"", b"bytes_read") => better(&mut self.taken, 2, bytes),
            (b"", b"request_length") => better(&mut self.taken, 3, bytes),
            (b"", b"ClientHost") => better(&mut self.client, 0, bytes),
            (b"", b"remote_addr") => better(&mut self.client, 1, bytes),
            (b"", b"client") => better(&mut self.client, 2, bytes),
            (b"request", b"client_ip") => better(&mut self.client, 3, bytes),
            (b"request", b"remote_ip") => better(&mut self.client, 4, bytes),
            (b"request", b"remote_addr") => better(&mut self.client, 5, bytes),
            _ => {}
        }
    }
}

impl Json {
    /// `post` is what a POST counts as.
    pub(super) fn new(clock: Clock, post: Class) -> Self {
        Self { scratch: Vec::new(), clock, post }
    }

    pub(super) fn parse<'a>(&'a mut self, line: &'a [u8]) -> Parsed<'a> {
        if line.trim_ascii().is_empty() {
            return Err(Reason::Blank);
        }
        let mut found = Found::default();
        members(line, |parent, key, value| found.take(parent, key, value)).ok_or(Reason::Json)?;
        let (verb, url) = match (found.method, found.url, found.request) {
            (verb, Some((_, url)), _) => (verb.map_or(&b"GET"[..], |(_, verb)| verb), url),
            (_, None, Some((_, request))) => split_request(request)?,
            // Caddy's messages about itself, for example.
            (_, None, None) => return Ok(Line::Left(Reason::OtherRecord)),
        };
        let unix_s = self.time(found.time.map(|(_, value)| value).ok_or(Reason::Time)?)?;
        let status = found.status.map_or(Some(0), |(_, bytes)| status(bytes)).ok_or(Reason::Status)?;
        let bytes = |found: Option<(u8, &[u8])>| found.map_or(Some(0), |(_, bytes)| size(bytes));
        let sent = bytes(found.sent).ok_or(Reason::Number)?;
        let taken = bytes(found.taken).ok_or(Reason::Number)?;
        let client = found.client.map_or(&b""[..], |(_, client)| client);
        let Some(class) = method(verb, self.post) else { return Ok(Line::Left(Reason::Method)) };
        let target = if url.contains(&b'\\') {
            unescape(url, &mut self.scratch).ok_or(Reason::Json)?;
            self.scratch.as_slice()
        } else {
            url
        };
        let mut request = Request { unix_s, target, is_url: true, status, client, ..Request::NONE };
        request.be(class, sent, taken);
        Ok(Line::Request(request))
    }

    fn time(&mut self, value: Value<'_>) -> Result<i64, Reason> {
        let bytes = value.bytes();
        let text = |bytes: &[u8]| time::iso(bytes).or_else(|| time::common(bytes));
        if let Some(moment) = text(bytes) {
            return Ok(self.clock.unix_s(moment));
        }
        if let Some(unix_s) = time::epoch(bytes) {
            return Ok(unix_s);
        }
        let slashes_escaped = unescaped(bytes).and_then(|bytes| text(&bytes));
        Ok(self.clock.unix_s(slashes_escaped.ok_or(Reason::Time)?))
    }
}

/// A size; Traefik and others write it as a number, some as text, and some with a fraction of .0.
fn size(bytes: &[u8]) -> Option<u64> {
    number_or_dash(bytes.strip_suffix(b".0").unwrap_or(bytes))
        .or_else(|| (bytes == b"null" || bytes.is_empty()).then_some(0))
}

fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    text.contains(&b'\\').then_some(())?;
    unescape(text, &mut out)?;
    Some(out)
}

/// The text of a JSON string, as UTF-8; a half of a surrogate pair becomes U+FFFD.
fn unescape(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    out.clear();
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        let escape = *rest.get(at + 1)?;
        rest = &rest[at + 2..];
        match escape {
            b'"' | b'\\' | b'/' => out.push(escape),
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            // nginx without escape=json writes bytes so; it is no JSON, but it is what is there.
            b'x' => {
                out.push(u8::try_from(hex(rest.get(..2)?)?).ok()?);
                rest = &rest[2..];
            }
            b'u' => {
                let first = hex(rest.get(..4)?)?;
                rest = &rest[4..];
                let second = rest.strip_prefix(b"\\u").and_then(|more| hex(more.get(..4)?));
                let character = match (first, second) {
                    (0xd800..=0xdbff, Some(low @ 0xdc00..=0xdfff)) => {
                        rest = &rest[6..];
                        char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + (low - 0xdc00))
                    }
                    _ => char::from_u32(first),
                };
                let character = character.unwrap_or(char::REPLACEMENT_CHARACTER);
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
            _ => return None,
        }
    }
    out.extend_from_slice(rest);
    Some(())
}

fn hex(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |value, digit| Some(value << 4 | char::from(*digit).to_digit(16)?))
}

/// Walks over one object and shows the plain members of it and of the objects in it: name of the object, key, value.
/// `None` if the line is not one object. Neither recursion nor memory grows with the nesting.
fn members<'a>(line: &'a [u8], mut take: impl FnMut(&'a [u8], &'a [u8], Value<'a>)) -> Option<()> {
    let mut scan = Scan { bytes: line, at: 0 };
    scan.eat(b'{')?;
    // A bit for each level, the innermost lowest: 1 in an object, 0 in an array.
    let (mut kinds, mut depth) = (1_u64, 1_u32);
    let (mut parent, mut key, mut first) = (&b""[..], &b""[..], true);
    loop {
        let in_object = kinds & 1 == 1;
        if scan.eat(if in_object { b'}' } else { b']' }).is_some() {
            kinds >>= 1;
            depth -= 1;
            first = false;
            match depth {
                0 => return scan.is_at_end().then_some(()),
                1 => parent = b"",
                _ => {}
            }
            continue;
        }
        if !first {
            scan.eat(b',')?;
        }
        if in_object {
            scan.blank();
            key = scan.string()?;
            scan.eat(b':')?;
        }
        scan.blank();
        let plain = match scan.bytes.get(scan.at)? {
            open @ (b'{' | b'[') => {
                if depth == DEPTH_MAX {
                    return None;
                }
                if depth == 1 {
                    parent = key;
                }
                kinds = kinds << 1 | u64::from(*open == b'{');
                depth += 1;
                scan.at += 1;
                first = true;
                continue;
            }
            b'"' => Value::Text(scan.string()?),
            _ => Value::Bare(scan.bare()?),
        };
        if in_object && depth <= 2 {
            take(parent, key, plain);
        }
        first = false;
    }
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    fn blank(&mut self) {
        while self.bytes.get(self.at).is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\r')) {
            self.at += 1;
        }
    }

    /// Passes over blanks and this byte; `None` if another one is there.
    fn eat(&mut self, byte: u8) -> Option<()> {
        self.blank();
        (self.bytes.get(self.at) == Some(&byte)).then(|| self.at += 1)
    }

    fn is_at_end(&mut self) -> bool {
        self.blank();
        self.at == self.bytes.len()
    }

    fn string(&mut self) -> Option<&'a [u8]> {
        let begin = self.at + 1;
        (self.bytes.get(self.at) == Some(&b'"')).then_some(())?;
        let mut at = begin;
        loop {
            at += memchr::memchr2(b'"', b'\\', self.bytes.get(at..)?)?;
            if self.bytes.get(at) == Some(&b'"') {
                self.at = at + 1;
                return self.bytes.get(begin..at);
            }
            at += 2;
        }
    }

    fn bare(&mut self) -> Option<&'a [u8]> {
        let rest = self.bytes.get(self.at..)?;
        let word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        let length = rest.iter().take_while(|byte| word(byte)).count();
        self.at += length;
        rest.get(..length).filter(|bare| !bare.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(line: &str) -> (i64, String, u16, u64, String) {
        match Json::default().parse(line.as_bytes()) {
            Ok(Line::Request(r)) => (
                r.unix_s,
                String::from_utf8_lossy(r.target).into_owned(),
                r.status,
                r.sent,
                String::from_utf8_lossy(r.client).into_owned(),
            ),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn nginx_caddy_and_traefik_lines_are_read() {
        let wanted = (971_211_336, "/a?b".to_owned(), 200, 5, "10.0.0.1".to_owned());
        for line in [
            r#"{"time_local":"10/Oct/2000:13:55:36 -0700","remote_addr":"10.0.0.1","request":"GET /a?b HTTP/1.1","status":"200","body_bytes_sent":"5"}"#,
            r#"{ "time_iso8601": "2000-10-10T13:55:36-07:00", "remote_addr": "10.0.0.1", "request_method": "GET", "request_uri": "\/a?b", "status": 200, "bytes_sent": 5, "more": [1, {"status": 404}, "]"] }"#,
            r#"{"level":"info","ts":971211336.5,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"10.0.0.1","method":"GET","host":"x","uri":"/a?b","headers":{"uri":["/no"],"method":"PUT"}},"duration":0.1,"size":5,"status":200,"resp_headers":{"Server":["Caddy"]}}"#,
            r#"{"ClientHost":"10.0.0.1","DownstreamContentSize":5,"DownstreamStatus":200,"OriginStatus":500,"RequestMethod":"GET","RequestPath":"/a?b","StartLocal":"2000-10-10T13:55:36.1-07:00","StartUTC":"2000-10-10T20:55:36.123456Z","level":"info","time":"2000-10-10T21:00:00Z"}"#,
        ] {
            assert_eq!(request(line), wanted, "{line}");
            assert!(looks_right(line.as_bytes()));
        }
        let escaped = r#"{"ts":1,"uri":"/\u00e9\ud83d\ude00\u0022\x41"}"#;
        assert_eq!(request(escaped).1, "/é😀\"A");
    }

    #[test]
    fn a14_malformed_lines_have_a_reason() {
        for (line, reason) in [
            ("", Reason::Blank),
            ("{", Reason::Json),
            ("{}x", Reason::Json),
            ("[]", Reason::Json),
            (r#"{"a":1,}"#, Reason::Json),
            (r#"{"a":[1,]}"#, Reason::Json),
            (r#"{"a" 1}"#, Reason::Json),
            (r#"{"a":"b\"}"#, Reason::Json),
            (r#"{"ts":"yesterday","uri":"/"}"#, Reason::Time),
            (r#"{"uri":"/"}"#, Reason::Time),
            (r#"{"ts":1,"request":""}"#, Reason::NoRequest),
            (r#"{"ts":1,"request":"\u0016\u0003"}"#, Reason::Request),
            (r#"{"ts":1,"uri":"/","status":"x"}"#, Reason::Status),
            (r#"{"ts":1,"uri":"/","size":-5}"#, Reason::Number),
        ] {
            assert_eq!(Json::default().parse(line.as_bytes()), Err(reason), "{line}");
        }
        let other = br#"{"ts":1,"msg":"serving initial configuration"}"#;
        assert_eq!(Json::default().parse(other), Ok(Line::Left(Reason::OtherRecord)));
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(Json::default().parse(deep.as_bytes()), Err(Reason::Json));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(prop::sample::select(b"{}[]\"\\:,1ua \xff".to_vec()), 0..60)) {
            let _ = Json::default().parse(&bytes);
            let mut line = br#"{"ts":1,"uri":""#.to_vec();
            line.extend(&bytes);
            line.extend(br#""}"#);
            let _ = Json::default().parse(&line);
        }

        #[test]
        fn whatever_is_nested_in_a_line_is_passed_over(value in nested()) {
            let line = format!("{{\"ts\":5,\"uri\":\"/a\",\"x\":{value}}}");
            let mut json = Json::default();
            let parsed = json.parse(line.as_bytes());
            let is_read = matches!(parsed, Ok(Line::Request(Request { unix_s: 5, target: b"/a", .. })));
            prop_assert!(is_read, "{}", line);
        }
    }

    fn nested() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_owned()),
            Just("-1.5e+3".to_owned()),
            Just(r#""a\"\\\u1234""#.to_owned())
        ];
        leaf.prop_recursive(6, 40, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(|all| format!("[{}]", all.join(" , "))),
                prop::collection::vec(inner, 0..4).prop_map(|all| format!(
                    "{{{}}}",
                    all.iter().map(|v| format!("\"k\" :{v}")).collect::<Vec<_>>().join(",")
                )),
            ]
        })
    }
}
