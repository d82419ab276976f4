//! Collectives as steps: messages between the members, and work on the memory of one member.
//!
//! MPI only moves bytes. Sums are computed here, in the order of group ranks, so that results have the same bits as
//! with ranks that are threads, whatever algorithms the library would choose. An all-reduce is an exchange of parts, a
//! local reduction, and a gather of the reduced parts: as many bytes as a ring.

use std::ops::Range;

use meshwright_backend::{DType, ReduceOp};

use crate::blocks::run_of;
use crate::reduction::part_of;
use crate::{Blocks, Call, CommOp, GroupMember};

/// Bytes up to which all operands are sent to all members that need them, instead of being divided into parts.
const SMALL: usize = 4 << 10;

/// Bytes from which on the members announce that they have arrived: the time of a transfer begins then.
const ANNOUNCED: usize = 64 << 10;

/// The memory of one member in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryRegion {
    /// The operand that is read: the destination itself if a call is in place.
    Source,
    /// The destination.
    Target,
    /// Memory of the call.
    Scratch,
}

/// A run of bytes in a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryRun {
    pub region: MemoryRegion,
    pub bytes: Range<usize>,
}

/// A message to or from another member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MpiTransfer {
    /// Group rank of the other member.
    pub peer: usize,
    pub run: MemoryRun,
}

/// A step of a call.
#[derive(Debug, PartialEq, Eq)]
pub enum CallStep {
    /// Sends and receives messages, and waits for all of them. If it is announced, each other member gets an empty
    /// message before.
    Exchange { is_announced: bool, sends: Vec<MpiTransfer>, receives: Vec<MpiTransfer> },
    /// Copies bytes within the member.
    Copy { from: MemoryRun, to: MemoryRun },
    /// Copies the rows of the source to one part for each member, behind each other, at the start of the scratch.
    Pack(Blocks),
    /// Copies the parts of all members, behind each other in the scratch, to their rows of the destination.
    Unpack(Blocks),
    /// Reduces runs of one length, in their order, to another one, which may be among them.
    Reduce { op: ReduceOp, operands: Vec<MemoryRun>, to: MemoryRun },
}

/// The steps of a call.
#[derive(Debug, Default)]
pub struct CallPlan {
    pub steps: Vec<CallStep>,
    /// Bytes of scratch.
    pub scratch: usize,
}

/// One member that plans a call.
struct Planner {
    dtype: DType,
    me: usize,
    size: usize,
    owns_target: bool,
    /// Set if the next exchange is announced.
    is_announced: bool,
    plan: CallPlan,
}

/// Plans a call, in place if it has no other source than its destination. MPI writes the destination only if the call
/// `owns_target`.
pub fn plan_call(
    call: &Call,
    member: &GroupMember,
    (in_place, owns_target): (bool, bool),
) -> CallPlan {
    let (me, size) = (member.group_rank(), member.size());
    // A barrier has no elements.
    let dtype = call.dtype.unwrap_or(DType::F32);
    let plan = CallPlan::default();
    let mut planner = Planner { dtype, me, size, owns_target, is_announced: false, plan };
    planner.plan_op(&call.op, in_place);
    planner.plan
}

impl Planner {
    fn plan_op(&mut self, op: &CommOp, in_place: bool) {
        match op {
            CommOp::AllReduce { op, count } => self.all_reduce(*op, *count),
            CommOp::AllGather { blocks } => self.all_gather(blocks, in_place),
            CommOp::ReduceScatter { blocks } => self.reduce_scatter(blocks, in_place),
            CommOp::AllToAll { send, recv } => self.all_to_all(send, recv),
            CommOp::Broadcast { root, count } => self.broadcast(root.group_rank, *count),
            CommOp::Reduce { root, op, count } => self.reduce(root.group_rank, *op, *count),
            CommOp::Scatter { root, counts } => self.scatter(root.group_rank, counts),
            CommOp::Gather { root, counts } => self.gather(root.group_rank, counts),
            CommOp::Barrier => self.arrive(),
            CommOp::Send { to, count } => {
                let transfer = to_member(to.group_rank, self.run(MemoryRegion::Source, 0..*count));
                self.exchange(vec![transfer], Vec::new());
            }
            CommOp::Recv { from, count } => {
                let transfer =
                    to_member(from.group_rank, self.run(MemoryRegion::Target, 0..*count));
                self.exchange(Vec::new(), vec![transfer]);
            }
        }
    }

