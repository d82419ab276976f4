//! Gradients of element-wise expressions: each block is evaluated again and walked backwards while in cache.

mod walk;

use super::map::{BLOCK, Block, check};
use super::norm::add_rows;
use super::scratch::with_scratch;
use super::simd::dispatch;
use super::workers::{Rows, Split, Workers};
use crate::backend::{Expr, LeafGrad, Node};
use walk::Walk;

/// Blocks per partial sum of the gradient of a row leaf.
const CHUNK_BLOCKS: usize = 64;

pub(super) fn map_backward(
    workers: &Workers,
    expr: &Expr,
    leaves: &[&[f32]],
    grad: &[f32],
    leaf_grads: &mut [Option<LeafGrad>],
) {
    check(expr, leaves, grad.len());
    assert_eq!(leaves.len(), leaf_grads.len(), "one gradient slot per leaf");
    let plan = Plan::new(expr, leaves, leaf_grads);
    for (leaf, slot) in leaf_grads.iter_mut().enumerate() {
        let Some(slot) = slot else { continue };
        assert_eq!(slot.view.len(), leaves[leaf].len(), "gradient of leaf {leaf} fits");
        // Nothing else writes these: their sums are added at the end, or they do not occur.
        if !plan.direct[leaf] && !slot.accumulate {
            slot.view.typed::<f32>().fill(0.0);
        }
    }

    let blocks = grad.len().div_ceil(BLOCK);
    let scratch = 2 * expr.nodes.len() * BLOCK;
    if plan.row_total == 0 {
        let targets = Targets::new(&plan, leaf_grads);
        workers.rows(blocks, BLOCK * expr.nodes.len(), targets, |range, mut targets| {
            with_scratch(scratch, |scratch| {
                let first = range.start * BLOCK;
                let last = grad.len().min(range.end * BLOCK);
                range_backward(&plan, leaves, grad, first, last, scratch, &mut targets, &mut []);
            });
        });
        return;
    }
    // Chunks large enough that the partial sums stay a small part of the operand.
    let chunk = CHUNK_BLOCKS.max((16 * plan.row_total).div_ceil(BLOCK));
    let chunks = blocks.div_ceil(chunk);
    with_scratch(chunks * plan.row_total, |partial| {
        partial.fill(0.0);
        let targets = ChunkTargets(Targets::new(&plan, leaf_grads), chunk);
        let outputs = (targets, Rows(&mut *partial, plan.row_total));
        workers.chunks(chunks, 1, outputs, |range, (mut targets, sums)| {
            with_scratch(scratch, |scratch| {
                let first = range.start * chunk * BLOCK;
                let last = grad.len().min(first + chunk * BLOCK);
                range_backward(&plan, leaves, grad, first, last, scratch, &mut targets.0, sums.0);
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

/// What is the same for every block.
struct Plan<'a> {
    expr: &'a Expr,
    /// Whether a gradient must reach this node.
    needed: Vec<bool>,
    /// Per leaf: its gradient is written block by block.
    direct: Vec<bool>,
    /// Per leaf: where it is written directly, whether to add to what is there.
    accumulate: Vec<bool>,
    /// Per leaf: the start of its sums in a row of partial sums, if it is used as a row.
    row_starts: Vec<Option<usize>>,
    /// Length of a row of partial sums.
    row_total: usize,
}

impl<'a> Plan<'a> {
    fn new(expr: &'a Expr, leaves: &[&[f32]], leaf_grads: &[Option<LeafGrad>]) -> Plan<'a> {
        let mut plan = Plan {
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
        for node in &expr.nodes {
            let needed = match *node {
                Node::Leaf(leaf) | Node::Row(leaf) => leaf_grads[leaf].is_some(),
                _ => node.operands().any(|operand| plan.needed[operand]),
            };
            plan.needed.push(needed);
            match *node {
                Node::Leaf(leaf) if needed => plan.direct[leaf] = true,
                Node::Row(leaf) if needed && plan.row_starts[leaf].is_none() => {
                    plan.row_starts[leaf] = Some(plan.row_total);
                    plan.row_total += leaves[leaf].len();
                }
                _ => {}
            }
        }
        plan
    }
}

/// Gradients of leaves that are written in place, cut in blocks.
struct Targets<'a>(Vec<Option<&'a mut [f32]>>);

impl<'a> Targets<'a> {
    fn new(plan: &Plan, leaf_grads: &'a mut [Option<LeafGrad>]) -> Targets<'a> {
        let targets = leaf_grads.iter_mut().zip(&plan.direct).map(|(slot, direct)| match slot {
            Some(slot) if *direct => Some(slot.view.typed::<f32>()),
            _ => None,
        });
        Targets(targets.collect())
    }
}

impl Split for Targets<'_> {
    fn split_rows(self, blocks: usize) -> (Self, Self) {
        let halves = self.0.into_iter().map(|target| match target {
            None => (None, None),
            Some(target) => {
                let (head, rest) = target.split_at_mut((blocks * BLOCK).min(target.len()));
                (Some(head), Some(rest))
            }
        });
        let (head, rest) = halves.unzip();
        (Targets(head), Targets(rest))
    }
}

/// [`Targets`] cut in chunks of a number of blocks.
struct ChunkTargets<'a>(Targets<'a>, usize);

impl Split for ChunkTargets<'_> {
    fn split_rows(self, chunks: usize) -> (Self, Self) {
        let (head, rest) = self.0.split_rows(chunks * self.1);
        (ChunkTargets(head, self.1), ChunkTargets(rest, self.1))
    }
}

dispatch! {
    /// Elements `first..last`; `targets` and `row_sums` belong to this range.
    fn range_backward<const FMA: bool>(
        plan: &Plan,
        leaves: &[&[f32]],
        grad: &[f32],
        first: usize,
        last: usize,
        scratch: &mut [f32],
        targets: &mut Targets,
        row_sums: &mut [f32],
    ) {
        let nodes = plan.expr.nodes.len();
        let (values, grads) = scratch.split_at_mut(nodes * BLOCK);
        // The result itself is needed only where its gradient is written in terms of it.
        let of_result = matches!(plan.expr.nodes[nodes - 1], Node::Tanh(_) | Node::Exp(_));
        let evaluated = if of_result { nodes } else { nodes - 1 };
        let mut leaf_written = vec![false; leaves.len()];
        let mut node_written = vec![false; nodes];
        let mut start = first;
        while start < last {
            let len = BLOCK.min(last - start);
            let block = Block { expr: plan.expr, leaves, start, len };
            for node in 0..evaluated {
                let (earlier, this) = values.split_at_mut(node * BLOCK);
                block.evaluate::<FMA>(node, earlier, &mut this[..len]);
            }
            leaf_written.copy_from_slice(&plan.accumulate);
            node_written.fill(false);
            let mut walk = Walk {
                plan,
                values,
                grads: &mut *grads,
                targets: &mut *targets,
                at: start - first,
                leaf_written: &mut leaf_written,
                node_written: &mut node_written,
                block,
            };
            walk.backward::<FMA>(&grad[start..start + len], row_sums);
            start += len;
        }
    }
}
