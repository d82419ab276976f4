//! The trait through which every collective goes.

use std::sync::Arc;

use crate::backend::{Buffer, ReduceOp, View, ViewMut};
use crate::layout::AxisSet;

use super::{Blocks, CommError, CommStats, Pending, Site};

/// One rank's seat in one group of ranks.
///
/// - A **member** is an index into the group: `rank`, `root`, `to` and `from` below are members;
///   [`members`](Self::members) gives their world ranks.
/// - Reductions combine in the order of members on every rank: the results are identical to the bit on all
///   members and from run to run.
/// - Calls match when operation, arguments and the field of the site are the same; the line may differ.
/// - Every method returns an error, on every member, when the members' calls do not match, when a member has
///   left, and after a timeout; and on this rank alone when an argument is wrong. After an error the group is
///   out of step: later calls fail too.
/// - Synchronous collectives, asynchronous collectives, and messages each keep their own order and never wait for
///   each other. A message may be sent in one way and received in the other.
pub trait Communicator: Send + Sync {
    /// The member that this seat belongs to.
    fn rank(&self) -> usize;

    /// Number of members.
    fn size(&self) -> usize {
        self.members().len()
    }

    /// World ranks of the members.
    fn members(&self) -> &[usize];

    /// The mesh axes along which the members differ.
    fn axes(&self) -> AxisSet;

