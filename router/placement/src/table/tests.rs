use super::*;
use crate::read_point;
use proptest::prelude::*;

const SEED: u64 = 7;

fn plex(stores: &[(&str, f64)]) -> Table {
    Table::new(SEED, entries(stores)).unwrap()
}

fn entries(stores: &[(&str, f64)]) -> Vec<StoreEntry> {
    stores.iter().map(|&(name, weight)| StoreEntry::up(name, weight)).collect()
}

fn in_states(states: &[StoreState]) -> Vec<StoreEntry> {
    let names = ["amber", "birch", "cedar", "dogwood"];
    names
        .iter()
        .zip(states)
        .map(|(&name, &state)| StoreEntry { state, ..StoreEntry::up(name, 1.0) })
        .collect()
}

/// Handles like those of real servers: alike but for a few bytes, of several lengths.
fn handles(count: u32) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(|n| {
        let length = [8, 20, 28, 64][usize::try_from(n % 4).unwrap()];
        let mut handle = vec![1; length];
        handle[4..8].copy_from_slice(&n.to_be_bytes());
        handle
    })
}

fn route(table: &Table, handle: &[u8]) -> Option<StoreId> {
    table.route(handle, table.hash(handle))
}

fn name<'a>(table: &'a Table, handle: &[u8]) -> &'a str {
    &table.stores()[route(table, handle).unwrap().index()].name
}

/// Share of 60,000 handles that go to each store.
fn shares(table: &Table) -> Vec<f64> {
    let mut counts = vec![0.0; table.stores().len()];
    for handle in handles(60_000) {
        counts[route(table, &handle).unwrap().index()] += 1.0 / 60_000.0;
    }
    counts
}

#[test]
fn shares_follow_the_weights() {
    let table = plex(&[("a", 1.0), ("b", 1.2), ("c", 1.5), ("d", 2.0)]);
    for (share, weight) in shares(&table).iter().zip([1.0, 1.2, 1.5, 2.0]) {
        // Bucket and handle sampling together: a standard deviation of about .0025; four of them.
        assert!((share - weight / 5.7).abs() < 0.01, "share {share} of weight {weight}");
    }
    // Only ratios count, and neither extreme of the scale is special.
    assert!(shares(&plex(&[("a", 1e-300), ("b", 1e-300)])).iter().all(|share| (share - 0.5).abs() < 0.01));
    let uneven = shares(&plex(&[("a", WEIGHT_MAX), ("b", 1.0)]));
    assert!(uneven[0] > 0.999, "{uneven:?}");
}

#[test]
fn the_order_of_the_stores_does_not_matter() {
    let one = plex(&[("a", 1.0), ("b", 2.0), ("c", 1.0)]);
    let other = plex(&[("c", 1.0), ("a", 1.0), ("b", 2.0)]);
    assert!(handles(5_000).all(|handle| name(&one, &handle) == name(&other, &handle)));
}

#[test]
fn a_store_more_or_less_moves_only_its_share() {
    let three = plex(&[("a", 1.0), ("b", 2.0), ("c", 1.0)]);
    let four = three.with_stores(entries(&[("a", 1.0), ("b", 2.0), ("new", 1.0), ("c", 1.0)])).unwrap();
    let mut moved = 0;
    for handle in handles(20_000) {
        if name(&three, &handle) != name(&four, &handle) {
            assert_eq!(name(&four, &handle), "new");
            moved += 1;
        }
    }
    assert!((3_700..4_300).contains(&moved), "{moved} of 20,000 moved, a fifth should");
    // And back: dropping it restores every route.
    let back = four.with_stores(three.stores().to_vec()).unwrap();
    assert!(handles(5_000).all(|handle| route(&back, &handle) == route(&three, &handle)));
}