    fn all_reduce(&mut self, op: ReduceOp, count: usize) {
        if self.is_small(count) {
            let whole = self.run(MemoryRegion::Source, 0..count);
            let sends = self.others().map(|peer| to_member(peer, whole.clone())).collect();
            self.receive_operands(sends, count);
            return self.reduce_operands(op, 0..count, self.run(MemoryRegion::Target, 0..count));
        }
        self.announce(count);
        let own = self.reduce_own_part(op, count, MemoryRegion::Target, true);
        let sends = self.others().map(|peer| to_member(peer, own.clone())).collect();
        let receives = self.others().map(|peer| self.target_part(peer, count)).collect();
        self.exchange(sends, receives);
    }

    fn reduce(&mut self, root: usize, op: ReduceOp, count: usize) {
        let is_root = self.me == root;
        if self.is_small(count) {
            if !is_root {
                let whole = to_member(root, self.run(MemoryRegion::Source, 0..count));
                return self.exchange(vec![whole], Vec::new());
            }
            self.receive_operands(Vec::new(), count);
            return self.reduce_operands(op, 0..count, self.run(MemoryRegion::Target, 0..count));
        }
        self.announce(count);
        // Other members keep their operand.
        let region = if is_root { MemoryRegion::Target } else { MemoryRegion::Scratch };
        let own = self.reduce_own_part(op, count, region, is_root);
        if is_root {
            let receives = self.others().map(|peer| self.target_part(peer, count)).collect();
            self.exchange(Vec::new(), receives);
        } else {
            self.exchange(vec![to_member(root, own)], Vec::new());
        }
    }

    /// Sends each member its part of the operand, and reduces this member's part of all operands: to its place in
    /// `region`, or behind the received operands. Returns the reduced run.
    fn reduce_own_part(
        &mut self,
        op: ReduceOp,
        count: usize,
        region: MemoryRegion,
        at_place: bool,
    ) -> MemoryRun {
        let own = self.part(count, self.me);
        let part = |peer| to_member(peer, self.run(MemoryRegion::Source, self.part(count, peer)));
        let sends = self.others().map(part).collect();
        self.receive_operands(sends, own.len());
        let to = if at_place { self.run(region, own.clone()) } else { self.add_scratch(own.len()) };
        self.reduce_operands(op, own, to.clone());
        to
    }

    fn all_gather(&mut self, blocks: &Blocks, in_place: bool) {
        let me = self.me;
        self.announce(blocks.total());
        let own_run = run_of(&blocks.lens, me);
        let own = if in_place { own_run.clone() } else { 0..blocks.owned(me) };
        let own = self.run(MemoryRegion::Source, own);
        let sends = self.others().map(|peer| to_member(peer, own.clone())).collect();
        if blocks.outer == 1 {
            let run =
                |peer| to_member(peer, self.run(MemoryRegion::Target, run_of(&blocks.lens, peer)));
            let receives = self.others().map(run).collect();
            self.exchange(sends, receives);
            if !in_place {
                let to = self.run(MemoryRegion::Target, own_run);
                self.plan.steps.push(CallStep::Copy { from: own, to });
            }
            return;
        }
        // Each part is in one run of the scratch, also the own one.
        let parts: Vec<MemoryRun> =
            (0..self.size).map(|member| self.add_scratch(blocks.owned(member))).collect();
        let receives = self.others().map(|peer| to_member(peer, parts[peer].clone())).collect();
        self.exchange(sends, receives);
        self.plan.steps.push(CallStep::Copy { from: own, to: parts[me].clone() });
        self.plan.steps.push(CallStep::Unpack(blocks.clone()));
    }

