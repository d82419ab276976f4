//! Which transfers and copies make up one member's share of a collective.

use crate::backend::{DType, RowPart};
use crate::comm::{Blocks, ReduceOp};

use super::api::Transfer;

/// What is queued, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Transfers that begin together.
    Group(Vec<Transfer>),
    /// A copy on the device.
    Copy { bytes: usize, dst: u64, src: u64 },
    /// Rows put together from the parts of the members.
    Join { rows: usize, whole: u64, parts: Vec<RowPart> },
    /// Rows taken apart.
    Split { rows: usize, whole: u64, parts: Vec<RowPart> },
}

/// One member of a group, at a collective of elements of one dtype.
#[derive(Debug, Clone, Copy)]
pub struct Planner {
    pub members: usize,
    pub member: usize,
    pub dtype: DType,
}

impl Planner {
    pub fn all_reduce(&self, data: u64, count: usize, op: ReduceOp) -> Vec<Step> {
        match count {
            0 => Vec::new(),
            _ => self.group([Transfer::AllReduce { data, count, op }]),
        }
    }

    pub fn reduce(&self, root: usize, data: u64, count: usize, op: ReduceOp) -> Vec<Step> {
        match count {
            0 => Vec::new(),
            _ => self.group([Transfer::Reduce { src: data, dst: data, count, op, root }]),
        }
    }

    pub fn broadcast(&self, root: usize, data: u64, count: usize) -> Vec<Step> {
        match count {
            0 => Vec::new(),
            _ => self.group([Transfer::Broadcast { src: data, dst: data, count, root }]),
        }
    }

    /// Elements that [`all_gather`](Self::all_gather) and [`reduce_scatter`](Self::reduce_scatter) need aside.
    pub fn staged(&self, blocks: &Blocks) -> usize {
        self.slots(blocks).map_or(0, |slots| slots.iter().sum())
    }

    /// `src` may be this member's place in `dst`. `aside` has room for [`staged`](Self::staged).
    pub fn all_gather(&self, src: u64, dst: u64, blocks: &Blocks, aside: u64) -> Vec<Step> {
        let flat = self.flat(blocks);
        let Some(slots) = self.slots(blocks) else { return self.gather_row(src, dst, &flat) };
        let mut steps = Vec::new();
        let mut own = src;
        if slots[self.member] > flat[self.member] {
            // The library reads all of the slot.
            own = self.slot(aside, &slots, self.member);
            steps.extend(self.copy(own, src, flat[self.member]));
        }
        steps.extend(self.gather_row(own, aside, &slots));
        let parts = self.parts(aside, blocks, &slots);
        steps.push(Step::Join { rows: blocks.outer, whole: dst, parts });
        steps
    }

    /// `dst` may be this member's place in `src`. `aside` has room for [`staged`](Self::staged).
    pub fn reduce_scatter(&self, src: u64, dst: u64, blocks: &Blocks, aside: u64) -> Vec<Step> {
        let flat = self.flat(blocks);
        let Some(slots) = self.slots(blocks) else { return self.scatter_row(src, dst, &flat) };
        let parts = self.parts(aside, blocks, &slots);
        let mut steps = vec![Step::Split { rows: blocks.outer, whole: src, parts }];
        if slots[self.member] == flat[self.member] {
            steps.extend(self.scatter_row(aside, dst, &slots));
            return steps;
        }
        // The library writes all of the slot.
        let own = self.slot(aside, &slots, self.member);
        steps.extend(self.scatter_row(aside, own, &slots));
        steps.extend(self.copy(dst, own, flat[self.member]));
        steps
    }

