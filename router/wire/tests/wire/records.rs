//! Record marking: any legal split gives the same messages, and what is no record is noticed at once.

use clockwork_wire::record::{LAST_FRAGMENT, Progress, RecordError, RecordLimits, RecordReader, mark};
use proptest::collection::vec;
use proptest::prelude::*;

/// A GETATTR call of 52 bytes; here only its length and its bytes matter.
fn message() -> Vec<u8> {
    (0..52).map(|byte| byte ^ 0x5a).collect()
}

/// One record in fragments of the given sizes; the last fragment takes what is left.
fn fragmented(message: &[u8], sizes: &[usize]) -> Vec<u8> {
    let mut wire = Vec::new();
    let mut rest = message;
    for &size in sizes {
        let (fragment, behind) = rest.split_at(size.min(rest.len()));
        wire.extend(u32::try_from(fragment.len()).unwrap().to_be_bytes());
        wire.extend(fragment);
        rest = behind;
    }
    wire.extend(mark(rest.len()));
    wire.extend(rest);
    wire
}

/// What a connection does: appends what arrives, takes the records out, keeps the rest.
fn receive(limits: RecordLimits, chunks: &[&[u8]]) -> Result<Vec<Vec<u8>>, RecordError> {
    let mut reader = RecordReader::new(limits);
    let (mut buf, mut messages) = (Vec::new(), Vec::new());
    for chunk in chunks {
        buf.extend_from_slice(chunk);
        loop {
            match reader.next(&mut buf)? {
                Progress::Record { end, consumed } => {
                    assert!(4 <= end && end <= consumed && consumed <= buf.len());
                    assert_eq!(buf[..4], mark(end - 4), "the mark of a single fragment");
                    messages.push(buf[4..end].to_vec());
                    buf.drain(..consumed);
                }
                Progress::Partial { wanted } => {
                    assert!(wanted > buf.len(), "{wanted} bytes are there already");
                    break;
                }
            }
        }
    }
    assert!(buf.is_empty(), "{} bytes are left", buf.len());
    Ok(messages)
}

fn one_chunk(wire: &[u8]) -> Result<Vec<Vec<u8>>, RecordError> {
    receive(RecordLimits::default(), &[wire])
}

fn byte_by_byte(wire: &[u8]) -> Result<Vec<Vec<u8>>, RecordError> {
    receive(RecordLimits::default(), &wire.chunks(1).collect::<Vec<_>>())
}

#[test]
fn a01_one_byte_at_a_time() {
    let wire = fragmented(&message(), &[]);
    assert_eq!(byte_by_byte(&wire), Ok(vec![message()]));
}

#[test]
fn a01_fragments_of_4_bytes() {
    let wire = fragmented(&message(), &[4; 12]);
    assert_eq!(wire.len(), 52 + 13 * 4);
    assert_eq!(one_chunk(&wire), Ok(vec![message()]));
    assert_eq!(byte_by_byte(&wire), Ok(vec![message()]));
}

#[test]
fn a01_an_empty_fragment_first_in_the_middle_and_last() {
    for sizes in [&[0][..], &[0, 0, 0], &[20, 0], &[52], &[0, 52, 0]] {
        let wire = fragmented(&message(), sizes);
        assert_eq!(one_chunk(&wire), Ok(vec![message()]), "{sizes:?}");
        assert_eq!(byte_by_byte(&wire), Ok(vec![message()]), "{sizes:?}");
    }
}

#[test]
fn a01_two_records_in_one_buffer() {
    for sizes in [&[][..], &[4, 4], &[0]] {
        let wire = fragmented(&message(), sizes).repeat(2);
        assert_eq!(one_chunk(&wire), Ok(vec![message(); 2]));
        assert_eq!(byte_by_byte(&wire), Ok(vec![message(); 2]));
    }
}

#[test]
fn a01_fragments_of_65532_bytes_as_unfs3_sends_them() {
    let message: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    let wire = fragmented(&message, &[65_532; 16]);
    let chunks: Vec<_> = wire.chunks(1448).collect();
    assert_eq!(receive(RecordLimits::default(), &chunks), Ok(vec![message]));
}

#[test]
fn a01_a_single_fragment_is_not_touched() {
    let wire = fragmented(&message(), &[]);
    let mut buf = wire.clone();
    let progress = RecordReader::new(RecordLimits::default()).next(&mut buf);
    assert_eq!(progress, Ok(Progress::Record { end: 56, consumed: 56 }));
    assert_eq!(buf, wire);
}

/// A reader that gives the connection exactly what `wanted` asks for gets further by every call.
#[test]
fn a01_what_is_wanted_is_enough_to_get_further() {
    let wire = fragmented(&message(), &[20, 0, 4]);
    let mut reader = RecordReader::new(RecordLimits::default());
    let (mut buf, mut steps) = (Vec::new(), Vec::new());
    let end = loop {
        match reader.next(&mut buf).unwrap() {
            Progress::Partial { wanted } => {
                steps.push(wanted);
                buf.extend_from_slice(&wire[buf.len()..wanted]);
            }
            Progress::Record { end, consumed } => {
                assert_eq!(consumed, wire.len());
                break end;
            }
        }
    };
    // mark, 20 bytes, mark of the empty fragment, mark, 4 bytes, mark, 28 bytes
    assert_eq!(steps, [4, 24, 28, 32, 36, 40, 68]);
    assert_eq!(buf[4..end], message());
}

