use super::*;
use proptest::prelude::*;

/// Everything unsent, as one piece.
fn unsent(log: &SendLog) -> Vec<u8> {
    let mut slices = Vec::new();
    log.unsent(&mut slices);
    slices.iter().map(|slice| &**slice).collect::<Vec<&[u8]>>().concat()
}

fn record(call: &[u8]) -> Vec<u8> {
    let length = u32::try_from(call.len()).unwrap();
    [&(LAST_FRAGMENT | length).to_be_bytes(), call].concat()
}

#[test]
fn a_record_is_its_mark_and_its_parts() {
    let mut log = SendLog::new(1000);
    let position = log.push(&[b"head", b"", b"body"]).unwrap();
    assert_eq!(log.call(position), b"headbody");
    assert_eq!(unsent(&log), b"\x80\0\0\x08headbody");
    log.call_mut(position)[..4].copy_from_slice(b"HEAD");
    log.sent(7);
    assert_eq!(unsent(&log), b"Dbody");
    log.sent(5);
    assert!(!log.has_unsent());
    assert_eq!(log.call(position), b"HEADbody", "kept until the reply has come");
    log.release(position);
    assert_eq!(log.bytes(), 0);
}

#[test]
fn small_records_leave_in_one_slice_and_many_chunks_in_at_most_64() {
    let mut log = SendLog::new(1 << 30);
    for _ in 0..100 {
        log.push(&[b"a small call"]).unwrap();
    }
    let mut slices = Vec::new();
    log.unsent(&mut slices);
    assert_eq!(slices.len(), 1);
    let mut log = SendLog::new(1 << 30);
    for _ in 0..SLICES_MAX + 10 {
        log.push(&[&[0; CHUNK_BYTES / 2]]).unwrap();
    }
    let mut slices = Vec::new();
    log.unsent(&mut slices);
    assert_eq!(slices.len(), SLICES_MAX);
}

#[test]
fn a_released_record_that_is_half_sent_is_sent_whole() {
    let mut log = SendLog::new(1000);
    let first = log.push(&[b"first"]).unwrap();
    log.sent(6);
    log.release(first);
    log.push(&[b"second"]).unwrap();
    assert_eq!(unsent(&log), b"rst\x80\0\0\x06second");
}

#[test]
fn a_full_log_refuses_and_says_how_full_it_is() {
    let mut log = SendLog::new(100);
    let first = log.push(&[&[1; 50]]).unwrap();
    let full = log.push(&[&[2; 50]]).unwrap_err();
    assert_eq!(full, LogFull { record_bytes: 54, held_bytes: 54, bytes_max: 100 });
    // Sending it all again after the link was lost may use as much again, but no more than that.
    log.discard_unsent();
    let second = log.requeue(first).unwrap();
    assert_eq!(log.call(second), [1; 50]);
    assert_eq!(unsent(&log), record(&[1; 50]));
    let third = log.requeue(second).unwrap();
    let fourth = log.requeue(third).unwrap();
    assert_eq!(log.bytes(), 3 * 54, "requeued before they were sent: all three copies are still to be sent");
    assert!(log.requeue(fourth).is_err());
    assert_eq!(log.call(fourth), [1; 50], "still there");
    log.sent(3 * 54);
    log.release(fourth);
    assert_eq!(log.bytes(), 0);
    assert!(log.push(&[&[3; 96]]).is_ok());
}

#[test]
fn chunks_are_recycled() {
    let mut log = SendLog::new(1 << 30);
    let mut waiting = VecDeque::new();
    for n in 0..200_000usize {
        waiting.push_back(log.push(&[&[7; 120]]).unwrap());
        if n % 3 == 0 {
            log.sent(log.unsent_bytes());
        }
        if waiting.len() > 3000 {
            log.sent(log.unsent_bytes());
            log.release(waiting.pop_front().unwrap());
        }
    }
    assert!(log.chunks.len() <= 4, "{} chunks for 3,000 records outstanding", log.chunks.len());
    log.sent(log.unsent_bytes());
    waiting.into_iter().for_each(|position| log.release(position));
    assert_eq!((log.bytes(), log.chunks.len() - log.vacant.len()), (0, 1));
    // Long records reuse their buffer.
    let mut seen = std::collections::HashSet::new();
    for _ in 0..50 {
        let position = log.push(&[&[7; 1 << 20]]).unwrap();
        seen.insert(log.call(position).as_ptr());
        log.sent(log.unsent_bytes());
        log.release(position);
    }
    assert!(seen.len() <= 2, "{} buffers for one long record at a time", seen.len());
    assert!(log.spare.len() <= SPARE_CHUNKS_MAX && log.spare_long.len() <= SPARE_LONG_CHUNKS_MAX);
}

#[test]
fn one_unanswered_call_does_not_hold_its_neighbours_once_relocated() {
    let mut log = SendLog::new(10 << 20);
    let stuck = log.push(&[b"stuck"]).unwrap();
    assert_eq!(log.relocate(stuck), stuck, "not sent yet: it stays");
    let others: Vec<_> = (0..1000).map(|_| log.push(&[&[7; 120]]).unwrap()).collect();
    log.sent(log.unsent_bytes());
    others.into_iter().for_each(|position| log.release(position));
    assert!(log.bytes() > 120_000);
    let moved = log.relocate(stuck);
    assert_eq!((log.bytes(), log.call(moved)), (5, b"stuck".as_slice()));
    assert_eq!(log.relocate(moved), moved);
    let again = log.requeue(moved).unwrap();
    assert_eq!(unsent(&log), record(b"stuck"));
    log.sent(9);
    log.release(again);
    assert_eq!(log.bytes(), 0);
}

