//! Files as the controller knows them: dense numbers for handles.

use crate::heat::Handle;
use clockwork_forecaster::controller::FileId;
use std::collections::HashMap;

/// Handles by number and numbers by handle. A number stays with its handle as long as the process runs: after a start they
/// are given out anew, from the history.
#[derive(Debug, Default)]
pub(crate) struct Files {
    numbers: HashMap<Handle, FileId>,
    handles: Vec<Handle>,
    files_max: usize,
}

impl Files {
    /// No files yet, and room for so many; further ones have no number.
    pub(crate) fn new(files_max: usize) -> Self {
        Self { files_max, ..Self::default() }
    }

    /// The number of a file, a new one if it has none; `None` if there are too many.
    pub(crate) fn number(&mut self, handle: &Handle) -> Option<FileId> {
        if let Some(number) = self.numbers.get(handle) {
            return Some(*number);
        }
        if self.handles.len() >= self.files_max {
            return None;
        }
        let number = FileId(u32::try_from(self.handles.len()).ok()?);
        self.handles.push(*handle);
        self.numbers.insert(*handle, number);
        Some(number)
    }

    /// The number of a file, if it has one.
    pub(crate) fn known(&self, handle: &Handle) -> Option<FileId> {
        self.numbers.get(handle).copied()
    }

    /// The handle of a number.
    pub(crate) fn handle(&self, file: FileId) -> Option<&Handle> {
        self.handles.get(file.index())
    }

    /// All handles, by number.
    pub(crate) fn handles(&self) -> &[Handle] {
        &self.handles
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dense_stay_and_have_a_limit() {
        let mut files = Files::new(2);
        let handle = |byte: u8| Handle::new(&[byte]).unwrap();
        assert_eq!(files.number(&handle(7)), Some(FileId(0)));
        assert_eq!(files.number(&handle(9)), Some(FileId(1)));
        assert_eq!(files.number(&handle(7)), Some(FileId(0)));
        assert_eq!((files.number(&handle(1)), files.known(&handle(1))), (None, None));
        assert_eq!(files.handle(FileId(1)), Some(&handle(9)));
        assert_eq!(files.handle(FileId(2)), None);
    }
}
