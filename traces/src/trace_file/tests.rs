use super::*;
use proptest::prelude::*;

fn head() -> Head {
    Head { name: "site".into(), about: "a test".into(), period_s: 3600, origin_s: -7 }
}

fn count(file: u32, requests: u64, writes: u64) -> FileCount {
    FileCount { file, requests, writes, metadata: 0, bytes_read: requests * 1_000, bytes_written: writes }
}

fn small() -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new(), &head()).unwrap();
    writer.name_files([&b"/a"[..], b"/b\xff"]).unwrap();
    writer.counts(-2, &[count(0, 3, 0), count(1, 4, 2)]).unwrap();
    writer.counts(1, &[count(1, 1, 0)]).unwrap();
    writer.name_files([&b"/c"[..]]).unwrap();
    writer.counts(-2, &[count(0, 1, 1), count(2, 1, 0)]).unwrap();
    writer.sizes(&[(0, 9), (2, 8)]).unwrap();
    writer.span(Span { first: -2, periods: 5, silent_is_zero: false }).unwrap();
    writer.clients(&[Client { number: 1, requests: 9, address: Vec::new() }]).unwrap();
    writer.finish().unwrap()
}

/// Reads all blocks.
fn blocks(bytes: &[u8]) -> Result<Vec<Block>, TraceFileError> {
    let mut reader = TraceReader::new(bytes)?;
    let mut blocks = Vec::new();
    while let Some(block) = reader.next_block()? {
        blocks.push(block);
    }
    Ok(blocks)
}

#[test]
fn what_is_written_is_read_back_and_counts_of_a_period_add_up() {
    let data = TraceData::read(&small()[..]).unwrap();
    assert_eq!(data.head, head());
    assert_eq!(data.periods[&-2], [count(0, 4, 1), count(1, 4, 2), count(2, 1, 0)]);
    assert_eq!(data.files[1], TracedFile { path: b"/b\xff".to_vec(), bytes: 0 });
    assert_eq!(data.files[2].bytes, 8);
    assert_eq!(data.span(), Some((-2, 5)));
    assert_eq!(data.totals(), [Some(9), None, None, Some(1), None]);
    assert_eq!(data.clients[&1].requests, 9);
}

#[test]
fn silence_is_missing_or_zero_as_stated() {
    let mut writer = TraceWriter::new(Vec::new(), &head()).unwrap();
    writer.name_files([&b"/a"[..]]).unwrap();
    writer.counts(1, &[count(0, 2, 0)]).unwrap();
    writer.span(Span { first: 0, periods: 3, silent_is_zero: true }).unwrap();
    let data = TraceData::read(&writer.finish().unwrap()[..]).unwrap();
    assert_eq!(data.totals(), [Some(0), Some(2), Some(0)]);
}

/// All periods of an index, with their counts.
fn by_index(bytes: &[u8]) -> (TraceIndex, Vec<(i64, Vec<FileCount>)>) {
    let index = TraceIndex::read(bytes).unwrap();
    let mut reader = index.counts(std::io::Cursor::new(bytes));
    let mut periods = Vec::new();
    while let Some((period, counts)) = reader.next_period().unwrap() {
        periods.push((period, counts.to_vec()));
    }
    drop(reader);
    (index, periods)
}

#[test]
fn an_index_says_what_the_whole_says_and_reads_periods_in_order() {
    let (bytes, data) = (small(), TraceData::read(&small()[..]).unwrap());
    let (index, periods) = by_index(&bytes);
    assert_eq!(periods, data.periods.clone().into_iter().collect::<Vec<_>>());
    assert_eq!((index.head(), index.span(), index.totals()), (&data.head, data.span(), data.totals()));
    let sum = index.sum();
    assert_eq!((index.requests(), sum.writes, sum.bytes_read, index.clients()), (10, 3, 10_000, 1));
    let files: Vec<(&[u8], u64)> = (0..3).map(|file| (index.path(file), index.size(file))).collect();
    assert_eq!(files, data.files.iter().map(|file| (&file.path[..], file.bytes)).collect::<Vec<_>>());
    assert_eq!(index.requests_by_file().collect::<Vec<_>>(), [4, 5, 1]);
    assert_eq!((index.path(3), index.size(3), index.requests_in(0)), (&b""[..], 0, None));
}