    /// Combines `data` of all members, element by element, in place.
    fn all_reduce(&self, site: &Site, op: ReduceOp, data: ViewMut<'_>) -> Result<(), CommError>;

    /// Puts the parts of all members together: `src` is `[outer][lens[rank]]`, `dst` is `[outer][sum(lens)]`.
    fn all_gather(
        &self,
        site: &Site,
        src: View<'_>,
        dst: ViewMut<'_>,
        blocks: &Blocks,
    ) -> Result<(), CommError>;

    /// Adds `src` of all members and keeps this member's part: `src` is `[outer][sum(lens)]`, `dst` is
    /// `[outer][lens[rank]]`.
    fn reduce_scatter(
        &self,
        site: &Site,
        src: View<'_>,
        dst: ViewMut<'_>,
        blocks: &Blocks,
    ) -> Result<(), CommError>;

    /// Sends `send[m]` elements to each member `m` and receives `recv[m]` from it; both sides lie in the order
    /// of members without gaps.
    fn all_to_all(
        &self,
        site: &Site,
        src: View<'_>,
        dst: ViewMut<'_>,
        send: &[usize],
        recv: &[usize],
    ) -> Result<(), CommError>;

    /// Copies `data` of `root` to all members.
    fn broadcast(&self, site: &Site, root: usize, data: ViewMut<'_>) -> Result<(), CommError>;

    /// Combines `data` of all members into that of `root`; the others keep theirs.
    fn reduce(
        &self,
        site: &Site,
        root: usize,
        op: ReduceOp,
        data: ViewMut<'_>,
    ) -> Result<(), CommError>;

    /// Cuts `src` of `root` into parts of `counts[m]` elements, one for each member. Only `root` passes `src`.
    fn scatter(
        &self,
        site: &Site,
        root: usize,
        src: Option<View<'_>>,
        dst: ViewMut<'_>,
        counts: &[usize],
    ) -> Result<(), CommError>;

    /// Puts the parts of all members, `counts[m]` elements each, one after the other into `dst` of `root`. Only
    /// `root` passes `dst`.
    fn gather(
        &self,
        site: &Site,
        root: usize,
        src: View<'_>,
        dst: Option<ViewMut<'_>>,
        counts: &[usize],
    ) -> Result<(), CommError>;

    /// Sends a message. Does not wait for the receiver: where that is not waiting yet, the data is copied aside.
    fn send(&self, site: &Site, to: usize, data: View<'_>) -> Result<(), CommError>;

    /// Receives the next message from a member. Messages between two members keep their order.
    fn recv(&self, site: &Site, from: usize, data: ViewMut<'_>) -> Result<(), CommError>;

    /// Returns when every member has called it.
    fn barrier(&self, site: &Site) -> Result<(), CommError>;

    /// Asynchronous [`all_reduce`](Self::all_reduce). The buffer comes back from [`Pending::wait`].
    fn start_all_reduce(&self, site: &Site, op: ReduceOp, data: Buffer) -> Pending;

    /// Asynchronous [`all_gather`](Self::all_gather). `dst` comes back.
    fn start_all_gather(
        &self,
        site: &Site,
        src: Arc<Buffer>,
        dst: Buffer,
        blocks: &Blocks,
    ) -> Pending;

    /// Asynchronous [`all_gather`](Self::all_gather) within one buffer. `data` is the whole, `[sum(lens)]`, in which this
    /// member's own run is in place; it comes back with the runs of all members. `blocks` has one row.
    ///
    /// Other members may make the same call with a part and a whole that lie apart.
    fn start_all_gather_in_place(&self, site: &Site, data: Buffer, blocks: &Blocks) -> Pending;

    /// Asynchronous [`reduce_scatter`](Self::reduce_scatter). `dst` comes back.
    fn start_reduce_scatter(
        &self,
        site: &Site,
        src: Arc<Buffer>,
        dst: Buffer,
        blocks: &Blocks,
    ) -> Pending;

    /// Asynchronous [`reduce_scatter`](Self::reduce_scatter) within one buffer. `data` is this member's contribution to the
    /// whole, `[sum(lens)]`; it comes back with the sum in this member's own run, and unspecified contents elsewhere.
    /// `blocks` has one row.
    ///
    /// Other members may make the same call with a part and a whole that lie apart.
    fn start_reduce_scatter_in_place(&self, site: &Site, data: Buffer, blocks: &Blocks) -> Pending;

    /// Asynchronous [`all_to_all`](Self::all_to_all). `dst` comes back.
    fn start_all_to_all(
        &self,
        site: &Site,
        src: Arc<Buffer>,
        dst: Buffer,
        send: &[usize],
        recv: &[usize],
    ) -> Pending;

    /// Asynchronous [`broadcast`](Self::broadcast). The buffer comes back.
    fn start_broadcast(&self, site: &Site, root: usize, data: Buffer) -> Pending;

    /// Asynchronous [`reduce`](Self::reduce). The buffer comes back.
    fn start_reduce(&self, site: &Site, root: usize, op: ReduceOp, data: Buffer) -> Pending;

    /// Asynchronous [`scatter`](Self::scatter). `dst` comes back.
    fn start_scatter(
        &self,
        site: &Site,
        root: usize,
        src: Option<Arc<Buffer>>,
        dst: Buffer,
        counts: &[usize],
    ) -> Pending;

    /// Asynchronous [`gather`](Self::gather). `dst` comes back at `root`.
    fn start_gather(
        &self,
        site: &Site,
        root: usize,
        src: Arc<Buffer>,
        dst: Option<Buffer>,
        counts: &[usize],
    ) -> Pending<Option<Buffer>>;

    /// Asynchronous [`send`](Self::send), which does not copy aside: it is complete when the receiver has the message, or
    /// when the engine has taken it to keep until the receiver comes. `data` is not to be changed before it is received,
    /// and is freed then.
    ///
    /// It takes its place among the messages to this member, synchronous ones too, when it is called.
    fn start_send(&self, site: &Site, to: usize, data: Arc<Buffer>) -> Pending<()>;

    /// Asynchronous [`recv`](Self::recv), which gets the message straight into `data`; it comes back. Takes its place
    /// among the receives from this member, synchronous ones too, when it is called; receives from different members do
    /// not wait for each other.
    fn start_recv(&self, site: &Site, from: usize, data: Buffer) -> Pending;

    /// What this seat has done so far.
    fn stats(&self) -> CommStats;

    /// Payload bytes that this seat has sent so far; [`CommStats::bytes`] says how they are counted.
    fn comm_bytes(&self) -> u64 {
        self.stats().bytes
    }
}
