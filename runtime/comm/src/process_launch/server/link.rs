//! A connection of the server, which never waits: bytes that have arrived, and bytes to be sent.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use super::super::keep_alive::enable_keep_alive;

/// Bytes that are read in one turn, so that every connection gets one.
const TURN: usize = 64 << 10;
/// Bytes to be sent above which no further request is read.
const MAX_UNSENT: usize = 64 << 10;

/// A connection.
#[derive(Debug)]
pub struct Link {
    pub stream: TcpStream,
    input: Vec<u8>,
    output: VecDeque<Arc<[u8]>>,
    /// Bytes of the first output that were sent.
    sent: usize,
}

impl Link {
    /// Takes over an accepted connection.
    pub fn new(stream: TcpStream) -> io::Result<Link> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        enable_keep_alive(&stream);
        Ok(Link { stream, input: Vec::new(), output: VecDeque::new(), sent: 0 })
    }

    /// Returns true if further requests are to be read: not while the other side does not read replies.
    pub fn reads(&self) -> bool {
        self.output.iter().map(|bytes| bytes.len()).sum::<usize>() <= MAX_UNSENT
    }

    /// Returns true if there are bytes to be sent.
    pub fn writes(&self) -> bool {
        !self.output.is_empty()
    }

    /// Number of bytes that have arrived and were not read.
    pub fn arrived(&self) -> usize {
        self.input.len()
    }

    /// Receives what has arrived, at most `limit` bytes in one turn.
    ///
    /// # Errors
    /// If the connection has ended or failed.
    pub fn receive(&mut self, limit: usize) -> io::Result<()> {
        let start = self.input.len();
        let outcome = (&self.stream).take(limit.min(TURN) as u64).read_to_end(&mut self.input);
        match outcome {
            // Fewer bytes than the limit: the other side has closed the connection.
            Ok(count) if count < limit.min(TURN) => Err(ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => {
                debug_assert!(self.input.len() >= start);
                Ok(())
            }
        }
    }

    /// Reads a message of the bytes that have arrived; `None` if it is not complete.
    pub fn read<T>(
        &mut self,
        read: impl FnOnce(&mut &[u8]) -> io::Result<T>,
    ) -> io::Result<Option<T>> {
        let mut rest = &self.input[..];
        match read(&mut rest) {
            Ok(message) => {
                let used = self.input.len() - rest.len();
                self.input.drain(..used);
                // The memory of a long message is not kept.
                if self.input.capacity() > TURN {
                    self.input.shrink_to(TURN);
                }
                Ok(Some(message))
            }
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends `bytes`, now or when there is space.
    pub fn send(&mut self, bytes: Arc<[u8]>) -> io::Result<()> {
        if !bytes.is_empty() {
            self.output.push_back(bytes);
        }
        self.flush()
    }

    /// Sends what there is space for.
    pub fn flush(&mut self) -> io::Result<()> {
        while let Some(next) = self.output.front() {
            match (&self.stream).write(&next[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            if self.sent == next.len() {
                self.output.pop_front();
                self.sent = 0;
            }
        }
        Ok(())
    }
}
