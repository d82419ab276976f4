//! What the engine asks of the library.

use std::fmt::Debug;

use crate::backend::DType;
use crate::comm::ReduceOp;

/// The identifier from which a communicator is made, the same on all its ranks.
pub type Id = [u8; 128];

/// A communicator of the library: one rank's seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Comm(pub u64);

/// How a communicator is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It takes calls.
    Ready,
    /// It is still at what it was asked for.
    Busy,
}

/// What the library reports.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{function} failed: {reason}")]
pub struct LibraryError {
    /// Its function.
    pub function: &'static str,
    /// Its words.
    pub reason: String,
}

/// Memory that a communicator knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Registration(pub u64);

/// Where a transfer is queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct On {
    /// The communicator.
    pub comm: Comm,
    /// The stream of the device.
    pub stream: u64,
}

/// One transfer; addresses are those of the device, counts are elements, and ranks are those of the communicator.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Transfer {
    AllReduce {
        data: u64,
        count: usize,
        op: ReduceOp,
    },
    Reduce {
        src: u64,
        dst: u64,
        count: usize,
        op: ReduceOp,
        root: usize,
    },
    /// `count` elements come out on each rank.
    ReduceScatter {
        src: u64,
        dst: u64,
        count: usize,
    },
    /// `count` elements go in on each rank.
    AllGather {
        src: u64,
        dst: u64,
        count: usize,
    },
    Broadcast {
        src: u64,
        dst: u64,
        count: usize,
        root: usize,
    },
    Send {
        src: u64,
        count: usize,
        to: usize,
    },
    Recv {
        dst: u64,
        count: usize,
        from: usize,
    },
}

impl Transfer {
    /// The memory of a collective among `ranks` ranks, as addresses and bytes: that of all parts, and that of the own one
    /// where it lies elsewhere. Nothing for what has a root, or is a message: those are few, and small.
    pub(super) fn memory(&self, ranks: usize, dtype: DType) -> [Option<(u64, usize)>; 2] {
        let (whole, part, count) = match *self {
            Transfer::AllReduce { data, count, .. } => {
                return [Some((data, count * dtype.bytes())), None];
            }
            Transfer::ReduceScatter { src, dst, count } => (src, dst, count),
            Transfer::AllGather { src, dst, count } => (dst, src, count),
            _ => return [None, None],
        };
        let bytes = count * dtype.bytes();
        let is_inside = (whole..whole + (ranks * bytes) as u64).contains(&part);
        [Some((whole, ranks * bytes)), (!is_inside).then_some((part, bytes))]
    }
}

/// The library. No call waits for other ranks: a communicator that is [busy](State::Busy) takes no calls until it is ready.
pub trait Library: Send + Sync + Debug {
    /// An identifier for a new communicator.
    fn new_id(&self) -> Result<Id, LibraryError>;
    /// Begins to make the communicator of `id` with `ranks` ranks, of which this is `rank`.
    fn begin(&self, id: &Id, ranks: usize, rank: usize) -> Result<Comm, LibraryError>;
    /// Splits a ready communicator: ranks that give the same `color` are together in the order of `key`, and those that
    /// give none take part in nothing. All ranks of `comm` call it. Waits for them as long as `keep_waiting` says.
    fn split(
        &self,
        comm: Comm,
        color: Option<usize>,
        key: usize,
        keep_waiting: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Comm>, LibraryError>;
    /// How a communicator is; the error that has stopped it.
    fn state(&self, comm: Comm) -> Result<State, LibraryError>;
    /// Ends a communicator, and what it is at.
    fn abort(&self, comm: Comm);
    /// Ends a communicator that has nothing left to do.
    fn finish(&self, comm: Comm);

    /// Makes memory known to a ready communicator, so that transfers from and to it need no copies aside; nothing where the
    /// library can do without.
    ///
    /// # Safety
    /// The bytes lie in one allocation of the communicator's device, which lives until they are given up, or the communicator
    /// was aborted.
    unsafe fn register(
        &self,
        comm: Comm,
        address: u64,
        bytes: usize,
    ) -> Result<Option<Registration>, LibraryError>;
    /// Gives up memory that no transfer uses any more.
    fn deregister(&self, comm: Comm, registration: Registration) -> Result<(), LibraryError>;

    /// What is queued until [`end_group`](Self::end_group) begins together.
    fn begin_group(&self) -> Result<(), LibraryError>;
    /// Ends a group.
    fn end_group(&self) -> Result<(), LibraryError>;
    /// Queues a transfer.
    ///
    /// # Safety
    /// The addresses lie in live memory of the communicator's device with room for the elements, and nothing else uses what
    /// is written until the stream has done it.
    unsafe fn queue(&self, on: On, dtype: DType, transfer: &Transfer) -> Result<(), LibraryError>;
}
