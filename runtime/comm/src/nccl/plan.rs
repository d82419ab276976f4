//! Decomposition of a collective into transfers of the library and copies on the device.

use crate::{Blocks, CommOp, ReduceOp};
use meshwright_backend::{DType, RowPart};

use super::api::Transfer;

/// One step of a collective; steps are submitted in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Transfers that are submitted as one group.
    Group(Vec<Transfer>),
    /// A copy on the device.
    Copy { bytes: usize, dst: u64, src: u64 },
    /// Joins rows from the parts of the members.
    Join { rows: usize, whole: u64, parts: Vec<RowPart> },
    /// Splits rows into the parts of the members.
    Split { rows: usize, whole: u64, parts: Vec<RowPart> },
}

/// Addresses of the operands of a collective.
#[derive(Debug, Clone, Copy)]
pub struct CollectiveMemory {
    /// `None` for a collective in place, and where this member has no source.
    pub src: Option<u64>,
    /// 0 where this member has no destination.
    pub dst: u64,
}

/// Plans the collectives of one member on elements of one dtype.
#[derive(Debug, Clone, Copy)]
pub struct Planner {
    pub members: usize,
    pub member: usize,
    pub dtype: DType,
}

impl Planner {
    /// Returns the elements of scratch memory that the steps of `op` need.
    pub fn scratch_len(&self, op: &CommOp) -> usize {
        match op {
            CommOp::AllGather { blocks } | CommOp::ReduceScatter { blocks } => {
                self.slot_lens(blocks).map_or(0, |slots| slots.iter().sum())
            }
            _ => 0,
        }
    }

    /// Returns the steps of a collective, with scratch memory at `scratch`. Messages have none: see
    /// [`PairComms`](super::point_to_point::PairComms).
    pub fn steps(&self, op: &CommOp, memory: CollectiveMemory, scratch: u64) -> Vec<Step> {
        let CollectiveMemory { src, dst } = memory;
        // In place, this member's part is a run of the whole tensor.
        let own_run = |blocks: &Blocks| dst + self.bytes(blocks.start(self.member)) as u64;
        match op {
            CommOp::AllReduce { op, count } => self.all_reduce(dst, *count, *op),
            CommOp::AllGather { blocks } => {
                let part = src.unwrap_or_else(|| own_run(blocks));
                self.all_gather(part, dst, blocks, scratch)
            }
            CommOp::ReduceScatter { blocks } => match src {
                Some(src) => self.reduce_scatter(src, dst, blocks, scratch),
                None => self.reduce_scatter(dst, own_run(blocks), blocks, scratch),
            },
            CommOp::AllToAll { send, recv } => {
                self.all_to_all_steps(src.unwrap_or_default(), dst, send, recv)
            }
            CommOp::Broadcast { root, count } => self.broadcast(root.group_rank, dst, *count),
            CommOp::Reduce { root, op, count } => {
                self.reduce_steps(root.group_rank, dst, *count, *op)
            }
            CommOp::Scatter { root, counts } => {
                self.scatter_steps(root.group_rank, src.unwrap_or_default(), dst, counts)
            }
            CommOp::Gather { root, counts } => {
                self.gather_steps(root.group_rank, src.unwrap_or_default(), dst, counts)
            }
            CommOp::Barrier => self.all_reduce(dst, 1, ReduceOp::Max),
            CommOp::Send { .. } | CommOp::Recv { .. } => Vec::new(),
        }
    }

    fn all_reduce(&self, data: u64, count: usize, op: ReduceOp) -> Vec<Step> {
        self.group_step((count > 0).then_some(Transfer::AllReduce { data, count, op }))
    }

    fn reduce_steps(&self, root: usize, data: u64, count: usize, op: ReduceOp) -> Vec<Step> {
        let reduce = Transfer::Reduce { src: data, dst: data, count, op, root };
        self.group_step((count > 0).then_some(reduce))
    }

    fn broadcast(&self, root: usize, data: u64, count: usize) -> Vec<Step> {
        let broadcast = Transfer::Broadcast { src: data, dst: data, count, root };
        self.group_step((count > 0).then_some(broadcast))
    }