#[test]
fn a_file_that_changes_under_its_index_is_noticed() {
    let bytes = small();
    let index = TraceIndex::read(&bytes[..]).unwrap();
    let mut damaged = bytes.clone();
    // The block of counts that stands first, which is of the first period.
    let mut reader = TraceReader::new(&bytes[..]).unwrap();
    let mut at = reader.position();
    while !matches!(reader.next_block().unwrap(), Some(Block::Counts(_))) {
        at = reader.position();
    }
    damaged[at as usize + 6] ^= 1;
    let error = index.counts(std::io::Cursor::new(&damaged)).next_period().unwrap_err();
    assert!(matches!(error, TraceFileError::Checksum { block, .. } if block == at), "{error}");
    let short = &bytes[..at as usize + 3];
    let error = index.counts(std::io::Cursor::new(short)).next_period().unwrap_err();
    assert!(matches!(error, TraceFileError::Cut { .. }), "{error}");
}

/// A file of version 1: `/a` with 5 requests, of which 2 changed it, and 700 bytes; `/b` with 3 that all changed it, and 90.
fn of_version_1() -> Vec<u8> {
    let block = |kind: u8, payload: &[u8]| {
        let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
        let mut bytes = [&[kind][..], &length, payload].concat();
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes
    };
    // 700 in LEB128 is bc 05, the period of 3,600 s is 90 1c.
    let counts = [0, 2, 0, 5 << 1 | 1, 2, 0xbc, 5, 0, 3 << 1 | 1, 3, 90];
    [
        &SIGNATURE[..],
        &[1, 0, 0, 0],
        &block(b'H', b"\x90\x1c\x00\x04site\x00"),
        &block(b'F', b"\x00\x02\x02/a\x02/b"),
        &block(b'C', &counts),
        &block(b'E', &[8, 2, 3]),
    ]
    .concat()
}

#[test]
fn a_file_of_version_1_is_read_and_appended_to() {
    let old = of_version_1();
    let wanted = [
        FileCount { file: 0, requests: 5, writes: 2, bytes_read: 700, ..FileCount::default() },
        FileCount { file: 1, requests: 3, writes: 3, bytes_written: 90, ..FileCount::default() },
    ];
    let (index, periods) = by_index(&old);
    assert_eq!((index.version(), index.head().period_s), (1, 3_600));
    assert_eq!(periods, [(0, wanted.to_vec())]);
    assert_eq!(TraceData::read(&old[..]).unwrap().periods[&0], wanted);
    let (mut writer, _) = TraceWriter::append(&old[..], Vec::new(), |_, _| ()).unwrap();
    let more = FileCount { file: 1, requests: 2, metadata: 1, bytes_read: 4, ..FileCount::default() };
    writer.counts(0, &[more]).unwrap();
    let (index, periods) = by_index(&writer.finish().unwrap());
    let mut both = wanted[1];
    both.add(&more);
    assert_eq!((index.version(), index.requests()), (VERSION, 10));
    assert_eq!(periods, [(0, vec![wanted[0], both])]);
}

#[test]
fn a_file_is_appended_to() {
    let mut seen = 0;
    let (mut writer, old) = TraceWriter::append(&small()[..], Vec::new(), |_, block| {
        seen += usize::from(matches!(block, Block::Files { .. }))
    })
    .unwrap();
    assert_eq!((old, seen, writer.files()), (head(), 2, 3));
    writer.name_files([&b"/d"[..]]).unwrap();
    writer.counts(9, &[count(3, 5, 0)]).unwrap();
    let data = TraceData::read(&writer.finish().unwrap()[..]).unwrap();
    assert_eq!((data.files.len(), data.span()), (4, Some((-2, 12))));
    assert_eq!(data.totals().into_iter().flatten().sum::<u64>(), 15);
}

