//! Fused elementwise expressions: a block of elements goes through every node while it is in the L1 cache.

use super::CpuBackend;
use super::float::{Float, by_float, convert, store, workplace};
use super::map_backward::map_backward;
use super::math::zip_map;
use super::random::dropout_mask;
use super::scratch::with_scratch;
use super::simd::dispatch;
use super::workers::{Rows, Workers};
use crate::backend::unary_function::{Elementwise, by_function};
use crate::backend::{ElementwiseOps, Expr, LeafGrad, Node, View, ViewMut};

/// Elements per block: 4 KiB per node.
pub(super) const BLOCK: usize = 1024;

impl ElementwiseOps for CpuBackend {
    fn map(&self, expr: &Expr, leaves: &[View], mut out: ViewMut) {
        by_float!(out.dtype() => T; map::<T>(&self.workers, expr, &typed(leaves), out.typed()));
    }

    fn map_backward(
        &self,
        expr: &Expr,
        leaves: &[View],
        grad: View,
        leaf_grads: &mut [Option<LeafGrad>],
    ) {
        let workers = &self.workers;
        by_float!(grad.dtype() => T;
            map_backward::<T>(workers, expr, &typed(leaves), grad.typed(), leaf_grads));
    }
}

fn typed<'a, T: Float>(leaves: &[View<'a>]) -> Vec<&'a [T]> {
    leaves.iter().map(View::typed::<T>).collect()
}

fn map<T: Float>(workers: &Workers, expr: &Expr, leaves: &[&[T]], out: &mut [T]) {
    check(expr, leaves, out.len());
    let blocks = out.len().div_ceil(BLOCK);
    workers.rows(blocks, BLOCK * expr.nodes.len(), Rows(out, BLOCK), |range, out| {
        with_scratch(expr.nodes.len() * BLOCK, |values| {
            map_range(expr, leaves, range.start * BLOCK, values, out.0);
        });
    });
}

/// Checks the lengths of leaves and the order of nodes, on which the kernels rely.
pub(super) fn check<T>(expr: &Expr, leaves: &[&[T]], len: usize) {
    assert!(!expr.nodes.is_empty(), "an expression has a result");
    for (index, node) in expr.nodes.iter().enumerate() {
        assert!(node.operands().all(|operand| operand < index), "nodes are in topological order");
        match node {
            Node::Leaf(leaf) => assert_eq!(leaves[*leaf].len(), len, "leaf {leaf} is whole"),
            Node::Row(leaf) => {
                let row = leaves[*leaf].len();
                assert!(row > 0 && len.is_multiple_of(row), "row leaf {leaf} divides the result");
            }
            Node::Dropout(_, dropout) => assert_eq!(dropout.index.len(), len, "dropout index fits"),
            _ => {}
        }
    }
}

dispatch! {
    fn map_range<const FMA: bool, T: Float>(
        expr: &Expr, leaves: &[&[T]], first: usize, values: &mut [f32], out: &mut [T],
    ) {
        let last = expr.nodes.len() - 1;
        for (block, out) in out.chunks_mut(BLOCK).enumerate() {
            let block = Block { expr, leaves, start: first + block * BLOCK, len: out.len() };
            if let Node::Leaf(leaf) = expr.nodes[last] {
                out.copy_from_slice(&leaves[leaf][block.start..][..block.len]);
                continue;
            }
            for node in 0..last {
                let (earlier, this) = values.split_at_mut(node * BLOCK);
                block.evaluate::<FMA>(node, earlier, &mut this[..block.len]);
            }
            let (earlier, this) = values.split_at_mut(last * BLOCK);
            block.evaluate::<FMA>(last, earlier, workplace(&mut *out, &mut *this));
            store(this, out);
        }
    }
}

/// The elements `start..start + len` of an expression; node `i` has its values at `i * BLOCK`.
#[derive(Clone, Copy)]
pub(super) struct Block<'a, T> {
    pub expr: &'a Expr,
    pub leaves: &'a [&'a [T]],
    pub start: usize,
    pub len: usize,
}

impl<'a, T: Float> Block<'a, T> {
    /// Returns the values of an evaluated node; f32 leaves are read in place.
    #[inline(always)]
    pub fn value<'v>(&self, node: usize, values: &'v [f32]) -> &'v [f32]
    where
        'a: 'v,
    {
        match self.expr.nodes[node] {
            Node::Leaf(leaf) if T::IS_F32 => T::in_place(self.leaf(leaf)).unwrap_or_default(),
            _ => &values[node * BLOCK..][..self.len],
        }
    }

    #[inline(always)]
    fn leaf(&self, leaf: usize) -> &'a [T] {
        &self.leaves[leaf][self.start..][..self.len]
    }

    /// Evaluates one node from earlier values. An f32 leaf needs no evaluation.
    #[inline(always)]
    pub fn evaluate<const FMA: bool>(&self, node: usize, values: &[f32], out: &mut [f32]) {
        let value = |node| self.value(node, values);
        match &self.expr.nodes[node] {
            Node::Leaf(_) if T::IS_F32 => {}
            Node::Leaf(leaf) => convert(self.leaf(*leaf), out),
            Node::Row(leaf) => repeat_row(self.leaves[*leaf], self.start, out),
            Node::Add(a, b) => zip_map([value(*a), value(*b)], out, |[a, b]| a + b),
            Node::Sub(a, b) => zip_map([value(*a), value(*b)], out, |[a, b]| a - b),
            Node::Mul(a, b) => zip_map([value(*a), value(*b)], out, |[a, b]| a * b),
            Node::Scale(a, factor) => zip_map([value(*a)], out, |[x]| x * factor),
            Node::Offset(a, offset) => zip_map([value(*a)], out, |[x]| x + offset),
            Node::Apply(function, a) => by_function!(*function => F; {
                zip_map([value(*a)], out, |[x]| F::forward::<FMA>(x));
            }),
            Node::Dropout(a, dropout) => {
                dropout_mask(dropout, self.start, out);
                for (out, x) in out.iter_mut().zip(value(*a)) {
                    *out *= x;
                }
            }
        }
    }
}

/// Fills `out` with the repeated `row`, from element `start` on.
#[inline(always)]
fn repeat_row<T: Float>(row: &[T], start: usize, out: &mut [f32]) {
    let mut column = start % row.len();
    let mut rest = out;
    while !rest.is_empty() {
        let run = rest.len().min(row.len() - column);
        let (head, tail) = rest.split_at_mut(run);
        convert(&row[column..column + run], head);
        (column, rest) = (0, tail);
    }
}
