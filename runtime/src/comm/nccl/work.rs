//! What the collectives of a group check before anything is queued, and the steps that they then take.

use crate::backend::View;
use crate::comm::call::{Call, Op};
use crate::comm::{Blocks, CommError, Communicator, ReduceOp, Site};

use super::communicator::NcclCommunicator;
use super::plan::{Planner, Step};

/// The steps of a call, given where `src`, `dst` and the room aside begin.
pub(super) type Steps = Box<dyn FnOnce(&Planner, u64, u64, u64) -> Vec<Step>>;

/// A call whose arguments fit, and its steps.
pub(super) struct Work {
    pub call: Call,
    /// Elements that are needed aside.
    pub aside: usize,
    pub steps: Steps,
}

impl Work {
    pub fn new(call: Call, steps: impl FnOnce(&Planner, u64, u64) -> Vec<Step> + 'static) -> Work {
        Work { call, aside: 0, steps: Box::new(|planner, src, dst, _| steps(planner, src, dst)) }
    }
}

impl NcclCommunicator {
    pub(super) fn all_reduce_work(
        &self,
        started: bool,
        site: &Site,
        op: ReduceOp,
        data: View<'_>,
    ) -> Result<Work, CommError> {
        let count = data.len();
        let call = self.call(Op::AllReduce { op, count }, data, started, site);
        call.require_float()?;
        Ok(Work::new(call, move |planner, _, data| planner.all_reduce(data, count, op)))
    }

    pub(super) fn all_gather_work(
        &self,
        started: bool,
        site: &Site,
        src: View<'_>,
        dst: View<'_>,
        blocks: &Blocks,
    ) -> Result<Work, CommError> {
        let blocks = blocks.clone();
        let call = self.call(Op::AllGather { blocks: blocks.clone() }, src, started, site);
        call.require_counts("blocks", &blocks.lens, self.size())?;
        call.require_len("src", src.len(), blocks.owned(self.member))?;
        call.require_len("dst", dst.len(), blocks.total())?;
        call.require_alike(src, dst)?;
        let aside = self.planner(src.dtype()).staged(&blocks);
        let steps =
            move |planner: &Planner, src, dst, aside| planner.all_gather(src, dst, &blocks, aside);
        Ok(Work { call, aside, steps: Box::new(steps) })
    }

    pub(super) fn reduce_scatter_work(
        &self,
        started: bool,
        site: &Site,
        src: View<'_>,
        dst: View<'_>,
        blocks: &Blocks,
    ) -> Result<Work, CommError> {
        let blocks = blocks.clone();
        let call = self.call(Op::ReduceScatter { blocks: blocks.clone() }, src, started, site);
        call.require_float()?;
        call.require_counts("blocks", &blocks.lens, self.size())?;
        call.require_len("src", src.len(), blocks.total())?;
        call.require_len("dst", dst.len(), blocks.owned(self.member))?;
        call.require_alike(src, dst)?;
        let aside = self.planner(src.dtype()).staged(&blocks);
        let steps = move |planner: &Planner, src, dst, aside| {
            planner.reduce_scatter(src, dst, &blocks, aside)
        };
        Ok(Work { call, aside, steps: Box::new(steps) })
    }

    /// A collective within the whole: `steps` get where that begins, where this member's run lies in it, and the
    /// room aside.
    pub(super) fn in_place_work(
        &self,
        op: Op,
        site: &Site,
        data: View<'_>,
        blocks: &Blocks,
        steps: impl FnOnce(&Planner, u64, u64, &Blocks, u64) -> Vec<Step> + 'static,
    ) -> Result<Work, CommError> {
        let call = self.call(op, data, true, site);
        call.require_row(data.len(), blocks, self.size())?;
        let (blocks, member) = (blocks.clone(), self.member);
        let aside = self.planner(data.dtype()).staged(&blocks);
        let steps = move |planner: &Planner, _, whole, aside| {
            let own = whole + (blocks.start(member) * planner.dtype.bytes()) as u64;
            steps(planner, whole, own, &blocks, aside)
        };
        Ok(Work { call, aside, steps: Box::new(steps) })
    }

    pub(super) fn all_to_all_work(
        &self,
        started: bool,
        site: &Site,
        src: View<'_>,
        dst: View<'_>,
        send: &[usize],
        recv: &[usize],
    ) -> Result<Work, CommError> {
        let op = Op::AllToAll { send: send.into(), recv: recv.into() };
        let call = self.call(op, src, started, site);
        call.require_counts("send", send, self.size())?;
        call.require_counts("recv", recv, self.size())?;
        call.require_len("src", src.len(), send.iter().sum())?;
        call.require_len("dst", dst.len(), recv.iter().sum())?;
        call.require_alike(src, dst)?;
        call.require_len("what a rank sends to itself", recv[self.member], send[self.member])?;
        let (send, recv) = (send.to_vec(), recv.to_vec());
        Ok(Work::new(call, move |planner, src, dst| planner.all_to_all(src, dst, &send, &recv)))
    }

    pub(super) fn broadcast_work(
        &self,
        started: bool,
        site: &Site,
        root: usize,
        data: View<'_>,
    ) -> Result<Work, CommError> {
        let count = data.len();
        let op = Op::Broadcast { root: self.world_rank(root), count };
        let call = self.call(op, data, started, site);
        call.require_member("root", root, self.size())?;
        Ok(Work::new(call, move |planner, _, data| planner.broadcast(root, data, count)))
    }

    pub(super) fn reduce_work(
        &self,
        started: bool,
        site: &Site,
        root: usize,
        op: ReduceOp,
        data: View<'_>,
    ) -> Result<Work, CommError> {
        let count = data.len();
        let signature = Op::Reduce { root: self.world_rank(root), op, count };
        let call = self.call(signature, data, started, site);
        call.require_float()?;
        call.require_member("root", root, self.size())?;
        Ok(Work::new(call, move |planner, _, data| planner.reduce(root, data, count, op)))
    }

    pub(super) fn scatter_work(
        &self,
        started: bool,
        site: &Site,
        root: usize,
        src: Option<View<'_>>,
        dst: View<'_>,
        counts: &[usize],
    ) -> Result<Work, CommError> {
        let op = Op::Scatter { root: self.world_rank(root), counts: counts.into() };
        let call = self.call(op, dst, started, site);
        call.require_parts(root, self.member, counts, self.size(), ("dst", dst), ("src", src))?;
        src.map_or(Ok(()), |src| call.require_alike(src, dst))?;
        let counts = counts.to_vec();
        Ok(Work::new(call, move |planner, src, dst| planner.scatter(root, src, dst, &counts)))
    }

    pub(super) fn gather_work(
        &self,
        started: bool,
        site: &Site,
        root: usize,
        src: View<'_>,
        dst: Option<View<'_>>,
        counts: &[usize],
    ) -> Result<Work, CommError> {
        let op = Op::Gather { root: self.world_rank(root), counts: counts.into() };
        let call = self.call(op, src, started, site);
        call.require_parts(root, self.member, counts, self.size(), ("src", src), ("dst", dst))?;
        dst.map_or(Ok(()), |dst| call.require_alike(src, dst))?;
        let counts = counts.to_vec();
        Ok(Work::new(call, move |planner, src, dst| planner.gather(root, src, dst, &counts)))
    }
}
