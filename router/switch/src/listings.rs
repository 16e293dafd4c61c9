//! Cookie verifiers tagged with the store that issued them.
//!
//! A directory's cookies mean something to the store that gave them only, so READDIR and READDIRPLUS (RFC 1813, sections
//! 3.3.16 and 3.3.17) must go on there. The client returns the 8-byte cookie verifier with every continuation: it carries
//! the store's number to the router, and the store's own verifier is restored upstream. Two layouts, most significant
//! bits first:
//!
//! | form (2 bits) | then |
//! |---|---|
//! | 0: the store's verifier is below 2^32 (knfsd and Ganesha send 0) | 20 check bits, 10 bits store, 32 bits verifier |
//! | 1: its lower half is zero | the same, with its upper half |
//! | 2: any other verifier, or a store number above 1023 | 20 check bits, 42 bits key of a bounded table |
//!
//! The check bits and the key are keyed hashes, so the same store and verifier always give the same tag, and other
//! verifiers (a client's zero at the start of a listing, or one from before a change of the key) are told from ours.

use clockwork_placement::{PrehashedMap, StoreId};
use std::sync::{Mutex, MutexGuard, PoisonError};
use xxhash_rust::xxh3::xxh3_64_with_seed;

const CHECK_BITS: u32 = 20;
const BODY_BITS: u32 = 42;
const BODY: u64 = (1 << BODY_BITS) - 1;
const STORES_INLINE: u16 = 1 << 10;
const FORM_LOW: u64 = 0;
const FORM_HIGH: u64 = 1;
const FORM_TABLE: u64 = 2;
/// Other keys tried when a key of the table is taken: with 42 bits even one is rare.
const KEYS_TRIED: u8 = 8;

/// What a client's cookie verifier is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untagged {
    /// One of ours.
    Ours {
        /// The store that issued it.
        store: StoreId,
        /// The verifier it issued.
        verifier: [u8; 8],
    },
    /// Zero, as at the start of a listing, or not made by this router (with this key).
    Foreign,
    /// Made by this router, but its entry has left the table: answer NFS3ERR_BAD_COOKIE, the client starts again.
    Expired,
}

/// Tags and untags cookie verifiers. Shared by all shards.
#[derive(Debug)]
pub struct Listings {
    key: u64,
    generation_max: usize,
    table: Mutex<Verifiers>,
}

/// Verifiers that do not fit into a tag, in two generations: when the young one is full it becomes the old one. A
/// verifier that is used moves to the young one, so one used recently is kept, without a list to maintain.
#[derive(Debug, Default)]
struct Verifiers {
    young: PrehashedMap<u64, (StoreId, [u8; 8])>,
    old: PrehashedMap<u64, (StoreId, [u8; 8])>,
    expired: u64,
}

impl Listings {
    /// `key` keys the tags: a router that starts again with the same key knows its old tags of forms 0 and 1.
    /// At most `verifiers_max` verifiers (at least 2) are remembered; beyond that those not used for longest go, and
    /// their listings end in [`Untagged::Expired`]. The last `verifiers_max / 2` used are always there.
    #[must_use]
    pub fn new(key: u64, verifiers_max: usize) -> Self {
        Self { key, generation_max: (verifiers_max / 2).max(1), table: Mutex::default() }
    }

    /// The verifier to send to the client for this store's `verifier`. Never zero.
    #[must_use]
    pub fn tag(&self, store: StoreId, verifier: [u8; 8]) -> [u8; 8] {
        let value = u64::from_be_bytes(verifier);
        let (high, low) = (value >> 32, value & 0xffff_ffff);
        let inline = match (high, low) {
            (0, low) => Some((FORM_LOW, low)),
            (high, 0) => Some((FORM_HIGH, high)),
            _ => None,
        };
        if let Some((form, half)) = inline
            && store.0 < STORES_INLINE
        {
            let tag = self.sealed(form, u64::from(store.0) << 32 | half);
            // One store and verifier in a million has the tag zero, which means "from the start": that one is remembered.
            if tag != 0 {
                return tag.to_be_bytes();
            }
        }
        self.remember(store, verifier).to_be_bytes()
    }

    /// What the verifier of a client's READDIR or READDIRPLUS is. Eight random bytes pass for ours about once in a
    /// million.
    #[must_use]
    pub fn untag(&self, tagged: [u8; 8]) -> Untagged {
        let tag = u64::from_be_bytes(tagged);
        let (form, body) = (tag >> 62, tag & BODY);
        if tag == 0 || tag != self.sealed(form, body) {
            return Untagged::Foreign;
        }
        let half = body & 0xffff_ffff;
        let store = StoreId(u16::try_from(body >> 32).unwrap_or(u16::MAX));
        match form {
            FORM_LOW => Untagged::Ours { store, verifier: half.to_be_bytes() },
            FORM_HIGH => Untagged::Ours { store, verifier: (half << 32).to_be_bytes() },
            FORM_TABLE => self.recall(body),
            _ => Untagged::Foreign,
        }
    }

    /// Verifiers remembered because they do not fit into a tag.
    #[must_use]
    pub fn verifiers(&self) -> usize {
        let table = self.lock();
        table.young.len() + table.old.len()
    }

    /// Continuations whose verifier had left the table, so far.
    #[must_use]
    pub fn expired(&self) -> u64 {
        self.lock().expired
    }

    fn lock(&self) -> MutexGuard<'_, Verifiers> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Form, check bits and body in one word.
    fn sealed(&self, form: u64, body: u64) -> u64 {
        let mut input = [0; 9];
        let (head, tail) = input.split_at_mut(8);
        head.copy_from_slice(&body.to_be_bytes());
        tail.copy_from_slice(&[u8::try_from(form).unwrap_or(u8::MAX)]);
        let check = xxh3_64_with_seed(&input, self.key) >> (64 - CHECK_BITS);
        form << 62 | check << BODY_BITS | body
    }

    fn remember(&self, store: StoreId, verifier: [u8; 8]) -> u64 {
        let mut table = self.lock();
        let mut body = 0;
        for attempt in 0..KEYS_TRIED {
            let [s0, s1] = store.0.to_be_bytes();
            let [a, b, c, d, e, f, g, h] = verifier;
            body = xxh3_64_with_seed(&[a, b, c, d, e, f, g, h, s0, s1, attempt], !self.key) & BODY;
            match table.young.get(&body).or_else(|| table.old.get(&body)) {
                Some(&known) if known != (store, verifier) => {}
                _ => break,
            }
        }
        table.put(body, (store, verifier), self.generation_max);
        self.sealed(FORM_TABLE, body)
    }

    fn recall(&self, body: u64) -> Untagged {
        let mut table = self.lock();
        match table.young.get(&body).or_else(|| table.old.get(&body)).copied() {
            Some((store, verifier)) => {
                table.put(body, (store, verifier), self.generation_max);
                Untagged::Ours { store, verifier }
            }
            None => {
                table.expired += 1;
                Untagged::Expired
            }
        }
    }
}

impl Verifiers {
    fn put(&mut self, body: u64, verifier: (StoreId, [u8; 8]), generation_max: usize) {
        if !self.young.contains_key(&body) {
            if self.young.len() >= generation_max {
                self.old = std::mem::take(&mut self.young);
            }
            self.old.remove(&body);
        }
        self.young.insert(body, verifier);
    }
}

#[cfg(test)]
mod tests;
