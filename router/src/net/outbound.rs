//! Bytes of a TCP connection on their way out.

use std::io::{self, IoSlice};
use tokio::net::TcpStream;

/// Room that an empty queue keeps.
const KEPT_BYTES: usize = 256 << 10;
/// Runs written with one call.
const RUNS_MAX: usize = 63;

/// Bytes queued for one connection.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    bytes: Vec<u8>,
    written: usize,
}

impl Outbound {
    pub(crate) fn push(&mut self, record: &[u8]) {
        self.bytes.extend_from_slice(record);
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.written
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes what is queued, without waiting. Afterwards the queue is empty, or the connection takes no more for now.
    pub(crate) fn flush(&mut self, stream: &TcpStream) -> io::Result<()> {
        while !self.is_empty() {
            match stream.try_write(&self.bytes[self.written..]) {
                Ok(count) => self.advance(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes what is queued and then `runs`, from where they lie; queues what the connection does not take.
    pub(crate) fn write_through<'a>(
        &mut self,
        stream: &TcpStream,
        runs: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> io::Result<()> {
        let mut left = runs;
        loop {
            let behind = left.clone();
            let queued = self.len();
            let mut slices = [IoSlice::new(&[]); RUNS_MAX + 1];
            slices[0] = IoSlice::new(&self.bytes[self.written..]);
            let first = usize::from(queued == 0);
            let mut end = 1;
            for (slice, run) in slices[1..].iter_mut().zip(&mut left) {
                *slice = IoSlice::new(run);
                end += 1;
            }
            if first == end {
                return Ok(());
            }
            let count = match &slices[first..end] {
                [one] => stream.try_write(one),
                several => stream.try_write_vectored(several),
            };
            let count = match count {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                Err(error) => return Err(error),
            };
            self.advance(count.min(queued));
            let mut written = count.saturating_sub(queued);
            for run in behind.take(end - 1) {
                let rest = &run[written.min(run.len())..];
                written -= run.len() - rest.len();
                self.push(rest);
            }
            if !self.is_empty() {
                left.for_each(|run| self.push(run));
                return Ok(());
            }
        }
    }

    fn advance(&mut self, count: usize) {
        self.written += count;
        if self.written == self.bytes.len() {
            self.written = 0;
            self.bytes.clear();
            self.bytes.shrink_to(KEPT_BYTES);
        } else if self.written > KEPT_BYTES && self.written * 2 > self.bytes.len() {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
    }
}
