//! Backward of elementwise expressions: each block is recomputed and backpropagated while in cache.

mod block_backward;

use std::ops::Range;

use super::block::{BLOCK, ElementBlock, check_expr};
use crate::float::{Float, convert, store_rounded, workplace_len};
use crate::norm::add_rows;
use crate::scratch::with_scratch;
use crate::simd::dispatch;
use crate::workers::{Rows, SplitChunks, Workers};
use block_backward::BlockBackward;
use meshwright_backend::unary_function::DerivativeOf;
use meshwright_backend::{Expr, LeafGrad, Node};

/// Blocks per partial sum of the gradient of a row leaf.
const CHUNK_BLOCKS: usize = 64;

pub(super) fn map_backward<T: Float>(
    workers: &Workers,
    expr: &Expr,
    leaves: &[&[T]],
    grad: &[T],
    leaf_grads: &mut [Option<LeafGrad>],
) {
    check_expr(expr, leaves, grad.len());
    assert_eq!(leaves.len(), leaf_grads.len(), "one gradient slot per leaf");
    let plan = BackwardPlan::new(expr, leaves, leaf_grads);
    for (leaf, slot) in leaf_grads.iter_mut().enumerate() {
        let Some(slot) = slot else { continue };
        assert_eq!(slot.view.len(), leaves[leaf].len(), "gradient of leaf {leaf} fits");
        // These are not written block by block: their sums are added at the end, or the leaf is unused.
        if !plan.direct[leaf] && !slot.accumulate {
            slot.view.bytes_mut().fill(0);
        }
    }

    let blocks = grad.len().div_ceil(BLOCK);
    let scratch = 2 * expr.nodes.len() * BLOCK + workplace_len::<T>((leaves.len() + 1) * BLOCK);
    if plan.row_total == 0 {
        let targets = LeafTargets::new(&plan, leaf_grads);
        workers.rows(blocks, BLOCK * expr.nodes.len(), targets, |range, mut targets| {
            with_scratch(scratch, |scratch| {
                let first = range.start * BLOCK;
                let last = grad.len().min(range.end * BLOCK);
                range_backward(&plan, leaves, grad, first..last, scratch, &mut targets, &mut []);
            });
        });
        return;
    }
    // The chunks are so large that the partial sums are small compared to the operand.
    let chunk = CHUNK_BLOCKS.max((16 * plan.row_total).div_ceil(BLOCK));
    let chunks = blocks.div_ceil(chunk);
    with_scratch(chunks * plan.row_total, |partial| {
        partial.fill(0.0);
        let targets = ChunkTargets(LeafTargets::new(&plan, leaf_grads), chunk);
        let outputs = (targets, Rows(&mut *partial, plan.row_total));
        workers.chunks(chunks, 1, outputs, |range, (mut targets, sums)| {
            with_scratch(scratch, |scratch| {
                let first = range.start * chunk * BLOCK;
                let last = grad.len().min(first + chunk * BLOCK);
                range_backward(&plan, leaves, grad, first..last, scratch, &mut targets.0, sums.0);
            });
        });
        for (leaf, start) in plan.row_starts.iter().enumerate() {
            if let (Some(start), Some(slot)) = (start, &mut leaf_grads[leaf]) {
                let sum = slot.view.typed::<f32>();
                for chunk_sums in partial.chunks_exact(plan.row_total) {
                    add_rows(&chunk_sums[*start..][..sum.len()], sum);
                }
            }
        }
    });
}

/// The plan of a backward pass, shared by all blocks.
struct BackwardPlan<'a> {
    expr: &'a Expr,
    /// Per node: true if its gradient is needed.
    needed: Vec<bool>,
    /// Per leaf: true if its gradient is written block by block, since the result depends on it and it is never used as
    /// a row.
    direct: Vec<bool>,
    /// Per leaf that is written directly: true if the gradient is accumulated.
    accumulate: Vec<bool>,
    /// Per leaf: the start of its sums in a row of partial sums, if it is used as a row.
    row_starts: Vec<Option<usize>>,
    /// Length of a row of partial sums.
    row_total: usize,
}

impl<'a> BackwardPlan<'a> {
    fn new<T>(
        expr: &'a Expr,
        leaves: &[&[T]],
        leaf_grads: &[Option<LeafGrad>],
    ) -> BackwardPlan<'a> {
        let mut plan = BackwardPlan {
            expr,
            needed: Vec::with_capacity(expr.nodes.len()),
            direct: vec![false; leaves.len()],
            accumulate: leaf_grads
                .iter()
                .map(|g| g.as_ref().is_some_and(|g| g.accumulate))
                .collect(),
            row_starts: vec![None; leaves.len()],
            row_total: 0,
        };
        let read = read_nodes(expr);
        for (node, read) in expr.nodes.iter().zip(read) {
            let needed = match *node {
                Node::Leaf(leaf) | Node::Row(leaf) => leaf_grads[leaf].is_some(),
                _ => node.operands().any(|operand| plan.needed[operand]),
            };
            plan.needed.push(needed);
            match *node {
                Node::Leaf(leaf) if needed && read => plan.direct[leaf] = true,
                Node::Row(leaf) if needed && plan.row_starts[leaf].is_none() => {
                    plan.row_starts[leaf] = Some(plan.row_total);
                    plan.row_total += leaves[leaf].len();
                }
                _ => {}
            }
        }
        for (direct, row) in plan.direct.iter_mut().zip(&plan.row_starts) {
            *direct &= row.is_none();
        }
        plan
    }
}

/// Returns, per node, true if the result depends on it.
fn read_nodes(expr: &Expr) -> Vec<bool> {
    let mut read = vec![false; expr.nodes.len()];
    if let Some(last) = read.last_mut() {
        *last = true;
    }
    for (index, node) in expr.nodes.iter().enumerate().rev() {
        if read[index] {
            node.operands().for_each(|operand| read[operand] = true);
        }
    }
    read
}

