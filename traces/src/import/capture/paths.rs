//! Paths of file handles, as far as the replies of a capture have shown them.

use super::super::names::Names;
use hashbrown::HashMap;

/// Most handles that are known, and bytes of them; and the same of their names. Further ones have no path.
const HANDLES_MAX: usize = 300_000;
const BYTES_MAX: usize = 20 << 20;
/// Most exports that are known by their roots.
const ROOTS_MAX: usize = 1_024;
/// Most directories that a path is followed upwards, so that a loop in what was learnt ends.
const DEPTH_MAX: usize = 128;
/// Longest name that is kept, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// A name in a directory: the directory's handle, and the name.
pub(in super::super) type Place<'a> = (&'a [u8], &'a [u8]);

/// Numbers of handles, with the directory and the name of each as they were seen last.
pub(in super::super) struct Paths {
    handles: Names,
    names: Names,
    /// By handle: what is known of it.
    known: Vec<Known>,
    /// Handles by their directory's handle and their name, as many as handles may be known; at the limit all are forgotten, and
    /// learnt again.
    by_name: HashMap<(u32, u32), u32>,
    /// Paths of the exports that begin at a handle.
    roots: HashMap<u32, Box<[u8]>>,
}

/// What is known of a handle.
#[derive(Clone, Copy, Default)]
struct Known {
    /// Number of the directory's handle, and of the name.
    at: Option<(u32, u32)>,
    /// Something was found in it.
    is_directory: bool,
    /// Its size in bytes; 0 where nothing is said.
    bytes: u64,
}

impl Default for Paths {
    fn default() -> Self {
        Self {
            handles: Names::new(HANDLES_MAX, BYTES_MAX),
            names: Names::new(HANDLES_MAX, BYTES_MAX),
            known: Vec::new(),
            by_name: HashMap::new(),
            roots: HashMap::new(),
        }
    }
}

impl Paths {
    /// The number of a handle; `None` if there are too many.
    pub(in super::super) fn number(&mut self, handle: &[u8]) -> Option<u32> {
        self.handles.number(handle)
    }

    /// Takes note that an export begins at a handle.
    pub(in super::super) fn root(&mut self, handle: &[u8], path: &[u8]) {
        if self.roots.len() < ROOTS_MAX
            && let Some(number) = self.handles.number(handle)
        {
            let path = clockwork_wire::mount::normalise_path(path);
            self.roots.insert(number, path.strip_suffix(b"/").unwrap_or(&path).into());
        }
    }

    /// Takes note of a handle's name in a directory. Handles that were called otherwise before are appended to `changed`.
    pub(in super::super) fn learn(&mut self, place: Place<'_>, handle: &[u8], changed: &mut Vec<u32>) {
        if place.0 == handle {
            return;
        }
        let Some(place) = self.place(place) else { return };
        if let Some(handle) = self.handles.number(handle) {
            self.put(place, handle, changed);
        }
    }

    /// A name has become another one, which is taken from what had it.
    pub(in super::super) fn rename(&mut self, from: Place<'_>, to: Place<'_>, changed: &mut Vec<u32>) {
        let handle = self.place(from).and_then(|from| self.by_name.remove(&from));
        match (handle, self.place(to)) {
            (Some(handle), Some(to)) => self.put(to, handle, changed),
            (None, Some(to)) => self.take_away(to, changed),
            (_, None) => {}
        }
    }

    /// A name is gone.
    pub(in super::super) fn remove(&mut self, place: Place<'_>, changed: &mut Vec<u32>) {
        if let Some(place) = self.place(place) {
            self.take_away(place, changed);
        }
    }

    /// The handle that has a name.
    pub(in super::super) fn at(&mut self, place: Place<'_>) -> Option<u32> {
        let place = self.place(place)?;
        self.by_name.get(&place).copied()
    }

