//! Who has mounted what, as far as clients have said: it serves `showmount`, and nothing depends on it.
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of one entry of a DUMP reply beside its texts: a flag, two lengths, and at most three of padding each.
const ENTRY_BYTES: usize = 4 + 4 + 4 + 3 + 3;

/// A bounded list, the oldest first. NFSv3 clients often vanish without UMNT, so the oldest entry is the one to forget.
#[derive(Debug)]
pub struct MountList {
    mounts_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    mounts: VecDeque<(IpAddr, Vec<u8>)>,
    forgotten: u64,
}

impl MountList {
    /// An empty list of at most `mounts_max` mounts.
    #[must_use]
    pub fn new(mounts_max: usize) -> Self {
        Self { mounts_max, state: Mutex::default() }
    }

    /// How many mounts are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state().mounts.len()
    }

    /// Whether none is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many were forgotten because the list was full.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.state().forgotten
    }

    pub(super) fn add(&self, client: IpAddr, path: &[u8]) {
        let mut state = self.state();
        state.mounts.retain(|(host, dir)| *host != client || dir != path);
        if self.mounts_max == 0 {
            state.forgotten += 1;
            return;
        }
        while state.mounts.len() >= self.mounts_max {
            state.mounts.pop_front();
            state.forgotten += 1;
        }
        state.mounts.push_back((client, path.to_vec()));
    }

    pub(super) fn remove(&self, client: IpAddr, path: &[u8]) {
        self.state().mounts.retain(|(host, dir)| *host != client || dir != path);
    }

    pub(super) fn remove_all(&self, client: IpAddr) {
        self.state().mounts.retain(|(host, _)| *host != client);
    }

    /// Hosts and paths for a DUMP reply, the newest first, as many as fit into `bytes_max`.
    pub(super) fn newest(&self, bytes_max: usize) -> Vec<(String, Vec<u8>)> {
        let mut left = bytes_max;
        let mut listed = Vec::new();
        for (host, path) in self.state().mounts.iter().rev() {
            let host = host.to_string();
            match left.checked_sub(ENTRY_BYTES + host.len() + path.len()) {
                Some(rest) => left = rest,
                None => break,
            }
            listed.push((host, path.clone()));
        }
        listed
    }

    /// A thread that panicked while it held the lock left a list that is still a list.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_bounded_and_forgets_the_oldest() {
        let list = MountList::new(3);
        let client = |n: u8| IpAddr::from([10, 0, 0, n]);
        (1..=4).for_each(|n| list.add(client(n), b"/e"));
        assert_eq!((list.len(), list.forgotten()), (3, 1));
        list.add(client(2), b"/e");
        assert_eq!((list.len(), list.forgotten()), (3, 1), "a mount repeated is one mount");
        let hosts: Vec<String> = list.newest(1000).into_iter().map(|(host, _)| host).collect();
        assert_eq!(hosts, ["10.0.0.2", "10.0.0.4", "10.0.0.3"]);
        assert_eq!(list.newest(2 * (ENTRY_BYTES + 8 + 2)).len(), 2);
        assert_eq!(list.newest(ENTRY_BYTES).len(), 0);
        list.remove(client(4), b"/other");
        list.remove(client(4), b"/e");
        list.remove_all(client(2));
        assert_eq!(list.newest(1000).len(), 1);
        let none = MountList::new(0);
        none.add(client(1), b"/e");
        assert_eq!((none.len(), none.forgotten()), (0, 1));
    }
}
