//! Bytes that no peer should send: every parser answers, none panics, and no offset lies outside of the message.

use std::ops::Range;

use clockwork_wire::nfs3::{
    Arguments, Procedure, Results, arguments, attributes, entries, entries_plus, results,
};
use clockwork_wire::portmap::{self, Mapping};
use clockwork_wire::{mount, rpc};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::samples::{Sample, Values, values};

/// The spans of arguments, and the places that may be overwritten with their widths in bytes.
fn places(read: &Arguments) -> Vec<Range<usize>> {
    let word = |at: &usize| *at..*at + 4;
    let verifier = |at: &usize| *at..*at + 8;
    match read {
        Arguments::Null => vec![],
        Arguments::Handle { handle }
        | Arguments::Setattr { handle, .. }
        | Arguments::Commit { handle, .. } => vec![handle.clone()],
        Arguments::Name { dir, name } | Arguments::Make { dir, name, .. } => vec![dir.clone(), name.clone()],
        Arguments::Read { handle, count_at, .. } => vec![handle.clone(), word(count_at)],
        Arguments::Write { handle, count_at, stable_at, length_at, data, .. } => {
            vec![handle.clone(), word(count_at), word(stable_at), word(length_at), data.clone()]
        }
        Arguments::Rename { from_dir, from_name, to_dir, to_name } => {
            vec![from_dir.clone(), from_name.clone(), to_dir.clone(), to_name.clone()]
        }
        Arguments::Link { handle, dir, name } => vec![handle.clone(), dir.clone(), name.clone()],
        Arguments::Readdir { dir, verifier_at, count_at, .. } => {
            vec![dir.clone(), verifier(verifier_at), word(count_at)]
        }
        Arguments::Readdirplus { dir, verifier_at, dircount_at, maxcount_at, .. } => {
            vec![dir.clone(), verifier(verifier_at), word(dircount_at), word(maxcount_at)]
        }
    }
}

/// Reads `message` as arguments of `procedure` from byte `at` on and checks all offsets.
fn survive_arguments(procedure: Procedure, message: &[u8], at: usize) {
    if let Ok(read) = arguments(procedure, message, at) {
        let handle = read.handle();
        assert_eq!(handle.is_none(), procedure == Procedure::Null);
        if let Some(handle) = handle {
            assert!((1..=64).contains(&handle.len()), "{handle:?}");
        }
        for place in places(&read) {
            assert!(at <= place.start && message.get(place.clone()).is_some(), "{place:?} of {read:?}");
        }
    }
}

/// Reads `message` as results of `procedure` from byte `at` on, and all that they point to.
fn survive_results(procedure: Procedure, message: &[u8], at: usize) {
    let inside = |place: Range<usize>| assert!(message.get(place.clone()).is_some(), "{place:?}");
    let whole = |at: Option<usize>| at.is_none_or(|at| attributes(message, at).is_some());
    match results(procedure, message, at) {
        Err(_) | Ok(Results::Failed { .. } | Results::Read { .. } | Results::Other) => {}
        Ok(Results::Lookup { handle, attributes_at }) => {
            inside(handle);
            assert!(whole(attributes_at));
        }
        Ok(Results::Made { handle, attributes_at }) => {
            handle.into_iter().for_each(inside);
            assert!(whole(attributes_at));
        }
        Ok(Results::Write { count_at, verifier_at, .. }) => {
            inside(count_at..count_at + 4);
            inside(verifier_at..verifier_at + 8);
        }
        Ok(Results::Commit { verifier_at }) => inside(verifier_at..verifier_at + 8),
        Ok(Results::Readdir { verifier_at, entries_at }) => {
            inside(verifier_at..verifier_at + 8);
            entries(message, entries_at).for_each(|entry| inside(entry.name));
        }
        Ok(Results::Readdirplus { verifier_at, entries_at }) => {
            inside(verifier_at..verifier_at + 8);
            for entry in entries_plus(message, entries_at) {
                inside(entry.name);
                entry.handle.into_iter().for_each(inside);
                assert!(whole(entry.attributes_at));
            }
        }
        Ok(Results::Fsinfo { sizes_at }) => inside(sizes_at..sizes_at + 28),
        Ok(Results::Getattr { attributes_at }) => assert!(whole(Some(attributes_at))),
        Ok(Results::Readlink { target }) => inside(target),
    }
}