    /// Plans an all-gather. `src` may be this member's run in `dst`; `scratch` holds [`scratch_len`](Self::scratch_len)
    /// elements.
    fn all_gather(&self, src: u64, dst: u64, blocks: &Blocks, scratch: u64) -> Vec<Step> {
        let flat = self.flat_counts(blocks);
        let Some(slots) = self.slot_lens(blocks) else { return self.gather_row(src, dst, &flat) };
        let mut steps = Vec::new();
        let mut own = src;
        if slots[self.member] > flat[self.member] {
            // The library reads all of the slot.
            own = self.slot_address(scratch, &slots, self.member);
            steps.extend(self.copy_step(own, src, flat[self.member]));
        }
        steps.extend(self.gather_row(own, scratch, &slots));
        let parts = self.parts(scratch, blocks, &slots);
        steps.push(Step::Join { rows: blocks.outer, whole: dst, parts });
        steps
    }

    /// Plans a reduce-scatter. `dst` may be this member's run in `src`; `scratch` holds
    /// [`scratch_len`](Self::scratch_len) elements.
    fn reduce_scatter(&self, src: u64, dst: u64, blocks: &Blocks, scratch: u64) -> Vec<Step> {
        let flat = self.flat_counts(blocks);
        let Some(slots) = self.slot_lens(blocks) else { return self.scatter_row(src, dst, &flat) };
        let parts = self.parts(scratch, blocks, &slots);
        let mut steps = vec![Step::Split { rows: blocks.outer, whole: src, parts }];
        if slots[self.member] == flat[self.member] {
            steps.extend(self.scatter_row(scratch, dst, &slots));
            return steps;
        }
        // The library writes all of the slot.
        let own = self.slot_address(scratch, &slots, self.member);
        steps.extend(self.scatter_row(scratch, own, &slots));
        steps.extend(self.copy_step(dst, own, flat[self.member]));
        steps
    }

    /// Returns the padded length of each member's part in scratch memory; `None` if the library works on the whole
    /// tensor.
    ///
    /// Scratch memory is used for several rows, and for parts of almost equal length: with all of them padded to the
    /// longest, one transfer replaces one per member. The contents of the padding are unspecified.
    fn slot_lens(&self, blocks: &Blocks) -> Option<Vec<usize>> {
        let flat = self.flat_counts(blocks);
        let (longest, total) =
            (flat.iter().copied().max().unwrap_or(0), flat.iter().sum::<usize>());
        let padded = longest * self.members;
        match self.members {
            1 => None,
            _ if padded > total && 4 * padded <= 5 * total => Some(vec![longest; self.members]),
            _ if blocks.outer > 1 => Some(flat),
            _ => None,
        }
    }

    fn all_to_all_steps(&self, src: u64, dst: u64, send: &[usize], recv: &[usize]) -> Vec<Step> {
        let sends = self.runs(send).map(|(to, start, count)| Transfer::Send {
            src: src + self.bytes(start) as u64,
            count,
            to,
        });
        let recvs = self.runs(recv).map(|(from, start, count)| Transfer::Recv {
            dst: dst + self.bytes(start) as u64,
            count,
            from,
        });
        let own = |counts: &[usize]| self.bytes(counts[..self.member].iter().sum()) as u64;
        let copy = self.copy_step(dst + own(recv), src + own(send), send[self.member]);
        copy.into_iter().chain(self.group_step(sends.chain(recvs))).collect()
    }

    /// Plans a scatter from the `whole` tensor of the root to `part`, the part of this member.
    fn scatter_steps(&self, root: usize, whole: u64, part: u64, counts: &[usize]) -> Vec<Step> {
        let copy = |own| self.copy_step(part, own, counts[root]);
        let send = |src, count, to| Transfer::Send { src, count, to };
        let recv = |count| Transfer::Recv { dst: part, count, from: root };
        self.rooted_steps(root, whole, counts, copy, send, recv)
    }

    /// Plans the reverse of [`scatter_steps`](Self::scatter_steps).
    fn gather_steps(&self, root: usize, part: u64, whole: u64, counts: &[usize]) -> Vec<Step> {
        let copy = |own| self.copy_step(own, part, counts[root]);
        let recv = |dst, count, from| Transfer::Recv { dst, count, from };
        let send = |count| Transfer::Send { src: part, count, to: root };
        self.rooted_steps(root, whole, counts, copy, recv, send)
    }