    /// Takes note of a file's size.
    pub(in super::super) fn note_bytes(&mut self, handle: &[u8], bytes: u64) {
        if bytes > 0
            && let Some(number) = self.handles.number(handle)
            && let Some(known) = self.known(number)
        {
            known.bytes = known.bytes.max(bytes);
        }
    }

    /// The size of a file; 0 where nothing is known.
    pub(in super::super) fn bytes(&self, handle: u32) -> u64 {
        self.known.get(handle as usize).map_or(0, |known| known.bytes)
    }

    /// Whether something was found in it.
    pub(in super::super) fn is_directory(&self, handle: u32) -> bool {
        self.known.get(handle as usize).is_some_and(|known| known.is_directory)
    }

    fn place(&mut self, (directory, name): Place<'_>) -> Option<(u32, u32)> {
        let is_a_name = (1..=NAME_BYTES_MAX).contains(&name.len())
            && !matches!(name, b"." | b"..")
            && !name.iter().any(|byte| matches!(byte, b'/' | 0));
        if !is_a_name {
            return None;
        }
        let place = (self.handles.number(directory)?, self.names.number(name)?);
        self.known(place.0)?.is_directory = true;
        Some(place)
    }

    fn known(&mut self, handle: u32) -> Option<&mut Known> {
        let handle = handle as usize;
        if self.known.len() <= handle {
            self.known.resize(handle + 1, Known::default());
        }
        self.known.get_mut(handle)
    }

    fn put(&mut self, place: (u32, u32), handle: u32, changed: &mut Vec<u32>) {
        if self.by_name.get(&place) != Some(&handle) {
            self.take_away(place, changed);
            if self.by_name.len() >= HANDLES_MAX {
                self.by_name.clear();
            }
            self.by_name.insert(place, handle);
        }
        let Some(known) = self.known(handle) else { return };
        let before = known.at.replace(place);
        if before.is_some_and(|before| before != place) {
            changed.push(handle);
        }
    }

    /// What has a name has it no more.
    fn take_away(&mut self, place: (u32, u32), changed: &mut Vec<u32>) {
        let Some(handle) = self.by_name.remove(&place) else { return };
        if let Some(known) = self.known(handle).filter(|known| known.at == Some(place)) {
            known.at = None;
            changed.push(handle);
        }
    }

    /// The path of a handle: from the root of its export, else from where knowledge ends, which is `fh:` and a handle in
    /// hexadecimal.
    pub(in super::super) fn path(&self, number: u32, out: &mut Vec<u8>) {
        let (mut top, mut parts) = (number, Vec::new());
        while !self.roots.contains_key(&top)
            && let Some((directory, name)) = self.known.get(top as usize).and_then(|known| known.at)
        {
            parts.push(name);
            top = directory;
            if parts.len() > DEPTH_MAX {
                (top, _) = (number, parts.clear());
                break;
            }
        }
        out.clear();
        match self.roots.get(&top) {
            Some(path) if path.is_empty() && parts.is_empty() => out.push(b'/'),
            Some(path) => out.extend_from_slice(path),
            None => put_handle(self.handles.get(top as usize), out),
        }
        for name in parts.iter().rev() {
            out.push(b'/');
            out.extend_from_slice(self.names.get(*name as usize));
        }
    }
}