    /// Elements of each member aside, where the parts lie one after the other; none where the library works on the whole.
    ///
    /// Aside go several rows, and parts that are of almost one length: with all of them as long as the longest, one call
    /// does what else takes a call for each member. What lies behind a shorter part is whatever was there.
    fn slots(&self, blocks: &Blocks) -> Option<Vec<usize>> {
        let flat = self.flat(blocks);
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

    pub fn all_to_all(&self, src: u64, dst: u64, send: &[usize], recv: &[usize]) -> Vec<Step> {
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
        let copy = self.copy(dst + own(recv), src + own(send), send[self.member]);
        copy.into_iter().chain(self.group(sends.chain(recvs))).collect()
    }

    /// `whole` is that of the root; `part` is this member's.
    pub fn scatter(&self, root: usize, whole: u64, part: u64, counts: &[usize]) -> Vec<Step> {
        let copy = |own| self.copy(part, own, counts[root]);
        let send = |src, count, to| Transfer::Send { src, count, to };
        let recv = |count| Transfer::Recv { dst: part, count, from: root };
        self.rooted(root, whole, counts, copy, send, recv)
    }

    /// As [`scatter`](Self::scatter), the other way.
    pub fn gather(&self, root: usize, part: u64, whole: u64, counts: &[usize]) -> Vec<Step> {
        let copy = |own| self.copy(own, part, counts[root]);
        let recv = |dst, count, from| Transfer::Recv { dst, count, from };
        let send = |count| Transfer::Send { src: part, count, to: root };
        self.rooted(root, whole, counts, copy, recv, send)
    }

    /// What goes between the `whole` of the root and the parts: there the `copy` of its own part, given its place, and
    /// a transfer for each `other` part, given its place, length and member; elsewhere that of the `own` part.
    fn rooted(
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
            return self.group((count > 0).then(|| own(count)));
        }
        let place = |start: usize| whole + self.bytes(start) as u64;
        let others =
            self.runs(counts).map(|(member, start, count)| other(place(start), count, member));
        let copy = copy(place(counts[..root].iter().sum()));
        copy.into_iter().chain(self.group(others)).collect()
    }

    /// The parts of all members one after the other: by one transfer where they are equally long, else by one for each.
    fn gather_row(&self, src: u64, dst: u64, lens: &[usize]) -> Vec<Step> {
        if self.members == 1 {
            return self.copy(dst, src, lens[0]).into_iter().collect();
        }
        if is_even(lens) {
            let count = lens[0];
            let gather = (count > 0).then_some(Transfer::AllGather { src, dst, count });
            return self.group(gather);
        }
        self.group(runs(lens).map(|(root, start, count)| {
            let dst = dst + self.bytes(start) as u64;
            let src = if root == self.member { src } else { dst };
            Transfer::Broadcast { src, dst, count, root }
        }))
    }

    /// As [`gather_row`](Self::gather_row), for sums.
    fn scatter_row(&self, src: u64, dst: u64, lens: &[usize]) -> Vec<Step> {
        if self.members == 1 {
            return self.copy(dst, src, lens[0]).into_iter().collect();
        }
        if is_even(lens) {
            let count = lens[0];
            let scatter = (count > 0).then_some(Transfer::ReduceScatter { src, dst, count });
            return self.group(scatter);
        }
        self.group(runs(lens).map(|(root, start, count)| {
            let src = src + self.bytes(start) as u64;
            let dst = if root == self.member { dst } else { src };
            Transfer::Reduce { src, dst, count, op: ReduceOp::Sum, root }
        }))
    }

    /// One step; none for a member alone, or without transfers.
    fn group(&self, transfers: impl IntoIterator<Item = Transfer>) -> Vec<Step> {
        let transfers: Vec<Transfer> = transfers.into_iter().collect();
        match transfers.is_empty() || self.members == 1 {
            true => Vec::new(),
            false => vec![Step::Group(transfers)],
        }
    }

    /// A copy on the device; none of nothing, or onto itself.
    fn copy(&self, dst: u64, src: u64, count: usize) -> Option<Step> {
        let bytes = self.bytes(count);
        (bytes > 0 && dst != src).then_some(Step::Copy { bytes, dst, src })
    }

    /// The parts of the members aside, each in its slot.
    fn parts(&self, aside: u64, blocks: &Blocks, slots: &[usize]) -> Vec<RowPart> {
        let part = |member| RowPart {
            address: self.slot(aside, slots, member),
            bytes: self.bytes(blocks.lens[member]),
        };
        (0..self.members).map(part).collect()
    }

    /// Where the slot of `member` begins aside.
    fn slot(&self, aside: u64, slots: &[usize], member: usize) -> u64 {
        aside + self.bytes(slots[..member].iter().sum()) as u64
    }

    /// Elements of each member in all rows.
    fn flat(&self, blocks: &Blocks) -> Vec<usize> {
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

/// Every member with elements, where they start, and how many.
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
