//! Collectives and messages of one rank in one process group, the same for every engine.

mod asynchronous;
mod blocking;
mod exchange;
#[cfg(all(test, not(loom)))]
mod tests;
mod texts;

use std::sync::Arc;
use std::time::Instant;

use meshwright_backend::{StreamKind, View};
use meshwright_mesh::AxisSet;

use super::call::{Call, CommOp};
use super::pending::{PendingResult, claim};
use super::{
    Blocks, CommError, CommStats, Completion, DeviceSpan, GroupMember, Operands, PendingCall,
    ProcessGroup, Site,
};

/// One rank in one process group.
///
/// - A **group rank** is an index into the group: `rank`, `root`, `to` and `from` below are group ranks;
///   [`members`](Self::members) lists the world ranks.
/// - Reductions combine in the order of group ranks on every rank: the results are identical to the bit on all members
///   and from run to run.
/// - Calls match if operation, arguments and the field of the site are the same; the line may differ.
/// - A message and its receive match if dtype, length and, if both have one, the [`MessageId`](super::MessageId) of the
///   site are the same.
/// - Every method returns an error, on every member, if the members' calls do not match, if a member has left, and
///   after a timeout; and on this rank alone if an argument is invalid. After an error the group is out of step: later
///   calls fail too.
/// - Blocking collectives, asynchronous collectives, and messages each keep their own order and never wait for each
///   other. A message may be sent in one form and received in the other.
pub struct Communicator {
    member: Arc<GroupMember>,
    group: Arc<dyn ProcessGroup>,
}

impl Communicator {
    /// Creates the communicator of `member` over its process group in an engine.
    pub(super) fn new(member: Arc<GroupMember>, group: Arc<dyn ProcessGroup>) -> Communicator {
        Communicator { member, group }
    }

    /// Group rank of this rank.
    pub fn rank(&self) -> usize {
        self.member.group_rank()
    }

    /// Number of members.
    pub fn size(&self) -> usize {
        self.member.size()
    }

    /// World ranks of the members.
    pub fn members(&self) -> &[usize] {
        self.member.world_ranks()
    }

    /// The mesh axes along which the members differ.
    pub fn axes(&self) -> AxisSet {
        self.member.axes()
    }

    /// Returns true in a dry run of this rank without the others.
    #[doc(hidden)]
    pub fn is_dry_run(&self) -> bool {
        self.group.is_dry_run()
    }

    /// Statistics of this rank in this group.
    pub fn stats(&self) -> CommStats {
        self.member.accounting.stats()
    }

    /// Payload bytes that this rank has sent in this group; [`CommStats::bytes`] defines how they are counted.
    pub fn comm_bytes(&self) -> u64 {
        self.stats().bytes
    }

    /// Opens a span of the work that is submitted to the compute stream from now on, if the device is traced.
    #[doc(hidden)]
    pub fn open_compute_span(&self) -> Option<DeviceSpan> {
        self.member.accounting.open_span(StreamKind::Compute)
    }

    /// Counts the calls of a CUDA graph that was replayed.
    pub(super) fn count_replayed(&self, captured: &CommStats) {
        self.member.accounting.count_replayed(captured);
    }

    /// Issues a blocking call, and waits for it.
    fn run_call(&self, site: &Site, op: CommOp, operands: Operands<'_>) -> Result<(), CommError> {
        let now = Instant::now();
        let call = self.checked_call(site, op, false, &operands, now)?;
        let accounting = &self.member.accounting;
        accounting.count_call(call.bytes);
        let mut inside = accounting.enter(call.op.name(), site, now);
        let outcome = self.group.issue(&call, operands).wait();
        inside.record_outcome(call.index, outcome.as_ref().err());
        claim(&self.member, site, outcome)
    }

    /// Issues an asynchronous call. It is counted now: a call belongs to the step that issues it.
    fn start_call<T: PendingResult>(
        &self,
        site: &Site,
        op: CommOp,
        operands: Operands<'_>,
    ) -> PendingCall<T> {
        let (completion, index) = match self.checked_call(site, op, true, &operands, Instant::now())
        {
            Ok(call) => {
                self.member.accounting.count_call(call.bytes);
                (self.group.issue(&call, operands), Some(call.index))
            }
            Err(error) => (Completion::completed(Err(error)), None),
        };
        PendingCall::new(completion, &self.member, site, index)
    }

    /// Creates a call whose arguments are valid, and records that it is issued `now`.
    fn checked_call(
        &self,
        site: &Site,
        op: CommOp,
        asynchronous: bool,
        operands: &Operands<'_>,
        now: Instant,
    ) -> Result<Arc<Call>, CommError> {
        let data = main_operand(&op, operands);
        let mut call = Call {
            op,
            dtype: data.map(|data| data.dtype()),
            on_device: data.is_some_and(|data| data.device().is_some()),
            axes: self.axes(),
            asynchronous,
            site: site.clone(),
            bytes: 0,
            index: 0,
        };
        call.check_arguments(&self.member, operands)?;
        call.bytes = call.op.bytes_sent(call.dtype, self.rank(), self.size());
        call.index = self.member.accounting.record_call(&call, self.members(), now);
        Ok(Arc::new(call))
    }
}

/// Returns the operand that every member has.
fn main_operand<'a>(op: &CommOp, operands: &'a Operands<'_>) -> Option<View<'a>> {
    let (src, dst) = operands.views();
    match op {
        CommOp::Scatter { .. } => dst,
        _ => src.or(dst),
    }
}
