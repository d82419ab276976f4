//! A block of elements of an expression, and the evaluation of its nodes.

use super::along::{read_along, read_positions};
use crate::float::{Float, convert};
use crate::math::zip_map;
use crate::random::dropout_mask;
use meshwright_backend::by_function;
use meshwright_backend::unary_function::Elementwise;
use meshwright_backend::{Comparison, Expr, Node};

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
            Node::Along(leaf, strides) => {
                assert_eq!(strides.result_len(), len, "strides of leaf {leaf} fit the result");
                let fits = len == 0 || strides.leaf_len() == leaves[*leaf].len();
                assert!(fits, "strides of leaf {leaf} reach all of its elements");
                let of_leaf = expr.nodes.iter().filter(|other| other.leaf() == Some(*leaf));
                assert!(of_leaf.into_iter().all(|other| other == node), "one form of leaf {leaf}");
            }
            Node::Position(positions) => {
                assert_eq!(positions.result_len(), len, "positions fit the result");
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
            Node::Along(leaf, strides) => read_along(self.leaves[*leaf], strides, self.start, out),
            Node::Position(positions) => read_positions(positions, self.start, out),
            Node::Constant(number) => out.fill(*number),
            Node::Add(a, b) => zip_map([value(*a), value(*b)], out, |[a, b]| a + b),
            Node::Sub(a, b) => zip_map([value(*a), value(*b)], out, |[a, b]| a - b),
            Node::Mul(a, b) => zip_map([value(*a), value(*b)], out, |[a, b]| a * b),
            Node::Div(a, b) => zip_map([value(*a), value(*b)], out, |[a, b]| a / b),
            // Comparisons with NaN are false.
            Node::Max(a, b) => {
                zip_map(
                    [value(*a), value(*b)],
                    out,
                    |[a, b]| {
                        if a > b || a.is_nan() { a } else { b }
                    },
                )
            }
            Node::Min(a, b) => {
                zip_map(
                    [value(*a), value(*b)],
                    out,
                    |[a, b]| {
                        if a < b || a.is_nan() { a } else { b }
                    },
                )
            }
            Node::Compare(comparison, a, b) => compare(*comparison, [value(*a), value(*b)], out),
            Node::Select(mask, a, b) => {
                zip_map(
                    [value(*mask), value(*a), value(*b)],
                    out,
                    |[mask, a, b]| {
                        if mask != 0.0 { a } else { b }
                    },
                );
            }
            Node::Pow(a, exponent) => zip_map([value(*a)], out, |[x]| x.powf(*exponent)),
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

/// Writes 1 for pairs that compare so, and 0 for others.
#[inline(always)]
fn compare(comparison: Comparison, operands: [&[f32]; 2], out: &mut [f32]) {
    let number = |holds: bool| f32::from(u8::from(holds));
    match comparison {
        Comparison::Gt => zip_map(operands, out, |[a, b]| number(a > b)),
        Comparison::Ge => zip_map(operands, out, |[a, b]| number(a >= b)),
        Comparison::Lt => zip_map(operands, out, |[a, b]| number(a < b)),
        Comparison::Le => zip_map(operands, out, |[a, b]| number(a <= b)),
        Comparison::Eq => zip_map(operands, out, |[a, b]| number(a == b)),
        Comparison::Ne => zip_map(operands, out, |[a, b]| number(a != b)),
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
