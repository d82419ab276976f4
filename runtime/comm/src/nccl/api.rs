//! The interface of the collective library: NCCL, or a replacement in tests.

use std::fmt::Debug;

use crate::ReduceOp;
use meshwright_backend::DType;

/// The unique identifier of a communicator, the same on all its ranks.
pub type Id = [u8; 128];

/// Handle of a communicator of the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Comm(pub u64);

/// State of a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommState {
    /// The communicator accepts calls.
    Ready,
    /// An operation is in progress.
    Busy,
}

/// An error of the library.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{function} failed: {reason}")]
pub struct LibraryError {
    /// The function that failed.
    pub function: &'static str,
    /// The library's description of the error.
    pub reason: String,
}

/// Handle of memory that is registered with a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Registration(pub u64);

/// The communicator and stream of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommStream {
    /// The communicator.
    pub comm: Comm,
    /// The stream of the device.
    pub stream: u64,
}

/// One operation of the library; addresses are device addresses, counts are elements, and ranks are numbers in the
/// communicator.
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
    /// `count` is the number of output elements of each rank.
    ReduceScatter {
        src: u64,
        dst: u64,
        count: usize,
    },
    /// `count` is the number of input elements of each rank.
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
    /// Returns the memory of a collective among `ranks` ranks as addresses and bytes: the whole tensor, and the own
    /// part if it is separate. None for rooted collectives and messages, which are few and small.
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

/// Sharing of resources among the communicators that are split from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SplitResources {
    /// They share its buffers, threads and order: on the device, the calls of all of them run one after another, in the
    /// order of the host, whatever their streams are. Right for collectives, whose order is the same on all ranks.
    Shared,
    /// Each has resources of its own, and its calls wait for nothing but their stream and the other ranks.
    Separate,
}

/// The collective library. No call waits for other ranks: a communicator that is [busy](CommState::Busy) accepts no
/// calls until it is ready.
pub trait Library: Send + Sync + Debug {
    /// Creates an identifier for a new communicator.
    fn new_id(&self) -> Result<Id, LibraryError>;
    /// Starts the initialization of the communicator of `id` as rank `rank` of `ranks`; `splits` is about those that
    /// are split from it.
    fn init_comm(
        &self,
        id: &Id,
        ranks: usize,
        rank: usize,
        splits: SplitResources,
    ) -> Result<Comm, LibraryError>;
    /// Splits a ready communicator: ranks with the same `color` form a communicator in the order of `key`; ranks
    /// without one get none. All ranks of `comm` call it. Waits for them while `keep_waiting` returns `true`. `splits`
    /// is about those that are split from the new one.
    fn split_comm(
        &self,
        comm: Comm,
        color: Option<usize>,
        key: usize,
        splits: SplitResources,
        keep_waiting: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Comm>, LibraryError>;
    /// Returns the state of a communicator, or the error that has stopped it.
    fn comm_state(&self, comm: Comm) -> Result<CommState, LibraryError>;
    /// Aborts a communicator and its operations. Waits until all CUDA graphs with its operations are dropped.
    fn abort_comm(&self, comm: Comm);
    /// Finalizes a communicator whose operations are complete.
    fn finalize_comm(&self, comm: Comm);

    /// Registers memory with a ready communicator, so that transfers from and to it need no staging copies. Returns
    /// `None` if the library does not need it.
    ///
    /// # Safety
    /// The bytes must be inside one allocation of the communicator's device, which lives until they are deregistered or
    /// the communicator is aborted.
    unsafe fn register_memory(
        &self,
        comm: Comm,
        address: u64,
        bytes: usize,
    ) -> Result<Option<Registration>, LibraryError>;
    /// Deregisters memory that no transfer uses any more.
    fn deregister_memory(&self, comm: Comm, registration: Registration)
    -> Result<(), LibraryError>;

    /// Starts a group of transfers that are submitted together by [`end_group`](Self::end_group).
    fn begin_group(&self) -> Result<(), LibraryError>;
    /// Submits the group.
    fn end_group(&self) -> Result<(), LibraryError>;
    /// Submits a transfer to a stream.
    ///
    /// # Safety
    /// The addresses must be inside live memory of the communicator's device large enough for the elements,
    /// and nothing else may use the output until the stream has written it.
    unsafe fn submit(
        &self,
        stream: CommStream,
        dtype: DType,
        transfer: &Transfer,
    ) -> Result<(), LibraryError>;
}

/// Runs `submit` within a group of transfers.
///
/// The group also ends if `submit` fails, because an open group would hold back all later calls of the thread, on other
/// communicators too.
///
/// # Errors
/// The first error of the library.
pub(super) fn in_group(
    library: &dyn Library,
    submit: impl FnOnce() -> Result<(), LibraryError>,
) -> Result<(), LibraryError> {
    library.begin_group()?;
    let submitted = submit();
    submitted.and(library.end_group())
}