#[test]
fn a14_every_cut_is_noticed_with_its_position() {
    let whole = small();
    for length in 0..whole.len() {
        let error = blocks(&whole[..length]).unwrap_err();
        match error {
            TraceFileError::NotATrace => assert_eq!(length, 0),
            TraceFileError::Cut { at, block } => assert!(at == length as u64 && block <= at, "{length}"),
            TraceFileError::NoEnd { at } => assert_eq!(at, length as u64),
            other => panic!("cut at {length}: {other}"),
        }
    }
}

#[test]
fn a14_a_trace_of_another_version_and_a_checksum_error_are_named() {
    let mut bytes = small();
    for version in [0, 3, 255] {
        bytes[8] = version;
        let error = blocks(&bytes).unwrap_err();
        assert!(matches!(error, TraceFileError::Version { found } if found == u32::from(version)));
        assert!(error.to_string().contains("versions 1 to 2"), "{error}");
    }
    let mut bytes = small();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let error = blocks(&bytes).unwrap_err();
    assert!(matches!(error, TraceFileError::Checksum { .. }), "{error}");
    assert!(matches!(blocks(b"\x89CWTgarbage.....garbage"), Err(TraceFileError::NotATrace)));
}

#[test]
fn an_unknown_kind_is_skipped_if_it_is_a_small_letter_and_refused_otherwise() {
    let with = |kind: u8| {
        let mut bytes = TraceWriter::new(Vec::new(), &head()).unwrap().finish().unwrap();
        let start = [kind, 1, 0, 0, 0, 7];
        bytes.extend(start);
        bytes.extend(crc32fast::hash(&start).to_le_bytes());
        let mut end = vec![b'E', 3, 0, 0, 0, 0, 0, 3];
        let sum = crc32fast::hash(&end);
        end.extend(sum.to_le_bytes());
        bytes.extend(end);
        blocks(&bytes)
    };
    assert_eq!(with(b'z').unwrap().len(), 2);
    assert!(matches!(with(b'Z'), Err(TraceFileError::Block { .. })));
}

proptest! {
    #[test]
    fn random_bytes_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        kind in prop::sample::select(b"HFCSPaE".to_vec()),
    ) {
        let _ = blocks(&bytes);
        // The same as the payload of a sound block.
        let mut sealed = small();
        let start = sealed.len();
        sealed.push(kind);
        sealed.extend(u32::try_from(bytes.len()).unwrap().to_le_bytes());
        sealed.extend(&bytes);
        let sum = crc32fast::hash(&sealed[start..]);
        sealed.extend(sum.to_le_bytes());
        let _ = blocks(&sealed);
        let _ = TraceData::read(&sealed[..]);
        let _ = TraceIndex::read(&sealed[..]);
    }

    #[test]
    fn every_flipped_bit_is_noticed(at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut bytes = small();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(blocks(&bytes).is_err());
    }

    #[test]
    fn counts_come_back(
        periods in prop::collection::btree_map(-1_000_000i64..1_000_000, prop::collection::btree_map(0u32..50, (1u64..1 << 40, 0u64..1 << 50), 1..30), 1..10),
    ) {
        let mut writer = TraceWriter::new(Vec::new(), &head()).unwrap();
        let names: Vec<Vec<u8>> = (0..50).map(|n| format!("/f{n}").into_bytes()).collect();
        writer.name_files(names.iter().map(Vec::as_slice)).unwrap();
        let mut wanted = std::collections::BTreeMap::new();
        for (period, files) in &periods {
            let counts: Vec<FileCount> = files
                .iter()
                .map(|(file, (requests, bytes))| {
                    let (writes, metadata) = (requests / 2, requests % 5 * requests / 10);
                    let bytes_written = if writes > 0 { bytes / 3 } else { 0 };
                    FileCount { file: *file, requests: *requests, writes, metadata, bytes_read: *bytes, bytes_written }
                })
                .collect();
            writer.counts(*period, &counts).unwrap();
            wanted.insert(*period, counts);
        }
        let bytes = writer.finish().unwrap();
        let data = TraceData::read(&bytes[..]).unwrap();
        prop_assert_eq!(&data.periods, &wanted);
        prop_assert_eq!(by_index(&bytes).1, wanted.into_iter().collect::<Vec<_>>());
    }
}