#[test]
fn a01_the_number_of_fragments_is_bounded() {
    let limits = RecordLimits { fragments_max: 3, ..RecordLimits::default() };
    let wire = fragmented(&message(), &[0, 0]);
    assert_eq!(receive(limits, &[&wire]), Ok(vec![message()]));
    assert_eq!(receive(limits, &[&wire, &wire]), Ok(vec![message(); 2]), "counted per record");
    let wire = fragmented(&message(), &[0, 0, 0]);
    assert_eq!(receive(limits, &[&wire]), Err(RecordError::TooManyFragments { fragments_max: 3 }));
    // A peer that sends empty fragments for ever is stopped by the mark that breaks the limit.
    let endless = vec![0; 4 * 1024];
    assert_eq!(
        one_chunk(&[endless, vec![0; 4]].concat()),
        Err(RecordError::TooManyFragments { fragments_max: 1024 })
    );
}

#[test]
fn a02_hostile_marks_are_errors_at_once() {
    let limit = RecordLimits::default().record_bytes_max;
    let cases: [(&[u8], u32, &str); 4] = [
        (b"\xff\xff\xff\xff", 0xffff_ffff, r#""\xff\xff\xff\xff""#),
        (b"\x13BitTorrent protocol", 0x1342_6974, r#""\x13Bit""#),
        (b"GET / HTTP/1.1", 0x4745_5420, r#""GET ""#),
        (b"\x16\x03\x01\x02\x00\x01\x00", 0x1603_0102, r#""\x16\x03\x01\x02""#), // TLS
    ];
    for (bytes, mark, shown) in cases {
        let error = RecordError::TooLong { mark, record_bytes_max: limit };
        let mut reader = RecordReader::new(RecordLimits::default());
        for seen in 0..4 {
            let mut buf = bytes[..seen].to_vec();
            assert_eq!(reader.next(&mut buf), Ok(Progress::Partial { wanted: 4 }));
        }
        assert_eq!(reader.next(&mut bytes[..4].to_vec()), Err(error), "the mark alone is enough");
        assert_eq!(reader.next(&mut bytes.to_vec()), Err(error), "and it stays an error");
        let text = error.to_string();
        assert!(text.contains(shown) && text.contains("record_bytes_max = 1114112"), "{text}");
    }
}

#[test]
fn a02_a_record_over_the_limit_is_an_error_by_the_mark_that_makes_it_so() {
    let limits = RecordLimits { record_bytes_max: 100, ..RecordLimits::default() };
    let exact = vec![7; 100];
    assert_eq!(receive(limits, &[&fragmented(&exact, &[])]), Ok(vec![exact.clone()]));
    assert_eq!(receive(limits, &[&fragmented(&exact, &[60])]), Ok(vec![exact]));
    // 60 bytes are fine, the mark of 41 more is not, though none of them is there.
    let mut wire = 60_u32.to_be_bytes().to_vec();
    wire.extend([7; 60]);
    wire.extend(mark(41));
    let error = RecordError::TooLong { mark: LAST_FRAGMENT | 41, record_bytes_max: 100 };
    assert_eq!(receive(limits, &[&wire]), Err(error));
}

#[test]
fn marks_of_single_fragments_have_the_last_bit_and_saturate() {
    assert_eq!(mark(0), [0x80, 0, 0, 0]);
    assert_eq!(mark(0x0102_0304), [0x81, 2, 3, 4]);
    assert_eq!(mark(usize::MAX), [0xff; 4]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Any split into fragments and any split into reads gives the same messages.
    #[test]
    fn a01_random_splits_give_identical_messages(
        records in vec((vec(any::<u8>(), 0..400), vec(0..120_usize, 0..8)), 0..5),
        cuts in vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let wire: Vec<u8> = records.iter().flat_map(|(message, sizes)| fragmented(message, sizes)).collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(wire.len() + 1)).collect();
        cuts.extend([0, wire.len()]);
        cuts.sort_unstable();
        let chunks: Vec<&[u8]> = cuts.windows(2).map(|cut| &wire[cut[0]..cut[1]]).collect();
        let messages: Vec<Vec<u8>> = records.into_iter().map(|(message, _)| message).collect();
        prop_assert_eq!(receive(RecordLimits::default(), &chunks), Ok(messages));
    }

    /// Random bytes end in records, a wait for more, or an error; never in a panic or a record out of bounds.
    #[test]
    fn a02_random_bytes_are_survived(bytes in vec(prop_oneof![3 => Just(0_u8), 1 => any::<u8>()], 0..300)) {
        let mut reader = RecordReader::new(RecordLimits { record_bytes_max: 200, fragments_max: 20 });
        let mut buf = bytes;
        while let Ok(Progress::Record { end, consumed }) = reader.next(&mut buf) {
            prop_assert!(4 <= end && end <= consumed && consumed <= buf.len());
            buf.drain(..consumed);
        }
    }
}
