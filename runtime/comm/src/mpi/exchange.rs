//! Messages in progress.

use std::ffi::c_int;

use super::library::{ArrivedMessage, MessageArrival, MpiComm, MpiLibrary, MpiRequest};
use super::memory::CallMemory;
use super::plan::MpiTransfer;

/// Bytes of the largest message; longer transfers are several. MPI counts by 32-bit integers.
const LARGEST_MESSAGE: usize = 1 << 30;

/// The messages of one step of a call, until all are complete.
#[derive(Default)]
pub struct MpiExchange {
    requests: Vec<MpiRequest>,
    /// The messages of the requests.
    messages: Vec<Message>,
    /// Number of messages that are not complete.
    open: usize,
}

#[derive(Clone, Copy)]
struct Message {
    /// Group rank of the other member.
    peer: usize,
    /// Bytes of a message that is received; `None` for one that is sent.
    expected: Option<usize>,
    is_complete: bool,
}

/// A failed exchange.
#[derive(Debug)]
pub enum MpiExchangeError {
    /// A member has sent a message of another call.
    Other { peer: usize, sent: MessageArrival },
    /// An error of the library with a message to or from a member.
    MpiLibrary { peer: usize, problem: String },
}

/// A tag, and the comparison of tags that are received with it.
#[derive(Clone, Copy)]
pub struct CallTag {
    pub own: c_int,
    pub matches: fn(c_int, c_int) -> bool,
}

impl MpiExchange {
    /// Starts messages of `tag`, the receives first.
    ///
    /// # Safety
    /// The buffers of `memory` must live, and the runs not be used otherwise, until the exchange is complete.
    pub unsafe fn start(
        (library, comm, tag): (&MpiLibrary, MpiComm, CallTag),
        memory: &mut CallMemory,
        sends: &[MpiTransfer],
        receives: &[MpiTransfer],
    ) -> Result<MpiExchange, MpiExchangeError> {
        let mut exchange = MpiExchange::default();
        for MpiTransfer { peer, run } in receives {
            let data = memory.write_address(run);
            for piece in pieces(run.bytes.len()) {
                // SAFETY: as the caller guarantees.
                unsafe { exchange.receive((library, comm), *peer, data, piece)? };
            }
        }
        for MpiTransfer { peer, run } in sends {
            let data = memory.read_address(run);
            for (start, bytes) in pieces(run.bytes.len()) {
                // SAFETY: as the caller guarantees.
                let sent = unsafe {
                    library.send((comm, *peer, tag.own), data.wrapping_add(start), bytes)
                };
                exchange.add(*peer, None, sent)?;
            }
        }
        Ok(exchange)
    }

    /// Starts the receive of a message whose first piece has arrived.
    ///
    /// # Safety
    /// As [`start`](Self::start).
    pub unsafe fn start_arrived(
        (library, comm): (&MpiLibrary, MpiComm),
        message: ArrivedMessage,
        memory: &mut CallMemory,
        MpiTransfer { peer, run }: &MpiTransfer,
    ) -> Result<MpiExchange, MpiExchangeError> {
        let mut exchange = MpiExchange::default();
        let (data, len) = (memory.write_address(run), run.bytes.len());
        let first = first_piece(len);
        // SAFETY: as the caller guarantees.
        let received = unsafe { library.receive_arrived(message, data, first) };
        exchange.add(*peer, Some(first), received)?;
        for piece in pieces(len).skip(1) {
            // SAFETY: as above.
            unsafe { exchange.receive((library, comm), *peer, data, piece)? };
        }
        Ok(exchange)
    }

    /// Starts to receive one message to `bytes` bytes from `start` on in `data`.
    ///
    /// # Safety
    /// As [`start`](Self::start).
    unsafe fn receive(
        &mut self,
        (library, comm): (&MpiLibrary, MpiComm),
        peer: usize,
        data: *mut u8,
        (start, bytes): (usize, usize),
    ) -> Result<(), MpiExchangeError> {
        // SAFETY: as the caller guarantees.
        let request = unsafe { library.receive((comm, peer), data.wrapping_add(start), bytes) };
        self.add(peer, Some(bytes), request)
    }

    fn add(
        &mut self,
        peer: usize,
        expected: Option<usize>,
        request: Result<MpiRequest, String>,
    ) -> Result<(), MpiExchangeError> {
        let request = request.map_err(|problem| MpiExchangeError::MpiLibrary { peer, problem })?;
        self.requests.push(request);
        self.messages.push(Message { peer, expected, is_complete: false });
        self.open += 1;
        Ok(())
    }

    /// Advances the messages. Returns the number of those that are complete since the last call.
    ///
    /// # Errors
    /// A message of another call.
    pub fn advance(
        &mut self,
        library: &MpiLibrary,
        tag: CallTag,
    ) -> Result<usize, MpiExchangeError> {
        if self.open == 0 {
            return Ok(0);
        }
        let completed = library.test(&mut self.requests);
        let completed = completed.map_err(|problem| {
            let peer = self.missing().first().copied().unwrap_or_default();
            MpiExchangeError::MpiLibrary { peer, problem }
        })?;
        let count = completed.len();
        self.open -= count;
        for request in completed {
            let message = &mut self.messages[request.index];
            message.is_complete = true;
            let peer = message.peer;
            let sent = request
                .outcome
                .map_err(|problem| MpiExchangeError::MpiLibrary { peer, problem })?;
            if let Some(expected) = message.expected {
                check_arrival(peer, sent, expected, tag)?;
            }
        }
        Ok(count)
    }

    /// Returns true if all messages are complete.
    pub fn is_complete(&self) -> bool {
        self.open == 0
    }

    /// Returns the group ranks of the members that this one waits for.
    pub fn missing(&self) -> Vec<usize> {
        let open = self.messages.iter().filter(|message| !message.is_complete);
        let mut peers: Vec<usize> = open.map(|message| message.peer).collect();
        peers.sort_unstable();
        peers.dedup();
        peers
    }
}

/// Checks that a message has the tag and the length of the one that is expected from `peer`.
pub fn check_arrival(
    peer: usize,
    sent: MessageArrival,
    expected: usize,
    tag: CallTag,
) -> Result<(), MpiExchangeError> {
    if (tag.matches)(sent.tag, tag.own) && sent.bytes == Some(expected) {
        Ok(())
    } else {
        Err(MpiExchangeError::Other { peer, sent })
    }
}

/// Returns the length of the first message of a transfer of `bytes` bytes.
pub fn first_piece(bytes: usize) -> usize {
    bytes.min(LARGEST_MESSAGE)
}

/// Returns start and length of the messages of a transfer: one at least, which may be empty.
fn pieces(bytes: usize) -> impl Iterator<Item = (usize, usize)> {
    let starts = (0..bytes.max(1)).step_by(LARGEST_MESSAGE);
    starts.map(move |start| (start, (bytes - start).min(LARGEST_MESSAGE)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_transfers_are_several_messages() {
        let pieces = |bytes| pieces(bytes).collect::<Vec<_>>();
        assert_eq!(pieces(0), [(0, 0)]);
        assert_eq!(pieces(7), [(0, 7)]);
        assert_eq!(pieces(LARGEST_MESSAGE), [(0, LARGEST_MESSAGE)]);
        let (half, four) = (LARGEST_MESSAGE / 2, LARGEST_MESSAGE * 4);
        let long = pieces(four + half);
        assert_eq!(long.len(), 5);
        assert_eq!(long[4], (four, half));
        assert!(long.iter().all(|(_, bytes)| i32::try_from(*bytes).is_ok()));
    }
}
