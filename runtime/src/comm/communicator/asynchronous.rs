//! Asynchronous collectives and messages.

use std::sync::Arc;

use crate::backend::{Buffer, ReduceOp};

use super::{Blocks, CommOp, Communicator, Operands, PendingCall, Site};

impl Communicator {
    /// Asynchronous [`all_reduce`](Self::all_reduce). The buffer comes back from [`PendingCall::wait`].
    pub fn start_all_reduce(&self, site: &Site, op: ReduceOp, data: Buffer) -> PendingCall {
        let op = CommOp::AllReduce { op, count: data.len() };
        self.start_call(site, op, Operands::Owned { src: None, dst: Some(data) })
    }

    /// Asynchronous [`all_gather`](Self::all_gather). `dst` comes back.
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

    /// Asynchronous [`all_gather`](Self::all_gather) within one buffer. `data` is the whole tensor, `[sum(lens)]`, in which
    /// this member's run is in place; it comes back with the runs of all members. `blocks` has one row.
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

    /// Asynchronous [`reduce_scatter`](Self::reduce_scatter). `dst` comes back.
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

    /// Asynchronous [`reduce_scatter`](Self::reduce_scatter) within one buffer. `data` is this member's contribution to the
    /// whole tensor, `[sum(lens)]`; it comes back with the sum in this member's run, and unspecified contents elsewhere.
    /// `blocks` has one row.
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

    /// Asynchronous [`all_to_all`](Self::all_to_all). `dst` comes back.
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

    /// Asynchronous [`broadcast`](Self::broadcast). The buffer comes back.
    pub fn start_broadcast(&self, site: &Site, root: usize, data: Buffer) -> PendingCall {
        let op = CommOp::Broadcast { root: self.member.peer(root), count: data.len() };
        self.start_call(site, op, Operands::Owned { src: None, dst: Some(data) })
    }

    /// Asynchronous [`reduce`](Self::reduce). The buffer comes back.
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

    /// Asynchronous [`scatter`](Self::scatter). `dst` comes back.
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

    /// Asynchronous [`gather`](Self::gather). `dst` comes back at `root`.
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

    /// Asynchronous [`send`](Self::send) without a staging copy: it is complete when the receiver has the message, or when
    /// the engine keeps `data` until the receiver comes. `data` must not be changed before it is received, and is freed
    /// then.
    ///
    /// It is ordered among the messages to this member, including blocking ones, when it is issued.
    pub fn start_send(&self, site: &Site, to: usize, data: Arc<Buffer>) -> PendingCall<()> {
        let op = CommOp::Send { to: self.member.peer(to), count: data.len() };
        self.start_call(site, op, Operands::Owned { src: Some(data), dst: None })
    }

    /// Asynchronous [`recv`](Self::recv) directly into `data`, which comes back. It is ordered among the receives from this
    /// member, including blocking ones, when it is issued; receives from different members do not wait for each other.
    pub fn start_recv(&self, site: &Site, from: usize, data: Buffer) -> PendingCall {
        let op = CommOp::Recv { from: self.member.peer(from), count: data.len() };
        self.start_call(site, op, Operands::Owned { src: None, dst: Some(data) })
    }
}