#[test]
fn raising_a_weight_moves_files_to_that_store_only() {
    let before = plex(&[("a", 1.0), ("b", 1.0), ("c", 1.0)]);
    let after = before.with_stores(entries(&[("a", 1.0), ("b", 1.5), ("c", 1.0)])).unwrap();
    let moved = handles(5_000).filter(|handle| route(&before, handle) != route(&after, handle));
    let moved: Vec<_> = moved.collect();
    assert!(!moved.is_empty());
    assert!(moved.iter().all(|handle| name(&after, handle) == "b"));
}

/// Other routers of the plex and later versions must agree: these values never change.
#[test]
fn what_a_change_of_weights_moves_is_told_and_is_the_least() {
    let before = plex(&[("a", 1.0), ("b", 1.0), ("c", 1.0)]);
    let after = before.with_stores(entries(&[("a", 0.8), ("b", 0.9), ("c", 1.3)])).unwrap();
    let moved: Vec<(String, String)> = handles(20_000)
        .map(|handle| (name(&before, &handle).to_owned(), name(&after, &handle).to_owned()))
        .filter(|(from, to)| from != to)
        .collect();
    let part = before.default_rule_differs(&after);
    assert!((moved.len() as f64 / 20_000.0 - part).abs() < 0.01, "{} {part}", moved.len());
    assert_eq!(part, after.default_rule_differs(&before));
    // Store c gains .1 of all and takes it from the others; what a loses to b beside that is little.
    assert!((0.1..0.13).contains(&part), "{part}");
    assert!(
        moved.iter().all(|(from, to)| from != "c" && (to == "c" || from == "a")),
        "only towards those that gained"
    );
    // In another order, or times two, the weights are the same.
    assert_eq!(after.default_rule_differs(&plex(&[("c", 2.6), ("a", 1.6), ("b", 1.8)])), 0.0);
    // An exception stays, wherever the default rule sends its file.
    let file = handles(20_000).find(|h| name(&before, h) == "a" && name(&after, h) == "c").unwrap();
    let pinned = before.with_exception(&file, before.store_named("a").unwrap()).unwrap();
    let then = pinned.with_stores(entries(&[("a", 0.8), ("b", 0.9), ("c", 1.3)])).unwrap();
    assert_eq!(name(&then, &file), "a");
}

#[test]
fn routes_are_the_same_in_every_process_and_version() {
    let table = plex(&[("amber", 1.0), ("birch", 1.2), ("cedar", 1.5), ("dogwood", 2.0)]);
    assert_eq!(table.hash(b"").0, GOLDEN_HASHES[0]);
    assert_eq!(table.hash(b"a file handle").0, GOLDEN_HASHES[1]);
    let routes: Vec<u16> = handles(32).map(|handle| route(&table, &handle).unwrap().0).collect();
    assert_eq!(routes, GOLDEN_ROUTES);
    // All 65,536 buckets at once.
    let owners: Vec<u8> = (0..1u64 << 16)
        .map(|bucket| table.default_route(HandleHash(bucket << 48)).unwrap().0.to_be_bytes()[1])
        .collect();
    assert_eq!(xxh3_64_with_seed(&owners, 0), GOLDEN_OWNERS);
}

const GOLDEN_HASHES: [u64; 2] = [0x913a_e087_3e9b_7eb8, 0xb8e9_648f_8eda_1e32];
const GOLDEN_ROUTES: [u16; 32] =
    [3, 1, 3, 1, 2, 1, 1, 3, 2, 0, 3, 1, 3, 2, 3, 3, 0, 3, 3, 3, 3, 1, 1, 2, 0, 3, 2, 3, 3, 3, 3, 2];
const GOLDEN_OWNERS: u64 = 0x8779_fe32_fe31_a5a9;