/// Every parser, on one message.
fn survive(message: &[u8], at: usize) {
    if let Ok(call) = rpc::parse_call(message) {
        assert!(message.get(call.credential.clone()).is_some() && call.arguments <= message.len());
        assert!((8..=408).contains(&call.credential.len()));
    }
    if let Ok(rpc::Reply { body: rpc::ReplyBody::Accepted { results, .. }, .. }) = rpc::parse_reply(message) {
        assert!(results <= message.len());
    }
    for procedure in Procedure::ALL {
        survive_arguments(procedure, message, at);
        survive_results(procedure, message, at);
    }
    if let Ok(path) = mount::path(message, at) {
        assert!(message.get(path).is_some());
    }
    if let Ok(mount::MntResults::Ok { handle, flavors }) = mount::mnt_results(message, at) {
        assert!(message.get(handle).is_some() && flavors.len() * 4 <= message.len());
    }
    let mut out = Vec::new();
    let mapping = Mapping { program: 100_003, version: 3, protocol: portmap::TCP, port: 2049 };
    let handled = portmap::answer(message, &[mapping], &mut out);
    assert_eq!(out.is_empty(), handled == portmap::Handled::Dropped);
}

/// Words that are more likely than others to lead a parser astray.
fn word() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => 0..10_u32,
        2 => any::<u32>(),
        1 => prop_oneof![Just(u32::MAX), Just(u32::MAX - 3), Just(1 << 31), Just(64), Just(65), Just(401)],
        1 => prop_oneof![Just(100_000), Just(100_003), Just(100_005)],
    ]
}

/// A change of a valid message: a word overwritten, a byte overwritten, a cut, a word put in between.
#[derive(Clone, Debug)]
enum Mutation {
    Word(Index, u32),
    Byte(Index, u8),
    Cut(Index),
    Insert(Index, u32),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        (any::<Index>(), word()).prop_map(|(at, value)| Mutation::Word(at, value)),
        (any::<Index>(), any::<u8>()).prop_map(|(at, value)| Mutation::Byte(at, value)),
        any::<Index>().prop_map(Mutation::Cut),
        (any::<Index>(), word()).prop_map(|(at, value)| Mutation::Insert(at, value)),
    ]
}

fn mutate(message: &mut Vec<u8>, mutation: &Mutation) {
    let length = message.len();
    match mutation {
        Mutation::Cut(at) => message.truncate(at.index(length + 1)),
        Mutation::Insert(at, value) => {
            let at = at.index(length / 4 + 1) * 4;
            message.splice(at..at, value.to_be_bytes());
        }
        Mutation::Word(at, value) if length >= 4 => {
            let at = at.index(length / 4) * 4;
            message[at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
        Mutation::Byte(at, value) if length > 0 => message[at.index(length)] = *value,
        Mutation::Word(..) | Mutation::Byte(..) => {}
    }
}

fn mutated(samples: Vec<Sample>, mutations: &[Mutation]) {
    for Sample { mut message, at, .. } in samples {
        mutations.iter().for_each(|mutation| mutate(&mut message, mutation));
        survive(&message, at);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn random_bytes_are_survived(message in vec(any::<u8>(), 0..300), at in 0..400_usize) {
        survive(&message, at);
    }

    #[test]
    fn random_words_are_survived(words in vec(word(), 0..100), at in 0..100_usize) {
        let message: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        survive(&message, at * 4);
    }

    #[test]
    fn mutated_calls_and_replies_are_survived(values in values(), mutations in vec(mutation(), 1..4)) {
        let small = Values { data: values.data[..values.data.len().min(40)].to_vec(), ..values };
        mutated(small.calls(), &mutations);
        mutated(small.replies(), &mutations);
    }
}

#[test]
fn positions_at_the_end_of_the_number_line_are_survived() {
    for at in [usize::MAX, usize::MAX - 3, usize::MAX - 8] {
        survive(&[0; 64], at);
    }
}
