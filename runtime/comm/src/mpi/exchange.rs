//! Messages in progress.

use std::ffi::c_int;
use std::time::Instant;

use super::library::{MessageArrival, MpiComm, MpiLibrary, MpiRequest};
use super::memory::CallMemory;
use super::plan::MpiTransfer;

/// Bytes of the largest message; longer transfers are several. MPI counts by 32-bit integers.
const LARGEST_MESSAGE: usize = 1 << 30;

/// The messages of one step of a call, until all are complete.
///
/// The tag and the length of a message are compared with the call before it is received: a library may write past the
/// memory of a receive if the message is longer.
#[derive(Default)]
pub struct MpiExchange {
    /// Messages that have not arrived yet. Those of one member are behind each other, in the order in which it sends.
    awaited: Vec<AwaitedMessage>,
    requests: Vec<MpiRequest>,
    /// The messages of the requests.
    messages: Vec<Message>,
    /// Number of requests that are not complete.
    open: usize,
    /// The time at which the last announcement has arrived; without announcements, the first message.
    begun: Option<Instant>,
}

/// A message that is received after its arrival.
struct AwaitedMessage {
    /// Group rank of the sender.
    peer: usize,
    data: *mut u8,
    bytes: usize,
    /// An empty message: the sender has arrived at the call.
    is_announcement: bool,
}

// SAFETY: the memory is that of the call, which moves to another thread together with the message.
unsafe impl Send for AwaitedMessage {}

#[derive(Clone, Copy)]
struct Message {
    /// Group rank of the other member.
    peer: usize,
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
    /// Starts to send messages of `tag`, and to wait for those to receive. It begins with an empty message to and from
    /// each member of `announced`.
    ///
    /// # Safety
    /// The buffers of `memory` must live, and the runs not be used otherwise, until the exchange is complete.
    pub unsafe fn start(
        (library, comm, tag): (&MpiLibrary, MpiComm, CallTag),
        memory: &mut CallMemory,
        announced: impl Iterator<Item = usize>,
        (sends, receives): (&[MpiTransfer], &[MpiTransfer]),
    ) -> Result<MpiExchange, MpiExchangeError> {
        let mut exchange = MpiExchange::default();
        for peer in announced {
            let data = std::ptr::dangling_mut();
            let awaited = AwaitedMessage { peer, data, bytes: 0, is_announcement: true };
            exchange.awaited.push(awaited);
            // SAFETY: the message is empty.
            let sent = unsafe { library.send((comm, peer, tag.own), data, 0) };
            exchange.add(peer, sent)?;
        }
        for MpiTransfer { peer, run } in receives {
            let data = memory.write_address(run);
            let awaited = |(start, bytes)| {
                let data = data.wrapping_add(start);
                AwaitedMessage { peer: *peer, data, bytes, is_announcement: false }
            };
            exchange.awaited.extend(pieces(run.bytes.len()).map(awaited));
        }
        // Stable: the announcement of a member comes first.
        exchange.awaited.sort_by_key(|message| message.peer);
        for MpiTransfer { peer, run } in sends {
            let data = memory.read_address(run);
            for (start, bytes) in pieces(run.bytes.len()) {
                // SAFETY: as the caller guarantees.
                let sent = unsafe {
                    library.send((comm, *peer, tag.own), data.wrapping_add(start), bytes)
                };
                exchange.add(*peer, sent)?;
            }
        }
        Ok(exchange)
    }

    fn add(
        &mut self,
        peer: usize,
        request: Result<MpiRequest, String>,
    ) -> Result<(), MpiExchangeError> {
        let request = request.map_err(|problem| MpiExchangeError::MpiLibrary { peer, problem })?;
        self.requests.push(request);
        self.messages.push(Message { peer, is_complete: false });
        self.open += 1;
        Ok(())
    }

    /// Advances the messages. Returns the number of those that have arrived or are complete since the last call.
    ///
    /// # Errors
    /// A message of another call.
    pub fn advance(
        &mut self,
        (library, comm, tag): (&MpiLibrary, MpiComm, CallTag),
    ) -> Result<usize, MpiExchangeError> {
        let arrived = self.receive_arrived((library, comm, tag))?;
        if self.open == 0 {
            return Ok(arrived);
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
            request.outcome.map_err(|problem| MpiExchangeError::MpiLibrary { peer, problem })?;
        }
        Ok(arrived + count)
    }

    /// Starts to receive the messages that have arrived. Returns their number.
    fn receive_arrived(
        &mut self,
        (library, comm, tag): (&MpiLibrary, MpiComm, CallTag),
    ) -> Result<usize, MpiExchangeError> {
        let (mut arrived, mut index, mut missing) = (0, 0, None);
        while let Some(message) = self.awaited.get(index) {
            let AwaitedMessage { peer, data, bytes, is_announcement } = *message;
            let failed = |problem| MpiExchangeError::MpiLibrary { peer, problem };
            let probed = if missing == Some(peer) {
                None
            } else {
                library.probe(comm, peer).map_err(failed)?
            };
            let Some((message, sent)) = probed else {
                (missing, index) = (Some(peer), index + 1);
                continue;
            };
            if !(tag.matches)(sent.tag, tag.own) || sent.bytes != bytes {
                return Err(MpiExchangeError::Other { peer, sent });
            }
            if is_announcement || self.begun.is_none() {
                // Before the data is received, which the library may do immediately.
                self.begun = Some(Instant::now());
            }
            // SAFETY: as the caller of `start` guarantees; the message has the length of the memory.
            let received = unsafe { library.receive_arrived(message, data, bytes) };
            self.add(peer, received)?;
            self.awaited.remove(index);
            arrived += 1;
        }
        Ok(arrived)
    }

    /// Returns true if a message has not arrived yet.
    pub fn awaits_arrival(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// Returns the time at which the last announcement has arrived so far; without announcements, the first message.
    pub fn begun(&self) -> Option<Instant> {
        self.begun
    }

    /// Returns true if all messages are complete.
    pub fn is_complete(&self) -> bool {
        self.open == 0 && self.awaited.is_empty()
    }

    /// Returns the group ranks of the members that this one waits for.
    pub fn missing(&self) -> Vec<usize> {
        let open = self.messages.iter().filter(|message| !message.is_complete);
        let mut peers: Vec<usize> = open.map(|message| message.peer).collect();
        peers.extend(self.awaited.iter().map(|message| message.peer));
        peers.sort_unstable();
        peers.dedup();
        peers
    }
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