#[test]
fn another_seed_gives_other_routes() {
    let stores = entries(&[("a", 1.0), ("b", 1.0)]);
    let (one, other) = (Table::new(1, stores.clone()).unwrap(), Table::new(2, stores).unwrap());
    let differ = handles(2_000).filter(|handle| route(&one, handle) != route(&other, handle)).count();
    assert!((850..1_150).contains(&differ), "{differ} of 2,000 differ");
    // The buckets differ too, not only the handles' places in them.
    assert!(
        (0..64).any(|b| one.default_route(HandleHash(b << 48)) != other.default_route(HandleHash(b << 48)))
    );
}

#[test]
fn a12_when_every_store_is_down_routing_goes_on_as_if_all_were_up() {
    use StoreState::{Down, Drained, Up};
    let up = Table::new(SEED, in_states(&[Up; 4])).unwrap();
    let down = up.with_stores(in_states(&[Down; 4])).unwrap();
    assert!(handles(1_000).all(|handle| route(&down, &handle) == route(&up, &handle)));
    // One that comes back gets everything.
    let one = down.with_stores(in_states(&[Down, Down, Up, Down])).unwrap();
    assert!(handles(1_000).all(|handle| route(&one, &handle) == Some(StoreId(2))));
    // A drained store stays out even then.
    let drained = up.with_stores(in_states(&[Down, Drained, Down, Down])).unwrap();
    assert!(handles(1_000).all(|handle| route(&drained, &handle) != Some(StoreId(1))));
    assert!(drained.serves(StoreId(0)) && !drained.serves(StoreId(1)) && !drained.serves(StoreId(9)));
}

#[test]
fn a13_weight_zero_is_drained_and_all_zero_routes_to_nobody() {
    let table = plex(&[("a", 1.0), ("b", 1.0)]);
    let zero = table.with_stores(entries(&[("a", 0.0), ("b", 1.0)])).unwrap();
    assert!(handles(500).all(|handle| route(&zero, &handle) == Some(StoreId(1))));
    let none = zero.with_stores(entries(&[("a", 0.0), ("b", 0.0)])).unwrap();
    assert!(handles(500).all(|handle| route(&none, &handle).is_none()));
    let back = none.with_stores(entries(&[("a", 1.0), ("b", 0.0)])).unwrap();
    assert!(handles(500).all(|handle| route(&back, &handle) == Some(StoreId(0))));
    let drained = table.with_stores(in_states(&[StoreState::Drained; 4])).unwrap();
    assert!(handles(500).all(|handle| route(&drained, &handle).is_none()));
    // A store that is down and has weight 0 is not brought back because nobody is up.
    let mut stores = in_states(&[StoreState::Down; 2]);
    stores[0].weight = 0.0;
    let half = table.with_stores(stores).unwrap();
    assert!(handles(500).all(|handle| route(&half, &handle) == Some(StoreId(1))));
}

#[test]
fn a13_weights_that_are_no_weights_are_refused_by_the_stores_name() {
    for weight in
        [f64::NAN, -1.0, -f64::MIN_POSITIVE, f64::INFINITY, f64::NEG_INFINITY, 1e308, WEIGHT_MAX * 1.001]
    {
        let error = Table::new(SEED, entries(&[("good", 1.0), ("bad", weight)])).unwrap_err();
        assert!(matches!(&error, TableError::BadWeight { name, .. } if name == "bad"), "{weight}: {error:?}");
        assert!(error.to_string().contains("\"bad\"") && error.to_string().contains("1000000"), "{error}");
        assert!(plex(&[("good", 1.0)]).with_stores(entries(&[("bad", weight)])).is_err());
    }
    assert!(Table::new(SEED, entries(&[("a", -0.0)])).is_ok(), "minus zero is zero");
}

