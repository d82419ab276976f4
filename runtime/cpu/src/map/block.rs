//! A block of elements of an expression, and the evaluation of its nodes.

use crate::float::{Float, convert};
use crate::math::zip_map;
use crate::random::dropout_mask;
use meshwright_backend::by_function;
use meshwright_backend::unary_function::Elementwise;
use meshwright_backend::{Expr, Node};

/// Elements per block: 4 KiB per node.
pub(super) const BLOCK: usize = 1024;

/// Checks the lengths of leaves and the order of nodes, on which the kernels rely.
pub(super) fn check_expr<T>(expr: &Expr, leaves: &[&[T]], len: usize) {
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

/// The elements `start..start + len` of an expression; node `i` has its values at `i * BLOCK`.
#[derive(Clone, Copy)]
pub(super) struct ElementBlock<'a, T> {
    pub expr: &'a Expr,
    pub leaves: &'a [&'a [T]],
    pub start: usize,
    pub len: usize,
}

impl<'a, T: Float> ElementBlock<'a, T> {
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
            Node::Constant(number) => out.fill(*number),
            Node::Add(a, b) => zip_map([value(*a), value(*b)], out, |[a, b]| a + b),
            Node::Sub(a, b) => zip_map([value(*a), value(*b)], out, |[a, b]| a - b),
            Node::Mul(a, b) => zip_map([value(*a), value(*b)], out, |[a, b]| a * b),
            Node::Div(a, b) => zip_map([value(*a), value(*b)], out, |[a, b]| a / b),
            Node::Scale(a, factor) => zip_map([value(*a)], out, |[x]| x * factor),
            Node::Offset(a, offset) => zip_map([value(*a)], out, |[x]| x + offset),
            // Comparisons with NaN are false, so it stays.
            Node::Clamp(a, min, max) => zip_map([value(*a)], out, |[x]| {
                let x = if x < *min { *min } else { x };
                if x > *max { *max } else { x }
            }),
            Node::Apply(function, a) => by_function!(*function => F; {
                zip_map([value(*a)], out, |[x]| F::output::<FMA>(x));
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
