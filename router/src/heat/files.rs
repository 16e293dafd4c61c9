//! The counters of the files of one shard: an open-addressing table over a slab of entries.
//!
//! A lookup touches one slot (8 bytes, nearly always the right one) and one entry; nothing is allocated once
//! the files in use are known. Entries are removed only when a period closes.

use clockwork_placement::StoreId;
use clockwork_wire::nfs3::Class;

use super::counts::FileCounts;
use super::handle::Handle;
use super::warm::Warm;

/// Where the counters of a call's file are. A token outlives its entry harmlessly: its generation no longer
/// fits, and what it would count goes to the entry for all other files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileToken {
    index: u32,
    generation: u32,
}

impl FileToken {
    /// The token of the entry for all files that have none of their own.
    pub const OTHER: FileToken = FileToken { index: u32::MAX, generation: 0 };
}

const EMPTY: u32 = u32::MAX;
const SLOTS_MIN: usize = 1024;

#[derive(Clone, Copy)]
struct Slot {
    tag: u32,
    entry: u32,
}

const FREE: Slot = Slot { tag: 0, entry: EMPTY };

/// Begins with a pair of cache lines and fills it: a call on a file that has not been touched for a while waits for memory
/// once.
#[repr(align(128))]
struct Entry {
    hash: u64,
    counts: FileCounts,
    generation: u32,
    store: StoreId,
    /// Periods in a row without a call; `None` if the entry is free.
    idle_periods: Option<u16>,
    handle: Handle,
}

const _: () = assert!(size_of::<Entry>() == 128);

/// One file's counters at the end of a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileClosed {
    pub(super) handle: Handle,
    pub(super) store: StoreId,
    pub(super) counts: FileCounts,
}

pub(super) struct Files {
    slots: Box<[Slot]>,
    entries: Vec<Entry>,
    free: Vec<u32>,
    warm: Warm,
    other: FileCounts,
    files_max: usize,
    /// Calls without an entry of their own because `files_max` was reached.
    turned_away: u64,
}

impl Files {
    pub(super) fn new(files_max: usize) -> Self {
        // The highest index is the token of the other files.
        let files_max = files_max.min(EMPTY as usize - 1);
        let slots = SLOTS_MIN.min((2 * files_max.max(1)).next_power_of_two());
        Self {
            slots: vec![FREE; slots].into_boxed_slice(),
            entries: Vec::new(),
            free: Vec::new(),
            warm: Warm::default(),
            other: FileCounts::default(),
            files_max,
            turned_away: 0,
        }
    }

    /// Calls that were counted with the other files because `files_max` was reached, so far.
    pub(super) fn turned_away(&self) -> u64 {
        self.turned_away
    }

    /// Files that have an entry of their own.
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Counts a call on a file and says where its reply is to be counted.
    #[inline]
    pub(super) fn call(&mut self, store: StoreId, class: Class, handle: &[u8], hash: u64) -> FileToken {
        let index = match self.find(handle, hash) {
            Ok(index) => index,
            Err(slot) => match self.insert(slot, handle, hash) {
                Some(index) => index,
                None => {
                    self.other.calls.count(class);
                    self.turned_away += 1;
                    return FileToken::OTHER;
                }
            },
        };
        let Some(entry) = self.entries.get_mut(index as usize) else { return FileToken::OTHER };
        entry.counts.calls.count(class);
        entry.store = store;
        self.warm.count(entry.counts.calls.total(), index);
        FileToken { index, generation: entry.generation }
    }

    /// Counts the bytes of a reply.
    #[inline]
    pub(super) fn reply(&mut self, token: FileToken, bytes_read: u32, bytes_written: u32) {
        let counts = match self.entries.get_mut(token.index as usize) {
            Some(entry) if entry.generation == token.generation && entry.idle_periods.is_some() => {
                &mut entry.counts
            }
            _ => &mut self.other,
        };
        counts.count_bytes(bytes_read, bytes_written);
    }

