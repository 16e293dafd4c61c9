//! Entries of directory listings (dirlist3 and dirlistplus3, RFC 1813 sections 3.3.16 and 3.3.17).

use super::attributes::optional;
use super::{HANDLE_BYTES_MAX, NAME_BYTES_MAX};
use crate::xdr::{Reader, Span, XdrError};

/// One name of a READDIR reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The file's number within its file system.
    pub fileid: u64,
    /// The name.
    pub name: Span,
    /// Where a listing goes on behind this entry.
    pub cookie: u64,
}

/// One name of a READDIRPLUS reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryPlus {
    /// The file's number within its file system.
    pub fileid: u64,
    /// The name.
    pub name: Span,
    /// Where a listing goes on behind this entry.
    pub cookie: u64,
    /// Where the file's attributes lie, if the store gives them; see [`super::attributes`].
    pub attributes_at: Option<usize>,
    /// The file's handle, if the store gives it.
    pub handle: Option<Span>,
}

/// The place of an iterator in a list: the list's end says whether it is the directory's end too.
#[derive(Clone, Debug)]
struct List<'a> {
    reader: Reader<'a>,
    done: bool,
    eof: Option<bool>,
}

impl<'a> List<'a> {
    fn new(message: &'a [u8], at: usize) -> Self {
        Self { reader: Reader::new(message, at), done: false, eof: None }
    }

    /// The next entry by `read`, or `None` at the end of the list and where it is malformed.
    fn next<T>(&mut self, read: impl FnOnce(&mut Reader<'a>) -> Result<T, XdrError>) -> Option<T> {
        if self.done {
            return None;
        }
        self.done = true; // unless an entry is read whole
        if self.reader.bool().ok()? {
            let entry = read(&mut self.reader).ok()?;
            self.done = false;
            Some(entry)
        } else {
            self.eof = self.reader.bool().ok();
            None
        }
    }
}

/// Iterator over the names of a READDIR reply; see [`entries`].
#[derive(Clone, Debug)]
pub struct Entries<'a>(List<'a>);

/// Iterator over the names of a READDIRPLUS reply; see [`entries_plus`].
#[derive(Clone, Debug)]
pub struct EntriesPlus<'a>(List<'a>);

/// The names of the list at byte `at` ([`super::Results::Readdir`]); the iterator ends where the list does or is
/// malformed.
#[must_use]
pub fn entries(message: &[u8], at: usize) -> Entries<'_> {
    Entries(List::new(message, at))
}

/// The names of the list at byte `at` ([`super::Results::Readdirplus`]); the iterator ends where the list does or
/// is malformed.
#[must_use]
pub fn entries_plus(message: &[u8], at: usize) -> EntriesPlus<'_> {
    EntriesPlus(List::new(message, at))
}

impl Entries<'_> {
    /// After the last entry: whether the directory ends here. `None` before that, and if the list is malformed.
    #[must_use]
    pub fn eof(&self) -> Option<bool> {
        self.0.eof
    }
}

impl EntriesPlus<'_> {
    /// After the last entry: whether the directory ends here. `None` before that, and if the list is malformed.
    #[must_use]
    pub fn eof(&self) -> Option<bool> {
        self.0.eof
    }
}

impl Iterator for Entries<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        self.0.next(|reader| {
            Ok(Entry {
                fileid: reader.u64()?,
                name: reader.opaque(0, NAME_BYTES_MAX)?,
                cookie: reader.u64()?,
            })
        })
    }
}

impl Iterator for EntriesPlus<'_> {
    type Item = EntryPlus;

    fn next(&mut self) -> Option<EntryPlus> {
        self.0.next(|reader| {
            let fileid = reader.u64()?;
            let name = reader.opaque(0, NAME_BYTES_MAX)?;
            let cookie = reader.u64()?;
            let attributes_at = optional(reader)?;
            let handle = if reader.bool()? { Some(reader.opaque(1, HANDLE_BYTES_MAX)?) } else { None };
            Ok(EntryPlus { fileid, name, cookie, attributes_at, handle })
        })
    }
}
