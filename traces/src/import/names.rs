//! Numbers for byte strings: files by path, clients by address. Bounded, without an allocation for each.

use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

/// Bytes of one piece of memory for names.
const PIECE: usize = 1 << 20;

/// Where a name lies.
#[derive(Clone, Copy)]
struct Place {
    piece: u32,
    offset: u32,
    length: u32,
}

/// Byte strings with numbers in the order in which they were first seen.
pub(super) struct Names {
    /// Part of the hash, and the number.
    table: HashTable<(u32, u32)>,
    hasher: DefaultHashBuilder,
    places: Vec<Place>,
    pieces: Vec<Vec<u8>>,
    bytes: usize,
    names_max: usize,
    bytes_max: usize,
}

impl Names {
    /// At most `names_max` names of `bytes_max` bytes together.
    pub(super) fn new(names_max: usize, bytes_max: usize) -> Self {
        Self {
            table: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            places: Vec::new(),
            pieces: Vec::new(),
            bytes: 0,
            names_max: names_max.min(u32::MAX as usize - 1),
            bytes_max,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// The name of a number; empty for one that was not given.
    pub(super) fn get(&self, number: usize) -> &[u8] {
        self.places.get(number).map_or(&[], |place| name(&self.pieces, *place))
    }

    /// The number of a name, which is a new one if it was not seen yet; `None` if there is no room for another.
    pub(super) fn number(&mut self, wanted: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(wanted);
        // The upper half: the table itself uses the lower bits and the topmost seven.
        let part = (hash >> 24) as u32;
        let (places, pieces) = (&self.places, &self.pieces);
        let same = |(other, number): &(u32, u32)| {
            *other == part && places.get(*number as usize).is_some_and(|place| name(pieces, *place) == wanted)
        };
        if let Some((_, number)) = self.table.find(hash, same) {
            return Some(*number);
        }
        self.add(wanted, hash, part)
    }

    /// The number of a name, for which there is always room.
    pub(super) fn number_beyond_limits(&mut self, wanted: &[u8]) -> Option<u32> {
        self.number(wanted).or_else(|| {
            let hash = self.hasher.hash_one(wanted);
            self.insert(wanted, hash, (hash >> 24) as u32)
        })
    }

    #[cold]
    fn add(&mut self, wanted: &[u8], hash: u64, part: u32) -> Option<u32> {
        if self.places.len() >= self.names_max || self.bytes + wanted.len() > self.bytes_max {
            return None;
        }
        self.insert(wanted, hash, part)
    }

    fn insert(&mut self, wanted: &[u8], hash: u64, part: u32) -> Option<u32> {
        let place = self.put(wanted)?;
        let number = u32::try_from(self.places.len()).ok()?;
        self.places.push(place);
        self.enter(hash, part, number);
        Some(number)
    }

    /// Gives a number another name; whether it has it now. It has not if the name is that of another number, or if there is no
    /// room for it.
    pub(super) fn rename(&mut self, number: u32, wanted: &[u8]) -> bool {
        let (hash, old) = (self.hasher.hash_one(wanted), self.hasher.hash_one(self.get(number as usize)));
        let (places, pieces) = (&self.places, &self.pieces);
        let is_wanted = |(_, other): &(u32, u32)| {
            places.get(*other as usize).is_some_and(|place| name(pieces, *place) == wanted)
        };
        if let Some((_, other)) = self.table.find(hash, is_wanted) {
            return *other == number;
        }
        if self.bytes + wanted.len() > self.bytes_max {
            return false;
        }
        let (Some(place), true) = (self.put(wanted), (number as usize) < self.places.len()) else {
            return false;
        };
        if let Ok(entry) = self.table.find_entry(old, |(_, other)| *other == number) {
            entry.remove();
        }
        if let Some(known) = self.places.get_mut(number as usize) {
            *known = place;
        }
        self.enter(hash, (hash >> 24) as u32, number);
        true
    }

    /// Puts the bytes of a name behind the others.
    fn put(&mut self, wanted: &[u8]) -> Option<Place> {
        let fits = self.pieces.last().is_some_and(|piece| piece.capacity() - piece.len() >= wanted.len());
        if !fits {
            self.pieces.push(Vec::with_capacity(PIECE.max(wanted.len())));
        }
        let piece = self.pieces.len() - 1;
        let last = self.pieces.last_mut()?;
        let place = Place {
            piece: u32::try_from(piece).ok()?,
            offset: u32::try_from(last.len()).ok()?,
            length: u32::try_from(wanted.len()).ok()?,
        };
        last.extend_from_slice(wanted);
        self.bytes += wanted.len();
        Some(place)
    }

    fn enter(&mut self, hash: u64, part: u32, number: u32) {
        let (places, pieces, hasher) = (&self.places, &self.pieces, &self.hasher);
        self.table.insert_unique(hash, (part, number), |(_, number)| {
            let known = places.get(*number as usize).map_or(&[][..], |place| name(pieces, *place));
            hasher.hash_one(known)
        });
    }
}

fn name(pieces: &[Vec<u8>], place: Place) -> &[u8] {
    let begin = place.offset as usize;
    let piece = pieces.get(place.piece as usize).map_or(&[][..], Vec::as_slice);
    piece.get(begin..begin + place.length as usize).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equal_names_have_equal_numbers_and_others_others(
            names in prop::collection::vec(prop::collection::vec(0u8..3, 0..6), 0..400),
        ) {
            let mut table = Names::new(1_000, 1 << 20);
            let mut wanted = std::collections::HashMap::new();
            for name in &names {
                let next = u32::try_from(wanted.len()).unwrap();
                let number = *wanted.entry(name.clone()).or_insert(next);
                prop_assert_eq!(table.number(name), Some(number));
                prop_assert_eq!(table.get(number as usize), name.as_slice());
            }
            prop_assert_eq!(table.len(), wanted.len());
        }
    }

    #[test]
    fn a_renamed_number_is_found_by_its_new_name_only() {
        let mut table = Names::new(9, 20);
        assert_eq!((table.number(b"a"), table.number(b"b")), (Some(0), Some(1)));
        assert!(table.rename(0, b"c") && table.rename(0, b"c"));
        assert_eq!((table.number(b"c"), table.get(0)), (Some(0), &b"c"[..]));
        assert_eq!(table.number(b"a"), Some(2), "its old name is free");
        assert!(!table.rename(0, b"b") && !table.rename(7, b"d"), "another's, and none");
        assert!(!table.rename(0, &[b'x'; 20]), "too many bytes");
        assert_eq!(table.number(b"c"), Some(0));
    }

    #[test]
    fn a_full_table_knows_its_names_and_takes_no_others() {
        let mut table = Names::new(2, 10);
        assert_eq!(table.number(b"aaaa"), Some(0));
        assert_eq!(table.number(b"bbbbbbb"), None, "too many bytes");
        assert_eq!(table.number(b"b"), Some(1));
        assert_eq!(table.number(b"c"), None, "too many names");
        assert_eq!(table.number(b"aaaa"), Some(0));
        assert_eq!(table.get(9), b"");
    }
}
