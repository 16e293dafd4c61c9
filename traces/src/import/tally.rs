//! What an import has counted, and under which names.

use super::ImportOptions;
use super::capture::{Paths, Seen};
use super::counts::Counts;
use super::names::Names;
use super::request::Request;
use crate::trace_file::PATH_BYTES_MAX;
use hashbrown::HashMap;

/// The name under which files beyond the limits are counted together. It is no path, so no file has it.
pub const OTHER_FILES: &[u8] = b"(other files)";
/// Bytes of addresses that are kept.
const CLIENT_BYTES_MAX: usize = 8 << 20;

/// What is counted.
pub(super) struct Tally {
    pub(super) files: Names,
    handles: Handles,
    pub(super) sizes: Vec<u64>,
    /// The number of [`OTHER_FILES`], once there are any.
    pub(super) others: Option<u32>,
    pub(super) clients: Names,
    /// Clients of the trace that is appended to: they are not known again, as their addresses are not kept.
    pub(super) clients_before: u32,
    /// Requests by client; the first is all that are not told apart.
    pub(super) client_requests: Vec<u64>,
    pub(super) counts: Counts,
    /// First and last period with a line.
    pub(super) reach: Option<(i64, i64)>,
}

/// Files that captures know by their handles.
#[derive(Default)]
struct Handles {
    paths: Paths,
    /// By handle: number of its file, as long as nothing above it is renamed, which the first number counts.
    files: Vec<(u32, Option<u32>)>,
    renamings: u32,
    /// Handles whose path was not known when they were first seen, and their files.
    unnamed: HashMap<u32, u32>,
    /// Handles that have another name than before; empty between calls.
    changed: Vec<u32>,
}

impl Handles {
    fn file(&self, handle: u32) -> Option<u32> {
        let (renamings, file) = self.files.get(handle as usize)?;
        file.filter(|_| *renamings == self.renamings)
    }

    fn set_file(&mut self, handle: u32, file: u32) {
        let handle = handle as usize;
        if self.files.len() <= handle {
            self.files.resize(handle + 1, (0, None));
        }
        if let Some(known) = self.files.get_mut(handle) {
            *known = (self.renamings, Some(file));
        }
    }

    /// The handle's name is another than before: its next request may be for another file, and so may those of all that lies
    /// below it.
    fn forget_file(&mut self, handle: u32) {
        if let Some((_, file)) = self.files.get_mut(handle as usize) {
            *file = None;
        }
        self.renamings = self.renamings.wrapping_add(u32::from(self.paths.is_directory(handle)));
    }
}

impl Tally {
    pub(super) fn new(options: &ImportOptions) -> Self {
        Self {
            files: Names::new(options.files_max, options.path_bytes_max),
            handles: Handles::default(),
            sizes: Vec::new(),
            others: None,
            clients: Names::new(options.clients_max, CLIENT_BYTES_MAX),
            clients_before: 0,
            client_requests: vec![0],
            counts: Counts::new(options.open_counts_max.max(1)),
            reach: None,
        }
    }

    /// The number of a file, and whether it is one of those beyond the limit.
    pub(super) fn file(&mut self, path: &[u8]) -> (u32, bool) {
        match self.files.number(path) {
            Some(number) => (number, false),
            None => {
                let others = self.others.or_else(|| self.files.number_beyond_limits(OTHER_FILES));
                self.others = others;
                (others.unwrap_or(0), true)
            }
        }
    }

    /// The same for a file that is known by its handle. It is called by its path if that is known, else by `name`.
    pub(super) fn file_of_handle(&mut self, handle: &[u8], name: &[u8]) -> (u32, bool) {
        let Some(handle) = self.handles.paths.number(handle) else { return self.file(name) };
        if let Some(file) = self.handles.file(handle) {
            return (file, false);
        }
        let mut path = Vec::new();
        self.handles.paths.path(handle, &mut path);
        let is_short = path.len() <= PATH_BYTES_MAX;
        let (file, overflows) = self.file(if is_short { &path } else { name });
        if !overflows {
            self.handles.set_file(handle, file);
            if path.starts_with(b"fh:") {
                self.handles.unnamed.insert(handle, file);
            }
            self.size(file, self.handles.paths.bytes(handle));
        }
        (file, overflows)
    }

    /// Takes note of what a capture shows of names. Files below `written` have theirs written already.
    pub(super) fn learn(&mut self, seen: &Seen<'_>, written: usize) {
        let mut changed = std::mem::take(&mut self.handles.changed);
        let paths = &mut self.handles.paths;
        match seen {
            Seen::Call(_) => {}
            Seen::Root { path, handle } => paths.root(handle, path),
            Seen::Name { directory, name, handle, bytes } => {
                paths.note_bytes(handle, *bytes);
                paths.learn((directory, name), handle, &mut changed);
            }
            Seen::Renamed { from, to } => {
                // What was called by its handle up to now had the old name.
                if let Some(handle) = paths.at(*from) {
                    self.name_handle(handle, written);
                }
                self.handles.paths.rename(*from, *to, &mut changed);
            }
            Seen::Removed { directory, name } => {
                if let Some(handle) = paths.at((directory, name)) {
                    self.name_handle(handle, written);
                }
                self.handles.paths.remove((directory, name), &mut changed);
            }
        }
        for handle in changed.drain(..) {
            self.handles.forget_file(handle);
        }
        self.handles.changed = changed;
    }

    /// Gives a file that was first seen by its handle its path, where that has become known since.
    fn name_handle(&mut self, handle: u32, written: usize) {
        if let Some(file) = self.handles.unnamed.remove(&handle) {
            let mut path = Vec::new();
            self.handles.paths.path(handle, &mut path);
            self.rename(file, &path, written);
        }
    }

    /// The same for all such files.
    pub(super) fn name_handles(&mut self, written: usize) {
        let mut path = Vec::new();
        for (handle, file) in std::mem::take(&mut self.handles.unnamed) {
            self.handles.paths.path(handle, &mut path);
            self.rename(file, &path, written);
        }
    }

    /// Below `written` names are written already; they stand. So do those whose path is that of another file.
    fn rename(&mut self, file: u32, path: &[u8], written: usize) {
        if file as usize >= written && path.len() <= PATH_BYTES_MAX {
            self.files.rename(file, path);
        }
    }

    pub(super) fn size(&mut self, file: u32, bytes: u64) {
        let file = file as usize;
        if file >= self.sizes.len() {
            self.sizes.resize(file + 1, 0);
        }
        if let Some(size) = self.sizes.get_mut(file) {
            *size = (*size).max(bytes);
        }
    }

    pub(super) fn client(&mut self, request: &Request<'_>) {
        if request.client.is_empty() {
            return;
        }
        let number = self.clients.number(request.client).map_or(0, |number| number as usize + 1);
        if number >= self.client_requests.len() {
            self.client_requests.resize(number + 1, 0);
        }
        if let Some(requests) = self.client_requests.get_mut(number) {
            *requests = requests.saturating_add(request.count);
        }
    }
}