#[test]
fn lists_of_stores_that_make_no_plex_are_refused() {
    assert_eq!(Table::new(SEED, vec![]).unwrap_err(), TableError::NoStore);
    let twice = Table::new(SEED, entries(&[("a", 1.0), ("b", 1.0), ("a", 1.0)])).unwrap_err();
    assert_eq!(twice, TableError::DuplicateName { name: "a".into() });
    let nameless = Table::new(SEED, entries(&[("a", 1.0), ("", 1.0)])).unwrap_err();
    assert_eq!(nameless, TableError::NamelessStore { store: StoreId(1) });
    let many = (0..=STORES_MAX).map(|n| StoreEntry::up(n.to_string(), 1.0)).collect();
    assert_eq!(Table::new(SEED, many).unwrap_err(), TableError::TooManyStores { stores: STORES_MAX + 1 });
}

#[test]
fn an_exception_counts_while_its_store_serves() {
    use StoreState::{Down, Drained, Up};
    let handle = b"hot file".as_slice();
    let table = Table::new(SEED, in_states(&[Up; 4])).unwrap();
    let hash = table.hash(handle);
    let home = table.default_route(hash).unwrap();
    let other = StoreId((home.0 + 1) % 4);
    let moved = table.with_exception(handle, other).unwrap();
    assert_eq!(moved.route(handle, hash), Some(other));
    assert_eq!(moved.default_route(hash), Some(home));
    assert_eq!(moved.exception(handle, hash), Some(other));
    for state in [Down, Drained] {
        let mut states = [Up; 4];
        states[other.index()] = state;
        let out = moved.with_stores(in_states(&states)).unwrap();
        assert_eq!(out.route(handle, hash), Some(home), "{state:?}");
        assert_eq!(out.exception(handle, hash), Some(other), "remembered");
        assert_eq!(out.with_stores(in_states(&[Up; 4])).unwrap().route(handle, hash), Some(other));
    }
    let all_down = moved.with_stores(in_states(&[Down; 4])).unwrap();
    assert_eq!(all_down.route(handle, hash), Some(other), "a12: as if all were up");
    let free = moved.without_exception(handle);
    assert_eq!((free.route(handle, hash), free.exception(handle, hash)), (Some(home), None));
    assert_eq!((table.version(), moved.version(), free.version()), (1, 2, 3));
}

#[test]
fn exceptions_follow_their_stores_name_and_go_with_it() {
    let table = plex(&[("a", 1.0), ("b", 1.0), ("c", 1.0)]);
    let files = [(b"x".as_slice(), StoreId(1)), (b"y", StoreId(2))];
    let table = table.with_exceptions(files.map(|(handle, store)| (Box::from(handle), store))).unwrap();
    let changed = table.with_stores(entries(&[("c", 1.0), ("a", 1.0)])).unwrap();
    assert_eq!(changed.exceptions().collect::<Vec<_>>(), [(b"y".as_slice(), StoreId(0))]);
    assert_eq!(changed.store_named("a"), Some(StoreId(1)));
    assert_eq!(changed.store_named("b"), None);
}

fn replicas(stores: &[(u16, f64)]) -> Vec<Replica> {
    stores.iter().map(|&(store, share)| Replica { store: StoreId(store), share }).collect()
}

fn replicated(table: &Table, handle: &[u8], stores: &[(u16, f64)]) -> Table {
    table.with_assignments([Assignment { handle: handle.into(), replicas: replicas(stores) }]).unwrap()
}

/// By store, how many of 1,000 reads in a row it gets.
fn reads(table: &Table, handle: &[u8]) -> Vec<usize> {
    let hash = table.hash(handle);
    let mut counts = vec![0; table.stores().len()];
    for xid in 0..1000 {
        let routed = table.lookup(handle, hash);
        let reader = routed.replicas.and_then(|replicas| table.reader(replicas, read_point(hash, xid)));
        counts[reader.or(routed.store).unwrap().index()] += 1;
    }
    counts
}