    fn reduce_scatter(&mut self, blocks: &Blocks, in_place: bool) {
        let (me, own_len) = (self.me, blocks.owned(self.me));
        self.announce(blocks.total());
        let parts: Vec<MemoryRun> = if blocks.outer == 1 {
            let run = |member| self.run(MemoryRegion::Source, run_of(&blocks.lens, member));
            (0..self.size).map(run).collect()
        } else {
            self.plan.steps.push(CallStep::Pack(blocks.clone()));
            (0..self.size).map(|member| self.add_scratch(blocks.owned(member))).collect()
        };
        let sends = self.others().map(|peer| to_member(peer, parts[peer].clone())).collect();
        let received = self.receive_operands(sends, own_len);
        let operands = self.in_group_order(parts[me].clone(), received);
        let to = if in_place { run_of(&blocks.lens, me) } else { 0..own_len };
        let to = self.run(MemoryRegion::Target, to);
        self.plan.steps.push(CallStep::Reduce { op: ReduceOp::Sum, operands, to });
    }

    fn all_to_all(&mut self, send: &[usize], recv: &[usize]) {
        let run = |region, counts: &[usize], peer| self.run(region, run_of(counts, peer));
        let sent = |peer| to_member(peer, run(MemoryRegion::Source, send, peer));
        let received = |peer| to_member(peer, run(MemoryRegion::Target, recv, peer));
        let (sends, receives) =
            (self.others().map(sent).collect(), self.others().map(received).collect());
        let (from, to) =
            (run(MemoryRegion::Source, send, self.me), run(MemoryRegion::Target, recv, self.me));
        self.exchange(sends, receives);
        self.plan.steps.push(CallStep::Copy { from, to });
    }

    fn broadcast(&mut self, root: usize, count: usize) {
        let is_root = self.me == root;
        if self.is_small(count) || self.size == 2 {
            if is_root {
                let whole = self.run(MemoryRegion::Source, 0..count);
                let sends = self.others().map(|peer| to_member(peer, whole.clone())).collect();
                return self.exchange(sends, Vec::new());
            }
            let whole = to_member(root, self.run(MemoryRegion::Target, 0..count));
            return self.exchange(Vec::new(), vec![whole]);
        }
        // The root sends a part to each member, and all of them their parts to the others.
        // Not every member sends to all others.
        if self.is_large(count) {
            self.arrive();
        }
        if is_root {
            let source = |member| self.run(MemoryRegion::Source, self.part(count, member));
            let (own, part) = (source(root), |peer| to_member(peer, source(peer)));
            let sends = self.others().map(part).collect();
            self.exchange(sends, Vec::new());
            let sends = self.others().map(|peer| to_member(peer, own.clone())).collect();
            return self.exchange(sends, Vec::new());
        }
        let own = self.run(MemoryRegion::Target, self.part(count, self.me));
        self.exchange(Vec::new(), vec![to_member(root, own.clone())]);
        let others = self.others().filter(|peer| *peer != root);
        let sends = others.map(|peer| to_member(peer, own.clone())).collect();
        let receives = self.others().map(|peer| self.target_part(peer, count)).collect();
        self.exchange(sends, receives);
    }

    fn scatter(&mut self, root: usize, counts: &[usize]) {
        let own = self.run(MemoryRegion::Target, 0..counts[self.me]);
        if self.me != root {
            return self.exchange(Vec::new(), vec![to_member(root, own)]);
        }
        let run = |member| self.run(MemoryRegion::Source, run_of(counts, member));
        let from = run(root);
        let sends = self.others().map(|peer| to_member(peer, run(peer))).collect();
        self.exchange(sends, Vec::new());
        self.plan.steps.push(CallStep::Copy { from, to: own });
    }

    fn gather(&mut self, root: usize, counts: &[usize]) {
        let own = self.run(MemoryRegion::Source, 0..counts[self.me]);
        if self.me != root {
            return self.exchange(vec![to_member(root, own)], Vec::new());
        }
        let run = |member| self.run(MemoryRegion::Target, run_of(counts, member));
        let to = run(root);
        let receives = self.others().map(|peer| to_member(peer, run(peer))).collect();
        self.exchange(Vec::new(), receives);
        self.plan.steps.push(CallStep::Copy { from: own, to });
    }

