//! Blocking collectives and messages.

use meshwright_backend::{ReduceOp, View, ViewMut};

use super::{Blocks, CommError, CommOp, Communicator, Operands, Site};

type CommResult = Result<(), CommError>;

impl Communicator {
    /// Reduces `data` of all members, element by element, in place.
    pub fn all_reduce(&self, site: &Site, op: ReduceOp, data: ViewMut<'_>) -> CommResult {
        let op = CommOp::AllReduce { op, count: data.len() };
        self.run_call(site, op, Operands::Borrowed { src: None, dst: Some(data) })
    }

    /// Concatenates the parts of all members: `src` is `[outer][lens[rank]]`, `dst` is `[outer][sum(lens)]`.
    pub fn all_gather(
        &self,
        site: &Site,
        src: View<'_>,
        dst: ViewMut<'_>,
        blocks: &Blocks,
    ) -> CommResult {
        let op = CommOp::AllGather { blocks: blocks.clone() };
        self.run_call(site, op, Operands::Borrowed { src: Some(src), dst: Some(dst) })
    }

    /// Sums `src` of all members and keeps this member's part: `src` is `[outer][sum(lens)]`, `dst` is
    /// `[outer][lens[rank]]`.
    pub fn reduce_scatter(
        &self,
        site: &Site,
        src: View<'_>,
        dst: ViewMut<'_>,
        blocks: &Blocks,
    ) -> CommResult {
        let op = CommOp::ReduceScatter { blocks: blocks.clone() };
        self.run_call(site, op, Operands::Borrowed { src: Some(src), dst: Some(dst) })
    }

    /// Sends `send[m]` elements to each member `m` and receives `recv[m]` from it; both buffers hold the parts in the
    /// order of group ranks without gaps.
    pub fn all_to_all(
        &self,
        site: &Site,
        src: View<'_>,
        dst: ViewMut<'_>,
        send: &[usize],
        recv: &[usize],
    ) -> CommResult {
        let op = CommOp::AllToAll { send: send.into(), recv: recv.into() };
        self.run_call(site, op, Operands::Borrowed { src: Some(src), dst: Some(dst) })
    }

    /// Copies `data` of `root` to all members.
    pub fn broadcast(&self, site: &Site, root: usize, data: ViewMut<'_>) -> CommResult {
        let op = CommOp::Broadcast { root: self.member.peer(root), count: data.len() };
        self.run_call(site, op, Operands::Borrowed { src: None, dst: Some(data) })
    }

    /// Reduces `data` of all members into that of `root`; the others keep theirs.
    pub fn reduce(&self, site: &Site, root: usize, op: ReduceOp, data: ViewMut<'_>) -> CommResult {
        let op = CommOp::Reduce { root: self.member.peer(root), op, count: data.len() };
        self.run_call(site, op, Operands::Borrowed { src: None, dst: Some(data) })
    }

    /// Splits `src` of `root` into parts of `counts[m]` elements, one for each member. Only `root` passes `src`.
    pub fn scatter(
        &self,
        site: &Site,
        root: usize,
        src: Option<View<'_>>,
        dst: ViewMut<'_>,
        counts: &[usize],
    ) -> CommResult {
        let op = CommOp::Scatter { root: self.member.peer(root), counts: counts.into() };
        self.run_call(site, op, Operands::Borrowed { src, dst: Some(dst) })
    }

    /// Concatenates the parts of all members, `counts[m]` elements each, in `dst` of `root`. Only `root` passes `dst`.
    pub fn gather(
        &self,
        site: &Site,
        root: usize,
        src: View<'_>,
        dst: Option<ViewMut<'_>>,
        counts: &[usize],
    ) -> CommResult {
        let op = CommOp::Gather { root: self.member.peer(root), counts: counts.into() };
        self.run_call(site, op, Operands::Borrowed { src: Some(src), dst })
    }

    /// Sends a message. It does not wait for the receiver: unless that is waiting already, the data is copied to a
    /// staging buffer.
    pub fn send(&self, site: &Site, to: usize, data: View<'_>) -> CommResult {
        let op = CommOp::Send { to: self.member.peer(to), count: data.len() };
        self.run_call(site, op, Operands::Borrowed { src: Some(data), dst: None })
    }

    /// Receives the next message from a member. Messages between two members keep their order.
    pub fn recv(&self, site: &Site, from: usize, data: ViewMut<'_>) -> CommResult {
        let op = CommOp::Recv { from: self.member.peer(from), count: data.len() };
        self.run_call(site, op, Operands::Borrowed { src: None, dst: Some(data) })
    }

    /// Returns when every member has called it.
    pub fn barrier(&self, site: &Site) -> CommResult {
        self.run_call(site, CommOp::Barrier, Operands::Borrowed { src: None, dst: None })
    }

    /// Sums `values` of all members, such as norms and counts, in place.
    pub fn all_reduce_f64(&self, site: &Site, values: &mut [f64]) -> CommResult {
        if self.size() == 1 {
            return Ok(());
        }
        self.all_reduce(site, ReduceOp::Sum, values.into())
    }
}