    /// Plans the transfers between the `whole` tensor of the root and the parts: at the root the `copy` of its own
    /// part, given its address, and a transfer for each `other` part, given its address, length and member; elsewhere
    /// that of the `own` part.
    fn rooted_steps(
        &self,
        root: usize,
        whole: u64,
        counts: &[usize],
        copy: impl Fn(u64) -> Option<Step>,
        other: impl Fn(u64, usize, usize) -> Transfer,
        own: impl Fn(usize) -> Transfer,
    ) -> Vec<Step> {
        let count = counts[self.member];
        if self.member != root {
            return self.group_step((count > 0).then(|| own(count)));
        }
        let address = |start: usize| whole + self.bytes(start) as u64;
        let others =
            self.runs(counts).map(|(member, start, count)| other(address(start), count, member));
        let copy = copy(address(counts[..root].iter().sum()));
        copy.into_iter().chain(self.group_step(others)).collect()
    }

    /// Concatenates the parts of all members: by one transfer if they have one length, else by one per member.
    fn gather_row(&self, src: u64, dst: u64, lens: &[usize]) -> Vec<Step> {
        if self.members == 1 {
            return self.copy_step(dst, src, lens[0]).into_iter().collect();
        }
        if is_even(lens) {
            let count = lens[0];
            let gather = (count > 0).then_some(Transfer::AllGather { src, dst, count });
            return self.group_step(gather);
        }
        self.group_step(runs(lens).map(|(root, start, count)| {
            let dst = dst + self.bytes(start) as u64;
            let src = if root == self.member { src } else { dst };
            Transfer::Broadcast { src, dst, count, root }
        }))
    }

    /// Sums the parts of all members, as [`gather_row`](Self::gather_row) gathers them.
    fn scatter_row(&self, src: u64, dst: u64, lens: &[usize]) -> Vec<Step> {
        if self.members == 1 {
            return self.copy_step(dst, src, lens[0]).into_iter().collect();
        }
        if is_even(lens) {
            let count = lens[0];
            let scatter = (count > 0).then_some(Transfer::ReduceScatter { src, dst, count });
            return self.group_step(scatter);
        }
        self.group_step(runs(lens).map(|(root, start, count)| {
            let src = src + self.bytes(start) as u64;
            let dst = if root == self.member { dst } else { src };
            Transfer::Reduce { src, dst, count, op: ReduceOp::Sum, root }
        }))
    }

    /// Returns a step with one group of transfers; none for a single member, or without transfers.
    fn group_step(&self, transfers: impl IntoIterator<Item = Transfer>) -> Vec<Step> {
        let transfers: Vec<Transfer> = transfers.into_iter().collect();
        if transfers.is_empty() || self.members == 1 {
            return Vec::new();
        }
        vec![Step::Group(transfers)]
    }

    /// Returns a copy on the device; `None` if it is empty or onto itself.
    fn copy_step(&self, dst: u64, src: u64, count: usize) -> Option<Step> {
        let bytes = self.bytes(count);
        (bytes > 0 && dst != src).then_some(Step::Copy { bytes, dst, src })
    }

    /// Returns the parts of the members in scratch memory, at their padded offsets.
    fn parts(&self, scratch: u64, blocks: &Blocks, slots: &[usize]) -> Vec<RowPart> {
        let part = |member| RowPart {
            address: self.slot_address(scratch, slots, member),
            bytes: self.bytes(blocks.lens[member]),
        };
        (0..self.members).map(part).collect()
    }

    /// Returns the address of the part of `member` in scratch memory.
    fn slot_address(&self, scratch: u64, slots: &[usize], member: usize) -> u64 {
        scratch + self.bytes(slots[..member].iter().sum()) as u64
    }

    /// Elements of each member in all rows.
    fn flat_counts(&self, blocks: &Blocks) -> Vec<usize> {
        (0..self.members).map(|member| blocks.owned(member)).collect()
    }

    /// The runs of the other members.
    fn runs<'a>(
        &self,
        counts: &'a [usize],
    ) -> impl Iterator<Item = (usize, usize, usize)> + use<'a> {
        let own = self.member;
        runs(counts).filter(move |(member, ..)| *member != own)
    }

    fn bytes(&self, count: usize) -> usize {
        count * self.dtype.bytes()
    }
}

/// Iterates over the members with elements, with their start and number.
fn runs(counts: &[usize]) -> impl Iterator<Item = (usize, usize, usize)> {
    let starts = counts.iter().scan(0, |sum, count| {
        *sum += count;
        Some(*sum - count)
    });
    let runs = counts.iter().zip(starts).enumerate();
    runs.map(|(member, (count, start))| (member, start, *count)).filter(|(.., count)| *count > 0)
}

fn is_even(lens: &[usize]) -> bool {
    lens.iter().all(|len| *len == lens[0])
}