#[test]
fn reads_of_a_replicated_file_are_spread_over_those_that_serve_and_the_rest_has_one_home() {
    use StoreState::{Down, Drained, Up};
    let handle = b"hot file".as_slice();
    let table = Table::new(SEED, in_states(&[Up; 4])).unwrap();
    let home = StoreId((table.default_route(table.hash(handle)).unwrap().0 + 1) % 4);
    let (second, third) = (StoreId((home.0 + 1) % 4), StoreId((home.0 + 2) % 4));
    let spread = replicated(&table, handle, &[(home.0, 1.0), (second.0, 1.0), (third.0, 2.0)]);
    assert_eq!(route(&spread, handle), Some(home));
    let counts = reads(&spread, handle);
    assert!(
        counts[home.index()].abs_diff(250) < 10 && counts[second.index()].abs_diff(250) < 10,
        "{counts:?}"
    );
    assert!(counts[third.index()].abs_diff(500) < 10, "{counts:?}");
    assert_eq!(spread.replicated().collect::<Vec<_>>(), [table.hash(handle)]);
    for state in [Down, Drained] {
        let mut states = [Up; 4];
        states[third.index()] = state;
        let out = spread.with_stores(in_states(&states)).unwrap();
        let counts = reads(&out, handle);
        assert_eq!(
            (counts[third.index()], counts[home.index()] + counts[second.index()]),
            (0, 1000),
            "at once"
        );
        // Without its home the next in order is the home, the same for every router.
        states[home.index()] = state;
        let out = out.with_stores(in_states(&states)).unwrap();
        assert_eq!((route(&out, handle), reads(&out, handle)[second.index()]), (Some(second), 1000));
        states[second.index()] = state;
        let out = out.with_stores(in_states(&states)).unwrap();
        assert_eq!(route(&out, handle), out.default_route(out.hash(handle)));
        assert_eq!(reads(&out.with_stores(in_states(&[Up; 4])).unwrap(), handle), reads(&spread, handle));
    }
    // Another file in the set beside it, and back to one store.
    let more = spread.with_exception(b"other", home).unwrap();
    assert_eq!(reads(&more, handle), reads(&spread, handle));
    assert_eq!(more.assignments().count(), 2);
    assert_eq!(
        table.with_assignments(more.assignments()).unwrap().assignments().collect::<Vec<_>>(),
        more.assignments().collect::<Vec<_>>()
    );
    let plain = more.with_exception(handle, second).unwrap();
    assert_eq!((reads(&plain, handle)[second.index()], plain.replicated().count()), (1000, 0));
}

#[test]
fn replicas_follow_their_stores_names_and_go_with_them() {
    let table =
        replicated(&plex(&[("a", 1.0), ("b", 1.0), ("c", 1.0)]), b"x", &[(0, 1.0), (1, 1.0), (2, 3.0)]);
    let without_home = table.with_stores(entries(&[("c", 1.0), ("b", 1.0)])).unwrap();
    let expected =
        Assignment { handle: Box::from(b"x".as_slice()), replicas: replicas(&[(1, 1.0), (0, 3.0)]) };
    assert_eq!(without_home.assignments().collect::<Vec<_>>(), [expected]);
    let one = without_home.with_stores(entries(&[("c", 1.0), ("d", 1.0)])).unwrap();
    assert_eq!(one.assignments().collect::<Vec<_>>(), [Assignment::to_one(b"x".as_slice(), StoreId(0))]);
    assert_eq!(one.replicated().count(), 0);
    assert_eq!(one.with_stores(entries(&[("d", 1.0)])).unwrap().exceptions().len(), 0);
}

