use super::*;
use proptest::prelude::*;

#[test]
fn a08_a_stores_zero_verifier_still_names_its_store() {
    let listings = Listings::new(99, 10);
    for store in 0..2000 {
        let store = StoreId(store);
        let tag = listings.tag(store, [0; 8]);
        assert_ne!(tag, [0; 8], "zero means: from the start");
        assert_eq!(listings.untag(tag), Untagged::Ours { store, verifier: [0; 8] });
        if store.0 >= STORES_INLINE {
            break;
        }
    }
    assert_eq!(listings.verifiers(), 1, "only the store number beyond the inline ones needed the table");
}

#[test]
fn a08_zero_and_the_stores_own_verifiers_are_foreign() {
    let listings = Listings::new(99, 10);
    for foreign in [[0; 8], [0, 0, 0, 0, 0, 0, 0, 1], [0xff; 8], [0x65, 0x12, 0x34, 0x56, 0, 0, 0, 0]] {
        assert_eq!(listings.untag(foreign), Untagged::Foreign, "{foreign:?}");
    }
}

#[test]
fn eight_random_bytes_are_foreign_and_so_is_a_tag_of_another_key() {
    let listings = Listings::new(99, 10);
    let mut taken = 0;
    for n in 0..200_000u64 {
        let random = xxh3_64_with_seed(&n.to_be_bytes(), 12345).to_be_bytes();
        taken += u32::from(listings.untag(random) != Untagged::Foreign);
    }
    assert!(taken <= 3, "{taken} of 200,000 random verifiers were taken for ours; 0.15 are expected");
    let other = Listings::new(100, 10);
    let strangers = (0..500).filter(|&n| listings.untag(other.tag(StoreId(n), [0; 8])) != Untagged::Foreign);
    assert!(strangers.count() <= 1);
}

#[test]
fn verifiers_without_room_expire_oldest_first_and_come_back_equal() {
    let listings = Listings::new(99, 8);
    let verifier = |n: u8| [1, 2, 3, 4, 5, 6, 7, n];
    let tags: Vec<_> = (0..100).map(|n| listings.tag(StoreId(3), verifier(n))).collect();
    assert!(listings.verifiers() <= 8, "{}", listings.verifiers());
    for n in 96..100u8 {
        let ours = Untagged::Ours { store: StoreId(3), verifier: verifier(n) };
        assert_eq!(listings.untag(tags[usize::from(n)]), ours, "the last half is always there");
    }
    assert_eq!(listings.untag(tags[0]), Untagged::Expired);
    assert_eq!(listings.expired(), 1);
    assert_eq!(listings.tag(StoreId(3), verifier(0)), tags[0], "the same tag as before it was forgotten");
    // One that is used again and again outlives any number of others.
    let kept = listings.tag(StoreId(5), verifier(200));
    for n in 0..250 {
        assert!(matches!(listings.untag(kept), Untagged::Ours { store: StoreId(5), .. }));
        let _ = listings.tag(StoreId(4), verifier(n));
    }
}

#[test]
fn a_tag_in_the_table_is_lost_with_the_router_but_known_as_its_own() {
    let tag = Listings::new(99, 8).tag(StoreId(3), [9; 8]);
    assert_eq!(Listings::new(99, 8).untag(tag), Untagged::Expired);
    let tag = Listings::new(99, 8).tag(StoreId(3), [0, 0, 0, 0, 9, 9, 9, 9]);
    let ours = Untagged::Ours { store: StoreId(3), verifier: [0, 0, 0, 0, 9, 9, 9, 9] };
    assert_eq!(Listings::new(99, 8).untag(tag), ours);
}

proptest! {
    #[test]
    fn every_verifier_of_every_store_comes_back(
        key: u64,
        verifiers in proptest::collection::vec(
            (any::<u16>(), prop_oneof![any::<u64>(), 0..1u64 << 32, (0..1u64 << 32).prop_map(|high| high << 32)]),
            1..20,
        ),
    ) {
        let listings = Listings::new(key, 64);
        let tags: Vec<[u8; 8]> =
            verifiers.iter().map(|&(store, v)| listings.tag(StoreId(store), v.to_be_bytes())).collect();
        for (&(store, verifier), &tag) in verifiers.iter().zip(&tags) {
            let (store, verifier) = (StoreId(store), verifier.to_be_bytes());
            prop_assert_eq!(listings.untag(tag), Untagged::Ours { store, verifier });
            prop_assert_eq!(listings.tag(store, verifier), tag);
        }
    }
}
