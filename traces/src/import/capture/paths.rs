//! Paths of file handles, as far as the replies of a capture have shown them.

use super::super::names::Names;
use hashbrown::HashMap;

/// Most handles that are known, and bytes of them; and the same of their names. Further ones have no path.
const HANDLES_MAX: usize = 500_000;
const BYTES_MAX: usize = 32 << 20;
/// Most exports that are known by their roots.
const ROOTS_MAX: usize = 1_024;
/// Most directories that a path is followed upwards, so that a loop in what was learnt ends.
const DEPTH_MAX: usize = 128;
/// Longest name that is kept, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// Numbers of handles, with the directory and the name of each as they were seen last.
pub(in super::super) struct Paths {
    handles: Names,
    names: Names,
    /// By handle: number of the directory's handle, and of the name.
    at: Vec<Option<(u32, u32)>>,
    /// Paths of the exports that begin at a handle.
    roots: HashMap<u32, Box<[u8]>>,
}

impl Default for Paths {
    fn default() -> Self {
        Self {
            handles: Names::new(HANDLES_MAX, BYTES_MAX),
            names: Names::new(HANDLES_MAX, BYTES_MAX),
            at: Vec::new(),
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

    /// Takes note of a handle's name in a directory.
    pub(in super::super) fn learn(&mut self, directory: &[u8], name: &[u8], handle: &[u8]) {
        let is_a_name = (1..=NAME_BYTES_MAX).contains(&name.len())
            && !matches!(name, b"." | b"..")
            && !name.iter().any(|byte| matches!(byte, b'/' | 0));
        if !is_a_name || directory == handle {
            return;
        }
        let (Some(directory), Some(name)) = (self.handles.number(directory), self.names.number(name)) else {
            return;
        };
        let Some(number) = self.handles.number(handle) else { return };
        if self.at.len() <= number as usize {
            self.at.resize(number as usize + 1, None);
        }
        if let Some(at) = self.at.get_mut(number as usize) {
            *at = Some((directory, name));
        }
    }

    /// The path of a handle: from the root of its export, else from where knowledge ends, which is `fh:` and a handle in
    /// hexadecimal.
    pub(in super::super) fn path(&self, number: u32, out: &mut Vec<u8>) {
        let (mut top, mut parts) = (number, Vec::new());
        while !self.roots.contains_key(&top)
            && let Some((directory, name)) = self.at.get(top as usize).copied().flatten()
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

    #[test]
    fn paths_begin_at_a_root_or_where_knowledge_ends() {
        let mut paths = Paths::default();
        paths.learn(b"R", b"a", b"1");
        paths.learn(b"1", b"b", b"2");
        assert_eq!(path(&mut paths, b"2"), "fh:52/a/b");
        assert_eq!(path(&mut paths, b"9"), "fh:39");
        paths.root(b"R", b"//export/");
        assert_eq!(
            ["R", "1", "2"].map(|h| path(&mut paths, h.as_bytes())),
            ["/export", "/export/a", "/export/a/b"]
        );
        paths.root(b"S", b"/");
        paths.learn(b"S", b"x", b"3");
        assert_eq!([path(&mut paths, b"S"), path(&mut paths, b"3")], ["/", "/x"]);
        paths.learn(b"S", b"y", b"1");
        assert_eq!(path(&mut paths, b"2"), "/y/b", "as it was seen last");
        for name in [&b"."[..], b"..", b"", b"a/b", b"a\0"] {
            paths.learn(b"S", name, b"3");
        }
        assert_eq!(path(&mut paths, b"3"), "/x");
        paths.learn(b"8", b"u", b"7");
        paths.learn(b"7", b"v", b"8");
        assert_eq!(path(&mut paths, b"7"), "fh:37", "a loop");
    }
}
