//! Gradients of element-wise expressions: each block is evaluated again and walked backwards while in cache.

use std::f32::consts::FRAC_1_SQRT_2;

use super::map::{BLOCK, Block, SQRT_2_OVER_PI, check, gelu_inner};
use super::math::{self, fma, zip_add, zip_map};
use super::norm::add_rows;
use super::random::dropout_mask;
use super::scratch::with_scratch;
use super::simd::dispatch;
use super::workers::{Rows, Split, Workers};
use crate::backend::{Expr, LeafGrad, Node};

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

/// Reverse mode inside one block.
struct Walk<'w, 't> {
    plan: &'w Plan<'w>,
    values: &'w [f32],
    grads: &'w mut [f32],
    targets: &'w mut Targets<'t>,
    /// Start of the block inside the targets.
    at: usize,
    leaf_written: &'w mut [bool],
    node_written: &'w mut [bool],
    block: Block<'w>,
}

impl Walk<'_, '_> {
    #[inline(always)]
    fn backward<const FMA: bool>(&mut self, grad: &[f32], row_sums: &mut [f32]) {
        let plan = self.plan;
        let last = plan.expr.nodes.len() - 1;
        if let Node::Leaf(_) = plan.expr.nodes[last] {
            self.send(last, [grad], |[g]| g);
            return;
        }
        if let Node::Row(leaf) = plan.expr.nodes[last] {
            self.sum_row(leaf, grad, row_sums);
            return;
        }
        self.through::<FMA>(last, grad);
        for node in (0..last).rev() {
            if !self.node_written[node] {
                continue;
            }
            // Operands come earlier, so this node's gradient is final; it is moved out of the way of the writes.
            let (earlier, this) = std::mem::take(&mut self.grads).split_at_mut(node * BLOCK);
            self.grads = earlier;
            let grad = &this[..self.block.len];
            match plan.expr.nodes[node] {
                Node::Row(leaf) => self.sum_row(leaf, grad, row_sums),
                _ => self.through::<FMA>(node, grad),
            }
        }
    }

    /// Passes the gradient of `node` on to its operands.
    #[inline(always)]
    fn through<const FMA: bool>(&mut self, node: usize, grad: &[f32]) {
        let values = self.values;
        let block = self.block;
        let value = |node| block.value(node, values);
        let own = &values[node * BLOCK..][..block.len];
        match &block.expr.nodes[node] {
            Node::Leaf(_) | Node::Row(_) => {}
            Node::Add(a, b) => {
                self.send(*a, [grad], |[g]| g);
                self.send(*b, [grad], |[g]| g);
            }
            Node::Sub(a, b) => {
                self.send(*a, [grad], |[g]| g);
                self.send(*b, [grad], |[g]| -g);
            }
            Node::Mul(a, b) => {
                self.send(*a, [grad, value(*b)], |[g, y]| g * y);
                self.send(*b, [grad, value(*a)], |[g, x]| g * x);
            }
            Node::Scale(a, factor) => self.send(*a, [grad], |[g]| g * factor),
            Node::Silu(a) => self.send(*a, [grad, value(*a)], |[g, x]| {
                let s = math::sigmoid::<FMA>(x);
                g * s * fma::<FMA>(x, 1.0 - s, 1.0)
            }),
            Node::Gelu(a) => self.send(*a, [grad, value(*a)], |[g, x]| {
                const FRAC_1_SQRT_2PI: f32 = 0.398_942_3;
                let cdf = 0.5 * (1.0 + math::erf::<FMA>(x * FRAC_1_SQRT_2));
                let pdf = FRAC_1_SQRT_2PI * math::exp::<FMA>(-0.5 * x * x);
                g * fma::<FMA>(x, pdf, cdf)
            }),
            Node::GeluTanh(a) => self.send(*a, [grad, value(*a)], |[g, x]| {
                let t = math::tanh::<FMA>(gelu_inner::<FMA>(x));
                let slope = SQRT_2_OVER_PI * fma::<FMA>(3.0 * 0.044_715 * x, x, 1.0);
                g * 0.5 * (1.0 + t + x * (1.0 - t * t) * slope)
            }),
            Node::Relu(a) => {
                self.send(*a, [grad, value(*a)], |[g, x]| if x <= 0.0 { 0.0 } else { g });
            }
            Node::Tanh(a) => self.send(*a, [grad, own], |[g, y]| g * (1.0 - y * y)),
            Node::Exp(a) => self.send(*a, [grad, own], |[g, y]| g * y),
            Node::Dropout(a, dropout) => {
                let mut mask = [0f32; BLOCK];
                dropout_mask(dropout, block.start, &mut mask[..block.len]);
                self.send(*a, [grad, &mask], |[g, mask]| g * mask);
            }
        }
    }

    /// Writes or adds a contribution to the gradient of `node`.
    #[inline(always)]
    fn send<const N: usize>(
        &mut self,
        node: usize,
        x: [&[f32]; N],
        contribution: impl Fn([f32; N]) -> f32,
    ) {
        if !self.plan.needed[node] {
            return;
        }
        let len = self.block.len;
        let (target, written) = match self.plan.expr.nodes[node] {
            Node::Leaf(leaf) => {
                let Some(target) = &mut self.targets.0[leaf] else { return };
                (&mut target[self.at..][..len], &mut self.leaf_written[leaf])
            }
            _ => (&mut self.grads[node * BLOCK..][..len], &mut self.node_written[node]),
        };
        if *written {
            zip_add(x, target, contribution);
        } else {
            zip_map(x, target, contribution);
        }
        *written = true;
    }

    /// Adds a gradient to the column sums of a row leaf.
    #[inline(always)]
    fn sum_row(&mut self, leaf: usize, grad: &[f32], row_sums: &mut [f32]) {
        let Some(first) = self.plan.row_starts[leaf] else { return };
        let sums = &mut row_sums[first..][..self.block.leaves[leaf].len()];
        let mut column = self.block.start % sums.len();
        let mut rest = grad;
        while !rest.is_empty() {
            let run = rest.len().min(sums.len() - column);
            for (sum, grad) in sums[column..column + run].iter_mut().zip(rest) {
                *sum += grad;
            }
            (column, rest) = (0, &rest[run..]);
        }
    }
}
