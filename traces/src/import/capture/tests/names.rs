//! Which files a capture is found to be about.

use super::*;

/// Results of READDIRPLUS: names with their handles, and one without.
pub(super) fn listing(entries: &[(String, Vec<u8>)]) -> Vec<Vec<u8>> {
    let mut results = vec![word(0), word(0), vec![0; 8]];
    for (name, handle) in entries {
        results.extend([
            word(1),
            vec![0; 8],
            opaque(name.as_bytes()),
            vec![0; 8],
            word(0),
            word(1),
            opaque(handle),
        ]);
    }
    results.extend([word(1), vec![0; 8], opaque(b"bare"), vec![0; 8], word(0), word(0), word(0), word(1)]);
    results
}

/// The paths of files as an import of the capture names them, with their requests.
fn imported(packets: &[Vec<u8>], open_counts_max: usize) -> Vec<(String, u64)> {
    use crate::import::{ImportOptions, Importer};
    let options = ImportOptions { open_counts_max, ..ImportOptions::default() };
    let mut importer = Importer::new(Vec::new(), options).unwrap();
    importer.read("capture", &pcap(packets)[..]).unwrap();
    let trace = importer.finish().unwrap().0;
    let index = crate::trace_file::TraceIndex::read(&trace[..]).unwrap();
    let path = |file| String::from_utf8_lossy(index.path(file)).into_owned();
    let mut files: Vec<_> =
        (0..).zip(index.requests_by_file()).map(|(file, sum)| (path(file), sum)).collect();
    files.sort();
    files
}

fn files(wanted: &[(&str, u64)]) -> Vec<(String, u64)> {
    wanted.iter().map(|(path, requests)| ((*path).to_owned(), *requests)).collect()
}

#[test]
fn replies_name_files_by_their_paths_also_those_in_use_before() {
    let mount = call_with(1, mount::PROGRAM, 1, &[opaque(b"/export/")]);
    let packets = [
        // In use since before the capture began.
        udp(&call(9, Procedure::Read, b"file")),
        udp(&mount),
        udp_back(&reply(1, &[word(0), opaque(b"root"), word(1), word(1)])),
        udp(&named(2, Procedure::Lookup, b"root", "dir")),
        udp_back(&reply(2, &[word(0), opaque(b"dir"), word(0), word(0)])),
        udp(&named(3, Procedure::Lookup, b"dir", "file")),
        udp_back(&reply(3, &[word(0), opaque(b"file"), word(0), word(0)])),
        udp(&named(4, Procedure::Create, b"dir", "made")),
        udp_back(&reply(4, &[word(0), word(1), opaque(b"made"), word(0), word(0), word(0)])),
        udp(&named(5, Procedure::Lookup, b"dir", "none")),
        udp_back(&reply(5, &[word(2), word(0)])),
        udp(&named(6, Procedure::Lookup, b"far", "away")),
        udp_back(&reply(6, &[word(0), opaque(b"away"), word(0), word(0)])),
        udp(&call(10, Procedure::Read, b"file")),
        udp(&call(11, Procedure::Write, b"made")),
        udp(&call(12, Procedure::Getattr, b"away")),
        udp(&call(13, Procedure::Getattr, b"nameless")),
    ];
    let far = "fh:666172";
    let wanted = [
        ("/export", 1),
        ("/export/dir", 3),
        ("/export/dir/file", 2),
        ("/export/dir/made", 1),
        (far, 1),
        ("fh:666172/away", 1),
        ("fh:6e616d656c657373", 1),
    ];
    assert_eq!(imported(&packets, 400_000), files(&wanted));
    // Names that are written before the path is known stand.
    let early = imported(&packets, 1);
    assert!(early.contains(&("fh:66696c65".into(), 2)), "{early:?}");
    assert!(early.contains(&("/export/dir/made".into(), 1)), "{early:?}");
    let (_, results, _) = seen(&pcap(&packets), false);
    assert_eq!((results[1], results[2], results[10]), (Packet::Other, Packet::Calls(1), Packet::Calls(1)));
}

