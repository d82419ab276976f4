//! Elementwise expressions, each evaluated by one fused kernel.

use super::{BlockIndex, UnaryFunction};

/// An elementwise computation: nodes in topological order; the last one is the result.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// Operands are indices of earlier nodes.
    pub nodes: Vec<Node>,
}

impl Expr {
    /// Returns the sum of two leaves.
    pub fn sum() -> Expr {
        Expr { nodes: vec![Node::Leaf(0), Node::Leaf(1), Node::Add(0, 1)] }
    }
}

/// A node of an [`Expr`].
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// The leaf of this index, as long as the result.
    Leaf(usize),
    /// The leaf of this index, repeated: element `i` of the result reads element `i % len` of the leaf, whose
    /// length divides that of the result. For a bias or gain over the trailing dims.
    Row(usize),
    /// A number, the same for all elements.
    Constant(f32),
    /// Sum of two nodes.
    Add(usize, usize),
    /// Difference of two nodes.
    Sub(usize, usize),
    /// Product of two nodes.
    Mul(usize, usize),
    /// Quotient of two nodes.
    Div(usize, usize),
    /// A node times a constant.
    Scale(usize, f32),
    /// A node plus a constant.
    Offset(usize, f32),
    /// A node limited to the range from the first constant to the second; NaN stays.
    Clamp(usize, f32, f32),
    /// A function of a node.
    Apply(UnaryFunction, usize),
    /// Inverted dropout.
    Dropout(usize, DropoutMask),
}

/// Inverted dropout: an element is zero with probability `rate`, otherwise divided by `1 - rate`.
///
/// The mask of an element depends on `key` and its global index alone, so it is the same for every sharding.
#[derive(Debug, Clone, PartialEq)]
pub struct DropoutMask {
    /// Key of the random stream.
    pub key: u64,
    /// Probability of zero, in `[0, 1]`.
    pub rate: f32,
    /// Position of the result in its global tensor.
    pub index: BlockIndex,
}

impl Node {
    /// Returns the nodes that this node reads.
    pub fn operands(&self) -> impl Iterator<Item = usize> {
        let (first, second) = match *self {
            Node::Leaf(_) | Node::Row(_) | Node::Constant(_) => (None, None),
            Node::Add(a, b) | Node::Sub(a, b) | Node::Mul(a, b) | Node::Div(a, b) => {
                (Some(a), Some(b))
            }
            Node::Scale(a, _)
            | Node::Offset(a, _)
            | Node::Clamp(a, ..)
            | Node::Apply(_, a)
            | Node::Dropout(a, _) => (Some(a), None),
        };
        first.into_iter().chain(second)
    }

    /// Returns true if both compute the same: zeros of different signs are equal, but not the same constants.
    #[doc(hidden)]
    pub fn is_same(&self, other: &Node) -> bool {
        self == other && self.constants().map(f32::to_bits) == other.constants().map(f32::to_bits)
    }

    fn constants(&self) -> [f32; 2] {
        match *self {
            Node::Constant(number) | Node::Scale(_, number) | Node::Offset(_, number) => {
                [number, 0.0]
            }
            Node::Clamp(_, min, max) => [min, max],
            _ => [0.0; 2],
        }
    }

    /// Returns the node with `f` applied to each operand.
    pub fn with_operands(self, f: impl Fn(usize) -> usize) -> Node {
        match self {
            Node::Leaf(leaf) => Node::Leaf(leaf),
            Node::Row(leaf) => Node::Row(leaf),
            Node::Constant(number) => Node::Constant(number),
            Node::Add(a, b) => Node::Add(f(a), f(b)),
            Node::Sub(a, b) => Node::Sub(f(a), f(b)),
            Node::Mul(a, b) => Node::Mul(f(a), f(b)),
            Node::Div(a, b) => Node::Div(f(a), f(b)),
            Node::Scale(x, factor) => Node::Scale(f(x), factor),
            Node::Offset(x, offset) => Node::Offset(f(x), offset),
            Node::Clamp(x, min, max) => Node::Clamp(f(x), min, max),
            Node::Apply(function, x) => Node::Apply(function, f(x)),
            Node::Dropout(x, dropout) => Node::Dropout(f(x), dropout),
        }
    }
}