    /// The entry of a handle, or the slot where it would go. The table is never full, so the search ends.
    #[inline]
    fn find(&self, handle: &[u8], hash: u64) -> Result<u32, usize> {
        let mask = self.slots.len() - 1;
        let tag = (hash >> 32) as u32;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots.get(at).copied().unwrap_or(FREE);
            if slot.entry == EMPTY {
                return Err(at);
            }
            if slot.tag == tag
                && self
                    .entries
                    .get(slot.entry as usize)
                    .is_some_and(|entry| entry.hash == hash && entry.handle.as_bytes() == handle)
            {
                return Ok(slot.entry);
            }
            at = (at + 1) & mask;
        }
    }

    #[cold]
    fn insert(&mut self, mut slot: usize, handle: &[u8], hash: u64) -> Option<u32> {
        let handle = Handle::new(handle)?;
        if self.len() >= self.files_max {
            return None;
        }
        if 2 * (self.len() + 1) > self.slots.len() {
            self.rebuild(self.slots.len() * 2);
            slot = self.find(handle.as_bytes(), hash).err()?;
        }
        let mut entry = Entry {
            hash,
            counts: FileCounts::default(),
            generation: 0,
            store: StoreId(0),
            idle_periods: Some(0),
            handle,
        };
        let index = match self.free.pop() {
            Some(index) => {
                let old = self.entries.get_mut(index as usize)?;
                entry.generation = old.generation;
                *old = entry;
                index
            }
            None => {
                self.entries.push(entry);
                u32::try_from(self.entries.len() - 1).ok()?
            }
        };
        *self.slots.get_mut(slot)? = Slot { tag: (hash >> 32) as u32, entry: index };
        Some(index)
    }

    /// Lays the slots out anew for all entries in use.
    fn rebuild(&mut self, slots: usize) {
        let mut fresh = vec![FREE; slots].into_boxed_slice();
        let mask = slots - 1;
        for (index, entry) in self.entries.iter().enumerate().filter(|(_, e)| e.idle_periods.is_some()) {
            let mut at = entry.hash as usize & mask;
            while fresh.get(at).is_some_and(|slot| slot.entry != EMPTY) {
                at = (at + 1) & mask;
            }
            if let (Some(slot), Ok(index)) = (fresh.get_mut(at), u32::try_from(index)) {
                *slot = Slot { tag: (entry.hash >> 32) as u32, entry: index };
            }
        }
        self.slots = fresh;
    }

    /// The counters so far of the files that have had at least `calls_min` calls in the period (at least 8); they go on.
    pub(super) fn running(&self, calls_min: u64) -> Vec<FileClosed> {
        let warm = self.warm.at_least(calls_min).iter();
        let used = warm
            .filter_map(|index| self.entries.get(*index as usize))
            .filter(|entry| entry.idle_periods.is_some() && entry.counts.calls.total() >= calls_min);
        used.map(|entry| FileClosed { handle: entry.handle, store: entry.store, counts: entry.counts })
            .collect()
    }

    /// Takes the counters of the period, sets them to zero, and lets entries go that were idle for more than
    /// `idle_periods_max` periods in a row. Returns the files that were used, and what was counted for the rest.
    pub(super) fn close(&mut self, idle_periods_max: u16) -> (Vec<FileClosed>, FileCounts) {
        let used = self.entries.iter().filter(|entry| !entry.counts.is_zero()).count();
        let mut closed = Vec::with_capacity(used);
        let free_before = self.free.len();
        self.warm.clear();
        for (index, entry) in self.entries.iter_mut().enumerate() {
            let Some(idle) = entry.idle_periods else { continue };
            if !entry.counts.is_zero() {
                let counts = std::mem::take(&mut entry.counts);
                closed.push(FileClosed { handle: entry.handle, store: entry.store, counts });
                entry.idle_periods = Some(0);
            } else if idle >= idle_periods_max {
                entry.idle_periods = None;
                entry.generation = entry.generation.wrapping_add(1);
                self.free.extend(u32::try_from(index));
            } else {
                entry.idle_periods = Some(idle + 1);
            }
        }
        if self.free.len() > free_before {
            self.rebuild(self.slots.len());
        }
        (closed, std::mem::take(&mut self.other))
    }
}
