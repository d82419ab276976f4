//! Asynchronous collectives and messages.

use std::sync::Arc;

use meshwright_backend::{Buffer, ReduceOp};

use super::{Blocks, CommOp, Communicator, Operands, PendingCall, Site};

impl Communicator {
    /// Starts an [`all_reduce`](Self::all_reduce). [`PendingCall::wait`] returns the buffer.
    pub fn start_all_reduce(&self, site: &Site, op: ReduceOp, data: Buffer) -> PendingCall {
        let op = CommOp::AllReduce { op, count: data.len() };
        self.start_call(site, op, Operands::Owned { src: None, dst: Some(data) })
    }

    /// Starts an [`all_gather`](Self::all_gather), whose `wait` returns `dst`.
    pub fn start_all_gather(
        &self,
        site: &Site,
        src: Arc<Buffer>,
        dst: Buffer,
        blocks: &Blocks,
    ) -> PendingCall {
        let op = CommOp::AllGather { blocks: blocks.clone() };
        self.start_call(site, op, Operands::Owned { src: Some(src), dst: Some(dst) })
    }

    /// Asynchronous [`all_gather`](Self::all_gather) within one buffer. `data` is the whole tensor, `[sum(lens)]`, with
    /// this member's run in place; `wait` returns it with the runs of all members. `blocks` has one row.
    ///
    /// Other members may make the same call with separate `src` and `dst`.
    pub fn start_all_gather_in_place(
        &self,
        site: &Site,
        data: Buffer,
        blocks: &Blocks,
    ) -> PendingCall {
        let op = CommOp::AllGather { blocks: blocks.clone() };
        self.start_call(site, op, Operands::Owned { src: None, dst: Some(data) })
    }

    /// Starts a [`reduce_scatter`](Self::reduce_scatter), whose `wait` returns `dst`.
    pub fn start_reduce_scatter(
        &self,
        site: &Site,
        src: Arc<Buffer>,
        dst: Buffer,
        blocks: &Blocks,
    ) -> PendingCall {
        let op = CommOp::ReduceScatter { blocks: blocks.clone() };
        self.start_call(site, op, Operands::Owned { src: Some(src), dst: Some(dst) })
    }

    /// Asynchronous [`reduce_scatter`](Self::reduce_scatter) within one buffer. `data` is this member's contribution to
    /// the whole tensor, `[sum(lens)]`; `wait` returns it with the sum in this member's run, and unspecified contents
    /// elsewhere. `blocks` has one row.
    ///
    /// Other members may make the same call with separate `src` and `dst`.
    pub fn start_reduce_scatter_in_place(
        &self,
        site: &Site,
        data: Buffer,
        blocks: &Blocks,
    ) -> PendingCall {
        let op = CommOp::ReduceScatter { blocks: blocks.clone() };
        self.start_call(site, op, Operands::Owned { src: None, dst: Some(data) })
    }

    /// Starts an [`all_to_all`](Self::all_to_all), whose `wait` returns `dst`.
    pub fn start_all_to_all(
        &self,
        site: &Site,
        src: Arc<Buffer>,
        dst: Buffer,
        send: &[usize],
        recv: &[usize],
    ) -> PendingCall {
        let op = CommOp::AllToAll { send: send.into(), recv: recv.into() };
        self.start_call(site, op, Operands::Owned { src: Some(src), dst: Some(dst) })
    }

    /// Starts a [`broadcast`](Self::broadcast), whose `wait` returns the buffer.
    pub fn start_broadcast(&self, site: &Site, root: usize, data: Buffer) -> PendingCall {
        let op = CommOp::Broadcast { root: self.member.peer(root), count: data.len() };
        self.start_call(site, op, Operands::Owned { src: None, dst: Some(data) })
    }

    /// Starts a [`reduce`](Self::reduce), whose `wait` returns the buffer.
    pub fn start_reduce(
        &self,
        site: &Site,
        root: usize,
        op: ReduceOp,
        data: Buffer,
    ) -> PendingCall {
        let op = CommOp::Reduce { root: self.member.peer(root), op, count: data.len() };
        self.start_call(site, op, Operands::Owned { src: None, dst: Some(data) })
    }

    /// Starts a [`scatter`](Self::scatter), whose `wait` returns `dst`.
    pub fn start_scatter(
        &self,
        site: &Site,
        root: usize,
        src: Option<Arc<Buffer>>,
        dst: Buffer,
        counts: &[usize],
    ) -> PendingCall {
        let op = CommOp::Scatter { root: self.member.peer(root), counts: counts.into() };
        self.start_call(site, op, Operands::Owned { src, dst: Some(dst) })
    }

    /// Starts a [`gather`](Self::gather), whose `wait` returns `dst` at `root`.
    pub fn start_gather(
        &self,
        site: &Site,
        root: usize,
        src: Arc<Buffer>,
        dst: Option<Buffer>,
        counts: &[usize],
    ) -> PendingCall<Option<Buffer>> {
        let op = CommOp::Gather { root: self.member.peer(root), counts: counts.into() };
        self.start_call(site, op, Operands::Owned { src: Some(src), dst })
    }

    /// Asynchronous [`send`](Self::send) without a staging copy: it is complete when the receiver has the message, or
    /// when the engine keeps `data` until the receiver comes. `data` must not be changed before it is received, and is
    /// freed then.
    ///
    /// It is ordered among the messages to this member, including blocking ones, when it is issued.
    pub fn start_send(&self, site: &Site, to: usize, data: Arc<Buffer>) -> PendingCall<()> {
        let op = CommOp::Send { to: self.member.peer(to), count: data.len() };
        self.start_call(site, op, Operands::Owned { src: Some(data), dst: None })
    }

    /// Starts a [`recv`](Self::recv) directly into `data`, which `wait` returns. It is ordered among the receives from
    /// this member, including blocking ones, when it is issued; receives from different members do not wait for each
    /// other.
    pub fn start_recv(&self, site: &Site, from: usize, data: Buffer) -> PendingCall {
        let op = CommOp::Recv { from: self.member.peer(from), count: data.len() };
        self.start_call(site, op, Operands::Owned { src: None, dst: Some(data) })
    }
}