#[test]
fn datagrams_come_one_by_one_without_marks() {
    let mut log = SendLog::new(1 << 20);
    assert_eq!(log.next_datagram(), None);
    log.datagram_sent();
    for call in [b"one".as_slice(), b"", b"three"] {
        log.push(&[call]).unwrap();
    }
    for call in [b"one".as_slice(), b"", b"three"] {
        assert_eq!(log.next_datagram(), Some(call));
        log.datagram_sent();
    }
    assert_eq!((log.next_datagram(), log.has_unsent()), (None, false));
}

#[derive(Clone, Debug)]
enum Step {
    Push(usize),
    Send(prop::sample::Index),
    SendAll,
    Datagram,
    Release(prop::sample::Index),
    Requeue(prop::sample::Index),
    Relocate(prop::sample::Index),
    Discard,
}

fn step() -> impl Strategy<Value = Step> {
    let length = prop_oneof![8 => 0usize..200, 3 => 60_000usize..140_000, 1 => 250_000usize..300_000];
    prop_oneof![
        8 => length.prop_map(Step::Push),
        4 => any::<prop::sample::Index>().prop_map(Step::Send),
        1 => Just(Step::SendAll),
        2 => Just(Step::Datagram),
        6 => any::<prop::sample::Index>().prop_map(Step::Release),
        2 => any::<prop::sample::Index>().prop_map(Step::Requeue),
        2 => any::<prop::sample::Index>().prop_map(Step::Relocate),
        1 => Just(Step::Discard),
    ]
}

/// The naive log: a string of bytes to be written, and a list of calls.
#[derive(Default)]
struct Model {
    wire: Vec<u8>,
    /// Whether the wire begins at a record's mark.
    at_mark: bool,
    calls: Vec<(LogPosition, Vec<u8>)>,
}

impl Model {
    fn written(&mut self, log: &mut SendLog, bytes: usize) {
        let slices = unsent(log);
        let bytes = bytes.min(slices.len());
        assert!(slices[..bytes] == self.wire[..bytes], "what is sent is what was pushed");
        log.sent(bytes);
        // Follow the marks to know whether the rest begins with one.
        self.wire.drain(..bytes);
        self.at_mark = false;
    }

    fn step(&mut self, log: &mut SendLog, number: usize, step: Step) {
        let pick =
            |index: prop::sample::Index| (!self.calls.is_empty()).then(|| index.index(self.calls.len()));
        match step {
            Step::Push(length) => {
                let pattern: Vec<u8> = (0..251usize).map(|n| (n * (number + 3)).to_le_bytes()[0]).collect();
                let mut call = pattern.repeat(length / 251 + 1);
                call.truncate(length);
                let (head, body) = call.split_at(length / 3);
                let position = log.push(&[head, body]).unwrap();
                if self.wire.is_empty() {
                    self.at_mark = true;
                }
                self.wire.extend(record(&call));
                self.calls.push((position, call));
            }
            Step::Send(index) => {
                let bytes = index.index(self.wire.len() + 1);
                if bytes > 0 {
                    self.written(log, bytes);
                }
            }
            Step::SendAll => self.written(log, usize::MAX),
            Step::Datagram if self.at_mark && !self.wire.is_empty() => {
                let datagram = log.next_datagram().unwrap().to_vec();
                assert!(self.wire.starts_with(&record(&datagram)));
                log.datagram_sent();
                self.wire.drain(..datagram.len() + MARK_BYTES);
            }
            Step::Datagram => {}
            Step::Release(index) => {
                if let Some(place) = pick(index) {
                    log.release(self.calls.swap_remove(place).0);
                }
            }
            Step::Requeue(index) => {
                if let Some(place) = pick(index) {
                    let (position, call) = &mut self.calls[place];
                    *position = log.requeue(*position).unwrap();
                    if self.wire.is_empty() {
                        self.at_mark = true;
                    }
                    self.wire.extend(record(call));
                }
            }
            Step::Relocate(index) => {
                if let Some(place) = pick(index) {
                    self.calls[place].0 = log.relocate(self.calls[place].0);
                }
            }
            Step::Discard => {
                log.discard_unsent();
                self.wire.clear();
            }
        }
    }

    fn check(&self, log: &SendLog) {
        assert_eq!(log.unsent_bytes(), self.wire.len());
        assert_eq!(log.has_unsent(), !self.wire.is_empty());
        let live: usize = self.calls.iter().map(|(_, call)| call.len()).sum();
        assert!(log.bytes() >= live);
        for (position, call) in &self.calls {
            assert!(log.call(*position) == call.as_slice(), "a call kept is the call pushed");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn bytes_written_are_the_records_pushed_under_any_interleaving(
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let mut log = SendLog::new(1 << 30);
        let mut model = Model::default();
        for (number, step) in steps.into_iter().enumerate() {
            model.step(&mut log, number, step);
            model.check(&log);
        }
        while log.has_unsent() {
            model.written(&mut log, usize::MAX);
        }
        for (position, call) in std::mem::take(&mut model.calls) {
            prop_assert!(log.call(position) == call.as_slice());
            log.release(position);
        }
        prop_assert_eq!((log.bytes(), log.unsent_bytes()), (0, 0));
        prop_assert!(log.chunks.len() - log.vacant.len() <= 1, "only the tail keeps a buffer");
    }
}
