//! Exchange of positions for heads by all-to-all: tensors of one rank's positions and all heads become tensors of
//! several ranks' positions and some heads, and back.

use std::ops::Range;
use std::sync::Arc;

use meshwright_backend::{BlockCopy, Buffer, Category, DType, View};

use super::call::ContextCall;
use super::order::ZigZagPart;

/// The ranks that exchange heads, as one of them: consecutive members of the process group of a call.
#[derive(Clone, Copy)]
pub(super) struct HeadExchange<'a> {
    pub call: &'a ContextCall<'a>,
    /// Ranks that exchange.
    pub size: usize,
}

/// A tensor whose heads are exchanged: `[batch, positions, heads, dim]`, dense.
pub(super) struct HeadTensor {
    pub batch: usize,
    /// Positions of one rank.
    pub positions: usize,
    /// All heads.
    pub heads: usize,
    pub dim: usize,
    /// The heads of each rank after the exchange.
    pub of_rank: Vec<Range<usize>>,
}

impl HeadTensor {
    /// Elements of one rank's positions with the heads of rank `index`.
    fn message_len(&self, index: usize) -> usize {
        self.batch * self.positions * self.of_rank[index].len() * self.dim
    }

    /// Elements of one rank's positions with all heads.
    fn own_len(&self) -> usize {
        self.batch * self.positions * self.heads * self.dim
    }

    /// Returns the copy of the heads of rank `index`, at the positions of this rank, to a message at `at`.
    fn to_message(&self, index: usize, at: usize) -> BlockCopy {
        let heads = &self.of_rank[index];
        BlockCopy {
            blocks: self.batch * self.positions,
            len: heads.len() * self.dim,
            src_start: heads.start * self.dim,
            src_stride: self.heads * self.dim,
            dst_start: at,
            dst_stride: heads.len() * self.dim,
        }
    }

    /// Returns the copies of a message at `at`, with the positions of rank `from` and the heads of rank `own`, to all
    /// positions in their order.
    fn placed_message(&self, from: usize, own: usize, at: usize) -> [BlockCopy; 2] {
        let part = ZigZagPart {
            batch: self.batch,
            chunk: self.positions / 2,
            row: self.of_rank[own].len() * self.dim,
            members: self.of_rank.len(),
            member: from,
        };
        part.to_whole(at, 0)
    }

    /// Groups the ranks so that no two of a group have a head in common, and each head's ranks are in ascending order.
    fn disjoint_groups(&self) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let mut group = 0;
        for index in 0..self.of_rank.len() {
            let shares_head = index > 0 && self.of_rank[index].start < self.of_rank[index - 1].end;
            group = if shares_head { group + 1 } else { 0 };
            if group == groups.len() {
                groups.push(Vec::new());
            }
            groups[group].push(index);
        }
        groups
    }
}

