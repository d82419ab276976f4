//! Waiting for several sockets.

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use libc::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT};

/// The sockets that a thread waits for.
#[derive(Default)]
pub struct PollSet(Vec<libc::pollfd>);

/// The state of a socket after the wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Set if there is something to read, or the connection has ended.
    pub readable: bool,
    /// Set if there is space for writing.
    pub writable: bool,
}

impl PollSet {
    /// Removes all sockets.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds a socket, and returns its position.
    pub fn add(&mut self, socket: &impl AsRawFd, read: bool, write: bool) -> usize {
        let events = if read { POLLIN } else { 0 } | if write { POLLOUT } else { 0 };
        self.0.push(libc::pollfd { fd: socket.as_raw_fd(), events, revents: 0 });
        self.0.len() - 1
    }

    /// Waits until a socket is ready, for at most `limit`.
    pub fn wait(&mut self, limit: Duration) -> io::Result<()> {
        let millis = limit.as_millis().min(60_000) as libc::c_int;
        let count = self.0.len() as libc::nfds_t;
        // SAFETY: the vector has this pointer and this length, and its elements are initialized.
        match unsafe { libc::poll(self.0.as_mut_ptr(), count, millis) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Returns the state of the socket at a position.
    pub fn readiness(&self, position: usize) -> Readiness {
        let events = self.0[position].revents;
        Readiness {
            readable: events & (POLLIN | POLLHUP | POLLERR | POLLNVAL) != 0,
            writable: events & POLLOUT != 0,
        }
    }
}