/// Appends a handle as a name: `fh:` and its bytes in hexadecimal.
pub(super) fn put_handle(handle: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.extend_from_slice(b"fh:");
    for byte in handle {
        out.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(paths: &mut Paths, handle: &[u8]) -> String {
        let (number, mut out) = (paths.number(handle).unwrap(), Vec::new());
        paths.path(number, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn learn(paths: &mut Paths, directory: &[u8], name: &[u8], handle: &[u8]) -> usize {
        let mut changed = Vec::new();
        paths.learn((directory, name), handle, &mut changed);
        changed.len()
    }

    #[test]
    fn names_follow_renamings_and_removals() {
        let mut paths = Paths::default();
        let mut changed = Vec::new();
        paths.root(b"R", b"/e");
        assert_eq!(learn(&mut paths, b"R", b"d", b"D") + learn(&mut paths, b"D", b"log", b"1"), 0);
        let number = |paths: &mut Paths, handle: &[u8]| paths.number(handle).unwrap();
        // A log is rotated: the file goes on under its new name, another one has the old name.
        paths.rename((b"D", b"log"), (b"D", b"log.1"), &mut changed);
        assert_eq!(changed, [number(&mut paths, b"1")]);
        assert_eq!(learn(&mut paths, b"D", b"log", b"2"), 0);
        assert_eq!([path(&mut paths, b"1"), path(&mut paths, b"2")], ["/e/d/log.1", "/e/d/log"]);
        // The next rotation takes the name away from the first one.
        changed.clear();
        paths.rename((b"D", b"log"), (b"D", b"log.1"), &mut changed);
        assert_eq!(changed, [number(&mut paths, b"1"), number(&mut paths, b"2")]);
        assert_eq!([path(&mut paths, b"1"), path(&mut paths, b"2")], ["fh:31", "/e/d/log.1"]);
        // A directory is renamed, with all that is in it.
        changed.clear();
        paths.rename((b"R", b"d"), (b"R", b"old"), &mut changed);
        let directory = number(&mut paths, b"D");
        assert_eq!((&changed[..], paths.is_directory(directory)), (&[directory][..], true));
        assert_eq!(path(&mut paths, b"2"), "/e/old/log.1");
        // Removed and made anew, under another handle.
        changed.clear();
        paths.remove((b"D", b"log.1"), &mut changed);
        assert_eq!((changed.len(), path(&mut paths, b"2")), (1, "fh:32".into()));
        assert_eq!(learn(&mut paths, b"D", b"log.1", b"3"), 0);
        assert_eq!(path(&mut paths, b"3"), "/e/old/log.1");
        // Of what is not known nothing is learnt but that the target is gone.
        changed.clear();
        paths.rename((b"D", b"unknown"), (b"D", b"log.1"), &mut changed);
        paths.remove((b"D", b"unknown"), &mut changed);
        assert_eq!((changed.len(), path(&mut paths, b"3")), (1, "fh:33".into()));
        // Another name for a file: it is called as it was seen last, and keeps the other one when that is removed.
        learn(&mut paths, b"D", b"a", b"4");
        assert_eq!(learn(&mut paths, b"D", b"b", b"4"), 1);
        paths.remove((b"D", b"a"), &mut changed);
        assert_eq!(path(&mut paths, b"4"), "/e/old/b");
    }

    #[test]
    fn paths_begin_at_a_root_or_where_knowledge_ends() {
        let mut paths = Paths::default();
        learn(&mut paths, b"R", b"a", b"1");
        learn(&mut paths, b"1", b"b", b"2");
        assert_eq!(path(&mut paths, b"2"), "fh:52/a/b");
        assert_eq!(path(&mut paths, b"9"), "fh:39");
        paths.root(b"R", b"//export/");
        assert_eq!(
            ["R", "1", "2"].map(|h| path(&mut paths, h.as_bytes())),
            ["/export", "/export/a", "/export/a/b"]
        );
        paths.root(b"S", b"/");
        learn(&mut paths, b"S", b"x", b"3");
        assert_eq!([path(&mut paths, b"S"), path(&mut paths, b"3")], ["/", "/x"]);
        learn(&mut paths, b"S", b"y", b"1");
        assert_eq!(path(&mut paths, b"2"), "/y/b", "as it was seen last");
        for name in [&b"."[..], b"..", b"", b"a/b", b"a\0"] {
            learn(&mut paths, b"S", name, b"3");
        }
        assert_eq!(path(&mut paths, b"3"), "/x");
        learn(&mut paths, b"8", b"u", b"7");
        learn(&mut paths, b"7", b"v", b"8");
        assert_eq!(path(&mut paths, b"7"), "fh:37", "a loop");
    }
}