#[test]
fn bad_replicas_are_refused() {
    let table = plex(&[("a", 1.0), ("b", 1.0)]);
    let refusal = |stores: &[(u16, f64)]| {
        let file = Assignment { handle: Box::from(b"x".as_slice()), replicas: replicas(stores) };
        table.with_assignments([file]).unwrap_err()
    };
    let unknown = TableError::UnknownStore { store: StoreId(2), stores: 2 };
    assert_eq!(refusal(&[(0, 1.0), (2, 1.0)]), unknown);
    assert_eq!(refusal(&[]), TableError::BadReplicas { stores: 0 });
    assert_eq!(refusal(&[(0, 1.0), (1, 1.0), (0, 1.0)]), TableError::BadReplicas { stores: 3 });
    let many: Vec<(u16, f64)> = (0..=16).map(|store| (store, 1.0)).collect();
    assert_eq!(refusal(&many), TableError::BadReplicas { stores: 17 });
    for share in [0.0, -1.0, f64::NAN, f64::INFINITY, WEIGHT_MAX * 1.001] {
        assert!(matches!(refusal(&[(0, 1.0), (1, share)]), TableError::BadShare { store: StoreId(1), .. }));
    }
}

#[test]
fn bad_exceptions_are_refused() {
    let table = plex(&[("a", 1.0), ("b", 1.0)]);
    let unknown = table.with_exception(b"x", StoreId(2)).unwrap_err();
    assert_eq!(unknown, TableError::UnknownStore { store: StoreId(2), stores: 2 });
    assert!(table.with_exception(&[0; HANDLE_BYTES_MAX], StoreId(0)).is_ok());
    let long = table.with_exception(&[0; HANDLE_BYTES_MAX + 1], StoreId(0)).unwrap_err();
    assert_eq!(long, TableError::HandleTooLong { bytes: 65 });

    let table = table.with_exception_files_max(2).unwrap();
    let full = table.with_exception(b"x", StoreId(0)).unwrap().with_exception(b"y", StoreId(0)).unwrap();
    let over = full.with_exception(b"z", StoreId(0)).unwrap_err();
    assert_eq!(over, TableError::TooManyExceptions { files: 3, exception_files_max: 2 });
    assert!(over.to_string().contains("exception_files_max is 2"), "{over}");
    assert!(
        full.with_exception(b"y", StoreId(1)).is_ok(),
        "another store for a file that is in the set already"
    );
    assert!(full.with_exception_files_max(1).is_err());
    assert_eq!(full.without_exception(b"x").exceptions().len(), 1);
}

proptest! {
    // Every case runs the race in 65,536 buckets, slowly in a debug build.
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the states and weights: only a store that may serve is ever given a call, and somebody is if one may.
    #[test]
    fn calls_go_to_serving_stores_only(
        stores in proptest::collection::vec((0u8..3, prop_oneof![Just(0.0), 0.001..WEIGHT_MAX]), 1..5),
        handle in proptest::collection::vec(any::<u8>(), 0..=64),
        assigned in 0u16..8,
    ) {
        let states = [StoreState::Up, StoreState::Drained, StoreState::Down];
        let stores: Vec<StoreEntry> = stores.iter().enumerate().map(|(n, &(state, weight))| {
            StoreEntry { name: n.to_string(), weight, state: states[usize::from(state)] }
        }).collect();
        let count = u16::try_from(stores.len()).unwrap();
        let table = Table::new(SEED, stores).unwrap().with_exception(&handle, StoreId(assigned % count)).unwrap();
        let serving: Vec<StoreId> = (0..count).map(StoreId).filter(|&store| table.serves(store)).collect();
        let up = |s: &StoreEntry| s.state == StoreState::Up && s.weight > 0.0;
        for &store in &serving {
            let entry = &table.stores()[store.index()];
            prop_assert!(entry.weight > 0.0 && entry.state != StoreState::Drained);
            prop_assert!(up(entry) || !table.stores().iter().any(up));
        }
        let hash = table.hash(&handle);
        for chosen in [table.route(&handle, hash), table.default_route(hash)] {
            prop_assert_eq!(chosen.is_some(), !serving.is_empty());
            prop_assert!(chosen.is_none_or(|store| serving.contains(&store)));
        }
        if serving.contains(&StoreId(assigned % count)) {
            prop_assert_eq!(table.route(&handle, hash), Some(StoreId(assigned % count)));
        }
    }
}