    /// Announces the next exchange, if the call of `count` elements is large. Every member sends to all others in it.
    fn announce(&mut self, count: usize) {
        self.is_announced = self.is_large(count);
    }

    /// Waits for all members.
    fn arrive(&mut self) {
        self.is_announced = true;
        self.exchange(Vec::new(), Vec::new());
    }

    /// Sends messages, and receives `len` elements of every other member into scratch. Returns their runs by peer.
    fn receive_operands(&mut self, sends: Vec<MpiTransfer>, len: usize) -> Vec<MpiTransfer> {
        let peers: Vec<usize> = self.others().collect();
        let receives: Vec<MpiTransfer> =
            peers.into_iter().map(|peer| to_member(peer, self.add_scratch(len))).collect();
        self.exchange(sends, receives.clone());
        receives
    }

    /// Reduces the elements `own` of the source, and the operands that the last exchange has received, to `to`.
    fn reduce_operands(&mut self, op: ReduceOp, own: Range<usize>, to: MemoryRun) {
        let received = match self.plan.steps.last() {
            Some(CallStep::Exchange { receives, .. }) => receives.clone(),
            _ => Vec::new(),
        };
        let operands = self.in_group_order(self.run(MemoryRegion::Source, own), received);
        self.plan.steps.push(CallStep::Reduce { op, operands, to });
    }

    /// Returns the operands of all members in the order of group ranks.
    fn in_group_order(&self, own: MemoryRun, received: Vec<MpiTransfer>) -> Vec<MemoryRun> {
        let mut operands = received;
        operands.push(to_member(self.me, own));
        operands.sort_by_key(|operand| operand.peer);
        operands.into_iter().map(|operand| operand.run).collect()
    }

    /// Exchanges messages. What MPI must not receive in its place is copied there later.
    fn exchange(&mut self, sends: Vec<MpiTransfer>, mut receives: Vec<MpiTransfer>) {
        let is_announced = std::mem::take(&mut self.is_announced);
        let mut copies = Vec::new();
        for MpiTransfer { run, .. } in &mut receives {
            if run.region == MemoryRegion::Target && !self.owns_target {
                let from = self.add_scratch(run.bytes.len() / self.dtype.bytes());
                copies
                    .push(CallStep::Copy { from: from.clone(), to: std::mem::replace(run, from) });
            }
        }
        self.plan.steps.push(CallStep::Exchange { is_announced, sends, receives });
        self.plan.steps.extend(copies);
    }

    /// The other members, beginning behind this one, so that not all send to the same one first.
    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (me, size) = (self.me, self.size);
        (1..size).map(move |distance| (me + distance) % size)
    }

    fn is_small(&self, count: usize) -> bool {
        count * self.dtype.bytes() <= SMALL
    }

    fn is_large(&self, count: usize) -> bool {
        count * self.dtype.bytes() >= ANNOUNCED
    }

    /// The elements that `member` reduces of `count`.
    fn part(&self, count: usize, member: usize) -> Range<usize> {
        part_of(self.dtype, count, self.size, member)
    }

    /// The part of `peer` in its place of the destination.
    fn target_part(&self, peer: usize, count: usize) -> MpiTransfer {
        to_member(peer, self.run(MemoryRegion::Target, self.part(count, peer)))
    }

    fn run(&self, region: MemoryRegion, elements: Range<usize>) -> MemoryRun {
        let element = self.dtype.bytes();
        MemoryRun { region, bytes: elements.start * element..elements.end * element }
    }

    /// Adds `len` elements to the scratch.
    fn add_scratch(&mut self, len: usize) -> MemoryRun {
        let start = self.plan.scratch;
        self.plan.scratch += len * self.dtype.bytes();
        MemoryRun { region: MemoryRegion::Scratch, bytes: start..self.plan.scratch }
    }
}

fn to_member(peer: usize, run: MemoryRun) -> MpiTransfer {
    MpiTransfer { peer, run }
}
