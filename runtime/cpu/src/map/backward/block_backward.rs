//! Reverse-mode differentiation of one block.

use super::targets::LeafTargets;
use super::{BackwardPlan, LeafSums};
use crate::float::Float;
use crate::map::along::sum_along;
use crate::map::block::{BLOCK, ElementBlock};
use crate::math::{zip_add, zip_map};
use crate::random::dropout_mask;
use meshwright_backend::Node;
use meshwright_backend::by_function;
use meshwright_backend::unary_function::{DerivativeOf, Elementwise};

/// The backward pass of one block.
pub(super) struct BlockBackward<'w, 't, T> {
    pub(super) plan: &'w BackwardPlan<'w>,
    pub(super) values: &'w [f32],
    pub(super) grads: &'w mut [f32],
    pub(super) targets: &'w mut LeafTargets<'t, T>,
    /// Blocks of the gradients of leaves that are not f32.
    pub(super) leaf_grads: &'w mut [f32],
    /// Start of the block inside the targets.
    pub(super) at: usize,
    /// Per leaf that is read along some dims: its first element that the range of blocks reads.
    pub(super) lows: &'w [usize],
    pub(super) leaf_written: &'w mut [bool],
    pub(super) node_written: &'w mut [bool],
    pub(super) block: ElementBlock<'w, T>,
}

impl<T: Float> BlockBackward<'_, '_, T> {
    #[inline(always)]
    pub(super) fn backward<const FMA: bool>(&mut self, grad: &[f32], row_sums: &mut [f32]) {
        let plan = self.plan;
        let last = plan.expr.nodes.len() - 1;
        match plan.expr.nodes[last] {
            Node::Leaf(leaf) if plan.direct[leaf] => return self.send(last, [grad], |[g]| g),
            ref node if node.leaf().is_some() => return self.sum_leaf(node, grad, row_sums),
            _ => {}
        }
        self.through::<FMA>(last, grad);
        for node in (0..last).rev() {
            if !self.node_written[node] {
                continue;
            }
            // Operands come earlier, so the gradient of this node is final.
            let (earlier, this) = std::mem::take(&mut self.grads).split_at_mut(node * BLOCK);
            self.grads = earlier;
            let grad = &this[..self.block.len];
            match &plan.expr.nodes[node] {
                leaf if leaf.leaf().is_some() => self.sum_leaf(leaf, grad, row_sums),
                _ => self.through::<FMA>(node, grad),
            }
        }
    }

