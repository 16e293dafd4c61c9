//! Bytes of a TCP connection on their way out.

use std::io::{self, IoSlice};
use tokio::net::TcpStream;

/// Room that an empty queue keeps.
const KEPT_BYTES: usize = 256 << 10;

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

    /// Writes what is queued and then `run`, from where it lies; queues what the connection does not take.
    pub(crate) fn write_through(&mut self, stream: &TcpStream, run: &[u8]) -> io::Result<()> {
        let queued = self.len();
        let count = match stream
            .try_write_vectored(&[IoSlice::new(&self.bytes[self.written..]), IoSlice::new(run)])
        {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        self.advance(count.min(queued));
        self.push(&run[count.saturating_sub(queued)..]);
        Ok(())
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
