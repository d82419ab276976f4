//! Backward of elementwise expressions: each block is recomputed and backpropagated while in cache.

mod block_backward;
mod targets;

use std::ops::Range;

use super::along::leaf_range;
use super::block::{BLOCK, ElementBlock, check_expr};
use crate::float::{Float, convert, workplace_len};
use crate::norm::add_rows;
use crate::scratch::with_scratch;
use crate::simd::dispatch;
use crate::workers::{Rows, Workers};
use block_backward::BlockBackward;
use meshwright_backend::unary_function::DerivativeOf;
use meshwright_backend::{Expr, LeafGrad, LeafStrides, Node};
use targets::{ChunkTargets, LeafTargets};

/// Minimum blocks per partial sum of the gradient of a repeated leaf.
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
    let plan = BackwardPlan::new(expr, leaves, leaf_grads, grad.len());
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
    if plan.sums_total == 0 {
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
    let chunk = plan.chunk_blocks;
    let chunks = blocks.div_ceil(chunk);
    let elements = |index: usize| {
        let first = index * chunk * BLOCK;
        first..grad.len().min(first + chunk * BLOCK)
    };
    with_scratch(chunks * plan.sums_total, |partial| {
        partial.fill(0.0);
        let targets = ChunkTargets(LeafTargets::new(&plan, leaf_grads), chunk);
        let outputs = (targets, Rows(&mut *partial, plan.sums_total));
        workers.chunks(chunks, 1, outputs, |range, (mut targets, sums)| {
            with_scratch(scratch, |scratch| {
                let elements = elements(range.start);
                range_backward(&plan, leaves, grad, elements, scratch, &mut targets.0, sums.0);
            });
        });
        for (leaf, sums) in plan.sums.iter().enumerate() {
            if let (Some(sums), Some(slot)) = (sums, &mut leaf_grads[leaf]) {
                let sum = slot.view.typed::<f32>();
                for (index, partial) in partial.chunks_exact(plan.sums_total).enumerate() {
                    let read = sums.read_by(elements(index), sum.len());
                    add_rows(&partial[sums.first..][..read.len()], &mut sum[read]);
                }
            }
        }
    });
}

/// Partial sums of the gradient of a leaf that is repeated.
struct LeafSums<'a> {
    /// Position in a row of partial sums.
    first: usize,
    /// Maximum number of elements of the leaf that a chunk of blocks reads.
    width: usize,
    /// The strides, if the leaf is read along some dims; otherwise each chunk reads all of it.
    strides: Option<&'a LeafStrides>,
}

impl LeafSums<'_> {
    /// Returns the elements of the leaf, of `len` in all, that elements of the result read.
    fn read_by(&self, elements: Range<usize>, len: usize) -> Range<usize> {
        self.strides.map_or(0..len, |strides| leaf_range(strides, elements))
    }
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
    /// Per leaf: its sums, if it is repeated.
    sums: Vec<Option<LeafSums<'a>>>,
    /// Length of a row of partial sums.
    sums_total: usize,
    /// Blocks per row of partial sums.
    chunk_blocks: usize,
    /// True if a gradient of 0 stays 0 whatever the derivatives.
    keeps_zeros: bool,
}

impl<'a> BackwardPlan<'a> {
    fn new<T>(
        expr: &'a Expr,
        leaves: &[&[T]],
        leaf_grads: &[Option<LeafGrad>],
        len: usize,
    ) -> BackwardPlan<'a> {
        let mut plan = BackwardPlan {
            expr,
            needed: Vec::with_capacity(expr.nodes.len()),
            direct: vec![false; leaves.len()],
            accumulate: leaf_grads
                .iter()
                .map(|g| g.as_ref().is_some_and(|g| g.accumulate))
                .collect(),
            sums: leaves.iter().map(|_| None).collect(),
            sums_total: 0,
            chunk_blocks: CHUNK_BLOCKS,
            keeps_zeros: expr.keeps_zero_gradients(),
        };
        let read = read_nodes(expr);
        for (node, read) in expr.nodes.iter().zip(read) {
            let needed = match node.leaf() {
                Some(leaf) => leaf_grads[leaf].is_some(),
                None => node.differentiable_operands().any(|operand| plan.needed[operand]),
            };
            plan.needed.push(needed);
            let sums = |strides| Some(LeafSums { first: 0, width: 0, strides });
            match node {
                Node::Leaf(leaf) if needed && read => plan.direct[*leaf] = true,
                Node::Row(leaf) if needed => plan.sums[*leaf] = sums(None),
                Node::Along(leaf, strides) if needed => plan.sums[*leaf] = sums(Some(strides)),
                _ => {}
            }
        }
        for (direct, sums) in plan.direct.iter_mut().zip(&plan.sums) {
            *direct &= sums.is_none();
        }
        plan.choose_chunks(leaves.iter().map(|leaf| leaf.len()).collect(), len);
        plan
    }

    /// Chooses the blocks per row of partial sums, from sizes alone, so that the sums are small compared to the operand
    /// or to the leaves.
    fn choose_chunks(&mut self, leaf_lens: Vec<usize>, len: usize) {
        let blocks = len.div_ceil(BLOCK);
        let of_leaves = self.sums.iter().zip(&leaf_lens);
        let rows: usize = of_leaves.filter_map(|(sums, len)| sums.as_ref().map(|_| len)).sum();
        let has_strides = self.sums.iter().flatten().any(|sums| sums.strides.is_some());
        if !has_strides {
            self.chunk_blocks = CHUNK_BLOCKS.max((16 * rows).div_ceil(BLOCK));
        }
        loop {
            let (chunk, mut total) = (self.chunk_blocks, 0);
            for (sums, leaf_len) in self.sums.iter_mut().zip(&leaf_lens) {
                let Some(sums) = sums else { continue };
                let read = (0..blocks.div_ceil(chunk)).map(|index| {
                    let first = index * chunk * BLOCK;
                    sums.read_by(first..len.min(first + chunk * BLOCK), *leaf_len).len()
                });
                sums.width = read.max().unwrap_or(0);
                sums.first = total;
                total += sums.width;
            }
            self.sums_total = total;
            let chunks = blocks.div_ceil(chunk);
            if !has_strides || chunks <= 1 || chunks * total <= len / 16 + 2 * rows {
                return;
            }
            self.chunk_blocks *= 2;
        }
    }
}

/// Returns, per node, true if a gradient flows to it from the result.
fn read_nodes(expr: &Expr) -> Vec<bool> {
    let mut read = vec![false; expr.nodes.len()];
    if let Some(last) = read.last_mut() {
        *last = true;
    }
    for (index, node) in expr.nodes.iter().enumerate().rev() {
        if read[index] {
            node.differentiable_operands().for_each(|operand| read[operand] = true);
        }
    }
    read
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
        let low = |(sums, leaf): (&Option<LeafSums<'_>>, &&[T])| {
            sums.as_ref().map_or(0, |sums| sums.read_by(elements.clone(), leaf.len()).start)
        };
        let lows: Vec<usize> = plan.sums.iter().zip(leaves).map(low).collect();
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
                lows: &lows,
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