#[test]
fn requests_count_for_the_name_that_a_file_has_when_they_come() {
    let name = |xid, procedure, directory: &[u8], name: &str, handle: &[u8], size: u64| {
        let mut attributes = vec![0; 84];
        attributes[..4].copy_from_slice(&word(1));
        attributes[20..28].copy_from_slice(&size.to_be_bytes());
        let made = if procedure == Procedure::Create { word(1) } else { Vec::new() };
        let results = [word(0), made, opaque(handle), word(1), attributes, word(0)];
        [udp(&named(xid, procedure, directory, name)), udp_back(&reply(xid, &results))]
    };
    let rename = |xid, from: (&[u8], &str), to: (&[u8], &str)| {
        let arguments =
            [from, to].map(|(directory, name)| [opaque(directory), opaque(name.as_bytes())].concat());
        let ask = udp(&call_with(xid, NFS_PROGRAM, Procedure::Rename.number(), &arguments));
        [ask, udp_back(&reply(xid, &[word(0), word(0), word(0)]))]
    };
    let mut packets = vec![
        udp(&call_with(1, mount::PROGRAM, 1, &[opaque(b"/e")])),
        udp_back(&reply(1, &[word(0), opaque(b"R"), word(0)])),
        udp(&call(2, Procedure::Read, b"F")),
    ];
    packets.extend(name(3, Procedure::Lookup, b"R", "log", b"F", 9_000));
    packets.push(udp(&call(4, Procedure::Write, b"F")));
    packets.extend(rename(5, (b"R", "log"), (b"R", "log.1")));
    packets.push(udp(&call(6, Procedure::Read, b"F")));
    packets.extend(name(7, Procedure::Create, b"R", "log", b"G", 0));
    packets.extend((8..11).map(|xid| udp(&call(xid, Procedure::Write, b"G"))));
    // Saved by way of another name: the handle changes, the file does not.
    packets.extend(name(11, Procedure::Create, b"R", "new", b"H", 0));
    packets.push(udp(&call(12, Procedure::Write, b"H")));
    packets.extend(rename(13, (b"R", "new"), (b"R", "log.1")));
    packets.push(udp(&call(14, Procedure::Read, b"H")));
    // A refused RENAME and REMOVE change nothing; a REMOVE does.
    let remove = |xid, status| {
        let ask = udp(&named(xid, Procedure::Remove, b"R", "log"));
        [ask, udp_back(&reply(xid, &[word(status), word(0)]))]
    };
    packets.extend(remove(15, 13));
    packets.push(udp(&call(16, Procedure::Read, b"G")));
    packets.extend(remove(17, 0));
    packets.push(udp(&call(18, Procedure::Read, b"G")));
    // Names are LOOKUPs, CREATEs, RENAMEs and REMOVEs in the directory.
    let wanted = [("/e", 7), ("/e/log", 6), ("/e/log.1", 2), ("/e/new", 1), ("fh:47", 1)];
    assert_eq!(imported(&packets, 400_000), files(&wanted));
}

#[test]
fn a_listing_over_tcp_names_files_also_where_its_segments_come_in_any_order_or_twice() {
    let entries: Vec<(String, Vec<u8>)> = (0..300_u32)
        .map(|file| (format!("f{file}"), [&b"handle"[..], &file.to_be_bytes()].concat()))
        .collect();
    let asked = call_with(7, NFS_PROGRAM, Procedure::Readdirplus.number(), &[opaque(b"root"), vec![0; 24]]);
    let answer = record(&reply(7, &listing(&entries)));
    let mount = call_with(1, mount::PROGRAM, 1, &[opaque(b"/e")]);
    let mut packets = vec![
        tcp(100, 16, &record(&mount)),
        tcp_back(4_000_000_000, &record(&reply(1, &[word(0), opaque(b"root"), word(0)]))),
        tcp(100 + u32::try_from(record(&mount).len()).unwrap(), 16, &record(&asked)),
    ];
    let begin = 4_000_000_000 + u32::try_from(packets[1].len() - 54).unwrap();
    let mut segments: Vec<Vec<u8>> = answer
        .chunks(1_448)
        .enumerate()
        .map(|(index, part)| tcp_back(begin.wrapping_add(u32::try_from(index * 1_448).unwrap()), part))
        .collect();
    assert!(segments.len() > 8 && answer.len() < 64 << 10, "{}", answer.len());
    segments.swap(1, 3);
    segments.insert(5, segments[1].clone());
    packets.extend(segments);
    packets
        .extend((0..300).map(|file| udp(&call(1_000 + file, Procedure::Getattr, &entries[file as usize].1))));
    let found = imported(&packets, 400_000);
    let wanted: Vec<_> =
        (0..300).map(|file| (format!("/e/f{file}"), 1)).chain([("/e".to_owned(), 1)]).collect();
    assert_eq!(found.len(), 301);
    assert!(wanted.iter().all(|file| found.contains(file)), "{found:?}");
}

#[test]
fn a_reply_whose_segment_is_lost_names_nothing_and_the_next_one_does() {
    let ask = |xid, name: &str| record(&named(xid, Procedure::Lookup, b"root", name));
    let answer = |xid, handle: &[u8]| record(&reply(xid, &[word(0), opaque(handle), word(0), word(0)]));
    let (one, two) = (ask(1, "a"), ask(2, "b"));
    let mut packets = vec![tcp(50, 16, &one), tcp(50 + u32::try_from(one.len()).unwrap(), 16, &two)];
    // The first answer is lost but for its end; the second one begins a segment, far behind.
    packets.push(tcp_back(9_000, &answer(1, b"A")[20..]));
    packets.push(tcp_back(90_000, &answer(2, b"B")));
    packets.extend([udp(&call(8, Procedure::Getattr, b"A")), udp(&call(9, Procedure::Getattr, b"B"))]);
    assert_eq!(imported(&packets, 9), files(&[("fh:41", 1), ("fh:726f6f74", 2), ("fh:726f6f74/b", 1)]));
}