/// Gradients of leaves that are written block by block.
struct LeafTargets<'a, T>(Vec<Option<&'a mut [T]>>);

impl<'a, T: Float> LeafTargets<'a, T> {
    fn new(plan: &BackwardPlan, leaf_grads: &'a mut [Option<LeafGrad>]) -> Self {
        let targets = leaf_grads.iter_mut().zip(&plan.direct).map(|(slot, direct)| match slot {
            Some(slot) if *direct => Some(slot.view.typed::<T>()),
            _ => None,
        });
        LeafTargets(targets.collect())
    }

    /// Widens a block of the gradients that are accumulated, unless they are f32.
    #[inline(always)]
    fn load_gradients(&self, at: usize, len: usize, accumulate: &[bool], leaf_grads: &mut [f32]) {
        if T::IS_F32 {
            return;
        }
        let blocks = self.0.iter().zip(accumulate).zip(leaf_grads.chunks_exact_mut(BLOCK));
        for ((target, accumulate), block) in blocks {
            if let (Some(target), true) = (target, accumulate) {
                convert(&target[at..][..len], &mut block[..len]);
            }
        }
    }

    /// Returns the slice that sums a block of the gradient of `leaf`.
    #[inline(always)]
    fn block<'b>(
        &'b mut self,
        leaf: usize,
        at: usize,
        len: usize,
        leaf_grads: &'b mut [f32],
    ) -> Option<&'b mut [f32]> {
        let target = &mut self.0[leaf].as_mut()?[at..][..len];
        Some(match T::in_place_mut(target) {
            Some(target) => target,
            None => &mut leaf_grads[leaf * BLOCK..][..len],
        })
    }

    /// Rounds a block of every gradient that was written, unless they are f32.
    #[inline(always)]
    fn store_gradients(&mut self, at: usize, len: usize, written: &[bool], leaf_grads: &[f32]) {
        if T::IS_F32 {
            return;
        }
        let blocks = self.0.iter_mut().zip(written).zip(leaf_grads.chunks_exact(BLOCK));
        for ((target, written), block) in blocks {
            if let (Some(target), true) = (target, written) {
                store_rounded(&block[..len], &mut target[at..][..len]);
            }
        }
    }
}

impl<T: Float> SplitChunks for LeafTargets<'_, T> {
    fn split_rows(self, blocks: usize) -> (Self, Self) {
        let halves = self.0.into_iter().map(|target| match target {
            None => (None, None),
            Some(target) => {
                let (head, rest) = target.split_at_mut((blocks * BLOCK).min(target.len()));
                (Some(head), Some(rest))
            }
        });
        let (head, rest) = halves.unzip();
        (LeafTargets(head), LeafTargets(rest))
    }
}

/// [`Targets`] split in chunks of a number of blocks.
struct ChunkTargets<'a, T>(LeafTargets<'a, T>, usize);

impl<T: Float> SplitChunks for ChunkTargets<'_, T> {
    fn split_rows(self, chunks: usize) -> (Self, Self) {
        let (head, rest) = self.0.split_rows(chunks * self.1);
        (ChunkTargets(head, self.1), ChunkTargets(rest, self.1))
    }
}

dispatch! {
    /// Backpropagates a range of elements; `targets` and `row_sums` belong to this range.
    fn range_backward<const FMA: bool, T: Float>(
        plan: &BackwardPlan,
        leaves: &[&[T]],
        grad: &[T],
        elements: Range<usize>,
        scratch: &mut [f32],
        targets: &mut LeafTargets<T>,
        row_sums: &mut [f32],
    ) {
        let nodes = plan.expr.nodes.len();
        let (values, rest) = scratch.split_at_mut(nodes * BLOCK);
        let (grads, rest) = rest.split_at_mut(nodes * BLOCK);
        let (wide_grad, leaf_grads) = rest.split_at_mut(workplace_len::<T>(BLOCK));
        // The result is needed only if its derivative is a function of it.
        let of_result = match plan.expr.nodes[nodes - 1] {
            Node::Apply(function, _) => function.derivative_of() == DerivativeOf::Output,
            Node::Div(..) => true,
            _ => false,
        };
        let evaluated = if of_result { nodes } else { nodes - 1 };
        let mut leaf_written = vec![false; leaves.len()];
        let mut node_written = vec![false; nodes];
        let mut start = elements.start;
        while start < elements.end {
            let len = BLOCK.min(elements.end - start);
            let block = ElementBlock { expr: plan.expr, leaves, start, len };
            for node in 0..evaluated {
                let (earlier, this) = values.split_at_mut(node * BLOCK);
                block.evaluate::<FMA>(node, earlier, &mut this[..len]);
            }
            let grad = &grad[start..start + len];
            let grad = match T::in_place(grad) {
                Some(grad) => grad,
                None => {
                    convert(grad, &mut wide_grad[..len]);
                    &wide_grad[..len]
                }
            };
            leaf_written.copy_from_slice(&plan.accumulate);
            node_written.fill(false);
            let at = start - elements.start;
            targets.load_gradients(at, len, &plan.accumulate, leaf_grads);
            let mut block_backward = BlockBackward {
                plan,
                values,
                grads: &mut *grads,
                targets: &mut *targets,
                leaf_grads: &mut *leaf_grads,
                at,
                leaf_written: &mut leaf_written,
                node_written: &mut node_written,
                block,
            };
            block_backward.backward::<FMA>(grad, row_sums);
            targets.store_gradients(at, len, &leaf_written, leaf_grads);
            start += len;
        }
    }
}
