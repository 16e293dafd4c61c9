//! Writing a trace file as a stream.

use super::block::{self, Block, Client, FileCount, Head, REQUESTS_MAX, Span};
use super::{BLOCK_BYTES_MAX, FILES_MAX, PATH_BYTES_MAX, SIGNATURE, TraceFileError, TraceReader, VERSION};
use std::io::{self, Read, Write};

/// Entries of a block of counts: at most 55 bytes each, so a block stays below [`BLOCK_BYTES_MAX`].
const ENTRIES_MAX: usize = 16_384;
/// Bytes of paths or addresses after which a block is full.
const NAMES_BYTES: usize = 256 << 10;

/// Writes a trace file: files before the counts that name them, and an end.
pub struct TraceWriter<W> {
    out: W,
    payload: Vec<u8>,
    requests: u64,
    files: usize,
    blocks: u64,
}

impl<W: Write> TraceWriter<W> {
    /// Begins a trace file.
    ///
    /// # Errors
    /// What cannot be written.
    pub fn new(mut out: W, head: &Head) -> Result<Self, TraceFileError> {
        out.write_all(&SIGNATURE)?;
        out.write_all(&VERSION.to_le_bytes())?;
        let mut writer = Self { out, payload: Vec::new(), requests: 0, files: 0, blocks: 0 };
        block::put_head(&mut writer.payload, head);
        writer.flush_block(b'H')?;
        Ok(writer)
    }

    /// Goes on after a whole trace file: writes what is in `old`, in the form of this version, and then what is new.
    /// `seen` is shown every block that is there, so that the caller knows the files and their numbers. Blocks of kinds that
    /// are unknown are left out.
    ///
    /// # Errors
    /// What is wrong with the old file, or what cannot be written.
    pub fn append<R: Read>(
        old: R,
        out: W,
        mut seen: impl FnMut(&Head, Block),
    ) -> Result<(Self, Head), TraceFileError> {
        let mut reader = TraceReader::new(old)?;
        let head = reader.head().clone();
        let mut writer = Self::new(out, &head)?;
        while let Some(block) = reader.next_block()? {
            match &block {
                Block::Files { paths, .. } => writer.name_files(paths.iter().map(Vec::as_slice))?,
                Block::Counts(counts) => writer.counts(counts.period, &counts.counts)?,
                // There is one behind everything.
                Block::End { .. } => {}
                other => writer.block(other)?,
            }
            seen(&head, block);
        }
        Ok((writer, head))
    }

    /// How many files are named so far.
    #[must_use]
    pub fn files(&self) -> usize {
        self.files
    }

    /// Names further files; the first gets the number [`TraceWriter::files`].
    ///
    /// # Errors
    /// Too many files, a path that is too long, or what cannot be written.
    pub fn name_files<'a>(
        &mut self,
        paths: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(), TraceFileError> {
        let (mut block, mut bytes) = (Vec::new(), 0);
        for path in paths {
            limit("the length of a path", path.len(), PATH_BYTES_MAX)?;
            limit("the number of files", self.files + block.len() + 1, FILES_MAX)?;
            bytes += path.len() + 2;
            block.push(path.to_vec());
            if bytes >= NAMES_BYTES {
                self.write_files(std::mem::take(&mut block))?;
                bytes = 0;
            }
        }
        self.write_files(block)
    }

    fn write_files(&mut self, paths: Vec<Vec<u8>>) -> Result<(), TraceFileError> {
        if paths.is_empty() {
            return Ok(());
        }
        let (first, more) = (u32::try_from(self.files).unwrap_or(u32::MAX), paths.len());
        self.block(&Block::Files { first, paths })?;
        self.files += more;
        Ok(())
    }

    /// Adds counts to a period. They must be sorted by file, without repeats, and name known files.
    ///
    /// # Errors
    /// A file that was not named or is out of order, or what cannot be written.
    pub fn counts(&mut self, period: i64, counts: &[FileCount]) -> Result<(), TraceFileError> {
        let sorted = counts.windows(2).all(|pair| pair[0].file < pair[1].file);
        let known = counts.last().is_none_or(|last| (last.file as usize) < self.files);
        let countable = counts.iter().all(|count| count.requests <= REQUESTS_MAX);
        if !sorted || !known || !countable {
            let error = "counts of files that are not named yet, or out of order, or of too many requests";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error).into());
        }
        if counts.is_empty() {
            block::put_counts(&mut self.payload, period, counts);
            return self.flush_block(b'C');
        }
        for part in counts.chunks(ENTRIES_MAX) {
            self.requests = part.iter().fold(self.requests, |sum, count| sum.saturating_add(count.requests));
            block::put_counts(&mut self.payload, period, part);
            self.flush_block(b'C')?;
        }
        Ok(())
    }

    /// States the largest sizes seen: file and bytes, sorted by file.
    ///
    /// # Errors
    /// What cannot be written.
    pub fn sizes(&mut self, sizes: &[(u32, u64)]) -> Result<(), TraceFileError> {
        sizes.chunks(ENTRIES_MAX).try_for_each(|part| self.block(&Block::Sizes(part.to_vec())))
    }

    /// States what was observed.
    ///
    /// # Errors
    /// What cannot be written.
    pub fn span(&mut self, span: Span) -> Result<(), TraceFileError> {
        self.block(&Block::Span(span))
    }

    /// States who asked, sorted by number.
    ///
    /// # Errors
    /// What cannot be written.
    pub fn clients(&mut self, clients: &[Client]) -> Result<(), TraceFileError> {
        clients.chunks(2_048).try_for_each(|part| self.block(&Block::Clients(part.to_vec())))
    }

    /// Writes the end, and gives the output back. Without it the file is not whole.
    ///
    /// # Errors
    /// What cannot be written.
    pub fn finish(mut self) -> Result<W, TraceFileError> {
        let files = u32::try_from(self.files).unwrap_or(u32::MAX);
        self.block(&Block::End { requests: self.requests, files, blocks: self.blocks })?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn block(&mut self, block: &Block) -> Result<(), TraceFileError> {
        block.put(&mut self.payload);
        self.flush_block(block.kind())
    }

    fn flush_block(&mut self, kind: u8) -> Result<(), TraceFileError> {
        limit("the length of a block", self.payload.len(), BLOCK_BYTES_MAX)?;
        let length = u32::try_from(self.payload.len()).unwrap_or(u32::MAX).to_le_bytes();
        let start = [kind, length[0], length[1], length[2], length[3]];
        let mut sum = crc32fast::Hasher::new();
        sum.update(&start);
        sum.update(&self.payload);
        self.out.write_all(&start)?;
        self.out.write_all(&self.payload)?;
        self.out.write_all(&sum.finalize().to_le_bytes())?;
        self.payload.clear();
        self.blocks += 1;
        Ok(())
    }
}

fn limit(what: &'static str, found: usize, limit: usize) -> Result<(), TraceFileError> {
    if found <= limit {
        return Ok(());
    }
    Err(TraceFileError::Limit { what, found: found as u64, limit: limit as u64 })
}