    /// Backpropagates the gradient of `node` to its operands.
    #[inline(always)]
    fn through<const FMA: bool>(&mut self, node: usize, grad: &[f32]) {
        let values = self.values;
        let block = self.block;
        let value = |node| block.value(node, values);
        match &block.expr.nodes[node] {
            Node::Leaf(_)
            | Node::Row(_)
            | Node::Along(..)
            | Node::Position(_)
            | Node::Constant(_)
            | Node::Compare(..) => {}
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
            Node::Div(a, b) => {
                let quotient = &values[node * BLOCK..][..block.len];
                self.send(*a, [grad, value(*b)], |[g, y]| g / y);
                self.send(*b, [grad, quotient, value(*b)], |[g, q, y]| -(g * (q / y)));
            }
            // Half of the gradient each if both are equal.
            Node::Max(a, b) => {
                let operands = [grad, value(*a), value(*b)];
                self.send(*a, operands, |[g, a, b]| share_of_larger(g, a, b));
                self.send(*b, operands, |[g, a, b]| share_of_larger(g, b, a));
            }
            Node::Min(a, b) => {
                let operands = [grad, value(*a), value(*b)];
                self.send(*a, operands, |[g, a, b]| share_of_smaller(g, a, b));
                self.send(*b, operands, |[g, a, b]| share_of_smaller(g, b, a));
            }
            Node::Select(mask, a, b) => {
                let operands = [grad, value(*mask)];
                self.send(*a, operands, |[g, mask]| if mask != 0.0 { g } else { 0.0 });
                self.send(*b, operands, |[g, mask]| if mask != 0.0 { 0.0 } else { g });
            }
            Node::Pow(a, exponent) => self.send(*a, [grad, value(*a)], |[g, x]| {
                if *exponent == 0.0 { 0.0 } else { g * (exponent * x.powf(exponent - 1.0)) }
            }),
            Node::Scale(a, factor) => self.send(*a, [grad], |[g]| g * factor),
            Node::Offset(a, _) => self.send(*a, [grad], |[g]| g),
            Node::Clamp(a, min, max) => self
                .send(*a, [grad, value(*a)], |[g, x]| if x < *min || x > *max { 0.0 } else { g }),
            Node::Apply(function, a) => by_function!(*function => F; {
                let operand = match F::DERIVATIVE_OF {
                    DerivativeOf::Input => value(*a),
                    DerivativeOf::Output => &values[node * BLOCK..][..block.len],
                };
                self.send(*a, [grad, operand], |[g, x]| F::input_gradient::<FMA>(g, x));
            }),
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
            Node::Leaf(leaf) if self.plan.direct[leaf] => {
                let block = self.targets.block(leaf, self.at, len, self.leaf_grads);
                let Some(target) = block else { return };
                (target, &mut self.leaf_written[leaf])
            }
            _ => (&mut self.grads[node * BLOCK..][..len], &mut self.node_written[node]),
        };
        let keeps_zeros = self.plan.keeps_zeros;
        if *written && !keeps_zeros {
            zip_add(x, target, contribution);
        } else {
            let before = if *written { target.to_vec() } else { Vec::new() };
            zip_map(x, &mut *target, contribution);
            if keeps_zeros {
                add_behind_selection(x[0], &before, target);
            }
        }
        *written = true;
    }

    /// Adds a gradient to the sums of a leaf that is repeated.
    #[inline(always)]
    fn sum_leaf(&mut self, node: &Node, grad: &[f32], row_sums: &mut [f32]) {
        let (Some(leaf), start) = (node.leaf(), self.block.start) else { return };
        let Some(LeafSums { first, width, .. }) = self.plan.sums[leaf] else { return };
        let sums = &mut row_sums[first..][..width];
        match node {
            Node::Along(_, strides) => sum_along(strides, start, grad, self.lows[leaf], sums),
            _ => sum_row(start, grad, sums),
        }
    }
}

/// Adds a gradient to the column sums of a row leaf.
#[inline(always)]
fn sum_row(start: usize, grad: &[f32], sums: &mut [f32]) {
    let mut column = start % sums.len();
    let mut rest = grad;
    while !rest.is_empty() {
        let run = rest.len().min(sums.len() - column);
        for (sum, grad) in sums[column..column + run].iter_mut().zip(rest) {
            *sum += grad;
        }
        (column, rest) = (0, &rest[run..]);
    }
}

/// Returns the gradient of `x` in the maximum of `x` and `y`.
#[inline(always)]
fn share_of_larger(g: f32, x: f32, y: f32) -> f32 {
    let share = if x == y { 0.5 * g } else { g };
    if x < y { 0.0 } else { share }
}

/// Returns the gradient of `x` in the minimum of `x` and `y`.
#[inline(always)]
fn share_of_smaller(g: f32, x: f32, y: f32) -> f32 {
    let share = if x == y { 0.5 * g } else { g };
    if x > y { 0.0 } else { share }
}

/// Adds contributions to the numbers before, or to none: zeros if their gradient is 0, whatever the derivative.
fn add_behind_selection(gradient: &[f32], before: &[f32], sum: &mut [f32]) {
    for (at, (sum, gradient)) in sum.iter_mut().zip(gradient).enumerate() {
        let contribution = if *gradient == 0.0 { 0.0 } else { *sum };
        *sum = before.get(at).map_or(contribution, |before| before + contribution);
    }
}