impl HeadExchange<'_> {
    /// Index of this rank among those that exchange.
    pub fn index(&self) -> usize {
        self.call.group.rank() % self.size
    }

    /// Sends each rank its heads of this rank's positions. Returns, for each tensor, the heads of this rank at the
    /// positions of all ranks, in ascending order.
    pub fn distribute<const N: usize>(
        &self,
        own: [View; N],
        tensors: &[HeadTensor; N],
    ) -> [Buffer; N] {
        let (rank, index) = (self.call.rank, self.index());
        let to = |to: usize| tensors.iter().map(|tensor| tensor.message_len(to)).sum();
        let dtype = own[0].dtype();
        let mut message = rank.alloc_scratch(dtype, (0..self.size).map(to).sum());
        let mut at = 0;
        for to in 0..self.size {
            for (own, tensor) in own.iter().zip(tensors) {
                let copy = tensor.to_message(to, at);
                rank.backend().copy_blocks(&copy, *own, message.view_mut());
                at += tensor.message_len(to);
            }
        }
        let received = self.all_to_all(message, to, |_| to(index));
        let mut whole = tensors.each_ref().map(|tensor| {
            let len = self.size * tensor.message_len(index);
            rank.allocator().alloc(dtype, len, Category::Activations)
        });
        let mut at = 0;
        for from in 0..self.size {
            for (whole, tensor) in whole.iter_mut().zip(tensors) {
                for copy in tensor.placed_message(from, index, at) {
                    rank.backend().copy_blocks(&copy, received.view(), whole.view_mut());
                }
                at += tensor.message_len(index);
            }
        }
        whole
    }

    /// Reverses [`distribute`](Self::distribute). If several ranks have a head, their values are added in f32, in the
    /// order of ranks.
    pub fn collect<const N: usize>(
        &self,
        whole: [View; N],
        tensors: &[HeadTensor; N],
    ) -> [Buffer; N] {
        let (rank, index) = (self.call.rank, self.index());
        let from = |from: usize| tensors.iter().map(|tensor| tensor.message_len(from)).sum();
        let mut message = rank.alloc_scratch(whole[0].dtype(), self.size * from(index));
        let mut at = 0;
        for to in 0..self.size {
            for (whole, tensor) in whole.iter().zip(tensors) {
                for copy in tensor.placed_message(to, index, at) {
                    rank.backend().copy_blocks(&copy.reversed(), *whole, message.view_mut());
                }
                at += tensor.message_len(index);
            }
        }
        let received = self.all_to_all(message, |_| from(index), from);
        let mut before = vec![0; self.size];
        for index in 1..self.size {
            before[index] = before[index - 1] + from(index - 1);
        }
        tensors.each_ref().map(|tensor| {
            let own = self.unpack(tensor, &before, &received);
            for (index, before) in before.iter_mut().enumerate() {
                *before += tensor.message_len(index);
            }
            own
        })
    }

    /// Returns a tensor with all heads, of the messages of all ranks; that of rank `i` begins at `starts[i]`.
    fn unpack(&self, tensor: &HeadTensor, starts: &[usize], received: &Buffer) -> Buffer {
        let (rank, backend) = (self.call.rank, self.call.rank.backend());
        let len = tensor.own_len();
        let unpack = |index: usize, own: &mut Buffer| {
            let copy = tensor.to_message(index, starts[index]).reversed();
            backend.copy_blocks(&copy, received.view(), own.view_mut());
        };
        let groups = tensor.disjoint_groups();
        if let [all] = &groups[..] {
            let mut own = rank.alloc_activation(len);
            if tensor.of_rank.iter().map(Range::len).sum::<usize>() < tensor.heads {
                // No query head of these ranks reads the others.
                backend.fill(own.view_mut(), 0.0);
            }
            all.iter().for_each(|&index| unpack(index, &mut own));
            return own;
        }
        let mut sum = self.call.zeros(DType::F32, len);
        for group in &groups {
            let mut heads = self.call.zeros(received.dtype(), len);
            group.iter().for_each(|&index| unpack(index, &mut heads));
            backend.add_assign(sum.view_mut(), heads.view());
        }
        self.call.narrow(sum.view())
    }

    /// Exchanges messages among the ranks that exchange heads: `send(i)` elements to rank `i`, `receive(i)` from it.
    fn all_to_all(
        &self,
        message: Buffer,
        send: impl Fn(usize) -> usize,
        receive: impl Fn(usize) -> usize,
    ) -> Buffer {
        let ContextCall { rank, group, site, .. } = *self.call;
        let first = group.rank() - self.index();
        let counts = |len: &dyn Fn(usize) -> usize| -> Vec<usize> {
            let exchanging = first..first + self.size;
            let len = |member| exchanging.contains(&member).then(|| len(member - first));
            (0..group.size()).map(|member| len(member).unwrap_or(0)).collect()
        };
        let (send, receive) = (counts(&send), counts(&receive));
        let arriving = rank.alloc_scratch(message.dtype(), receive.iter().sum());
        let message = Arc::new(message);
        self.call.wait_for_buffer(group.start_all_to_all(site, message, arriving, &send, &receive))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_ranks_have_disjoint_heads() {
        let groups = |of_rank: &[Range<usize>]| {
            let of_rank = of_rank.to_vec();
            HeadTensor { batch: 1, positions: 2, heads: 4, dim: 1, of_rank }.disjoint_groups()
        };
        assert_eq!(groups(&[0..2, 2..4]), [[0, 1]]);
        assert_eq!(groups(&[0..1, 0..1, 1..2, 1..2]), [[0, 2], [1, 3]]);
        assert_eq!(groups(&[0..1, 0..1, 0..1]), [[0], [1], [2]]);
        assert_eq!(groups(&[0..1, 0..2, 1..2, 2..3]), [vec![0, 3], vec![1], vec![2]]);
    }
}
