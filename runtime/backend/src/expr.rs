//! Elementwise expressions, each evaluated by one fused kernel.

use super::leaf_strides::{LeafPositions, LeafStrides};
use super::{BlockIndex, UnaryFunction};

/// An elementwise computation: nodes in topological order; the last one is the result.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// Operands are indices of earlier nodes.
    pub nodes: Vec<Node>,
}

impl Expr {
    /// Returns true if the gradient of a node that is 0 stays 0 behind every operand, even if a derivative is infinite
    /// or NaN: if a selection may have left an operand out.
    pub fn keeps_zero_gradients(&self) -> bool {
        self.nodes.iter().any(|node| matches!(node, Node::Select(..)))
    }

    /// Returns the strides of the leaves that are read along some dims, each once, with neighboring dims merged.
    pub fn stride_patterns(&self) -> Vec<LeafStrides> {
        let mut patterns = Vec::new();
        for node in &self.nodes {
            if let Node::Along(_, strides) = node {
                let merged = strides.merged();
                if !patterns.contains(&merged) {
                    patterns.push(merged);
                }
            }
        }
        patterns
    }

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
    /// The leaf of this index, repeated along some dims, or with its dims in another order. It occurs in no other form.
    Along(usize, LeafStrides),
    /// The global position along a dim, as a number below 2^24.
    Position(LeafPositions),
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
    /// The larger of two nodes; NaN if one of them is. If they are equal, each has half the gradient.
    Max(usize, usize),
    /// The smaller of two nodes, as [`Max`](Self::Max).
    Min(usize, usize),
    /// 1 if two nodes compare so, else 0; without a gradient.
    Compare(Comparison, usize, usize),
    /// The second node if the first one is not 0, else the third one.
    Select(usize, usize, usize),
    /// A node times a constant.
    Scale(usize, f32),
    /// A node plus a constant.
    Offset(usize, f32),
    /// A node limited to the range from the first constant to the second; NaN stays.
    Clamp(usize, f32, f32),
    /// A node raised to the power of a constant.
    Pow(usize, f32),
    /// A function of a node.
    Apply(UnaryFunction, usize),
    /// Inverted dropout.
    Dropout(usize, DropoutMask),
}

/// Comparison of two numbers. Those with NaN are false, but for [`Ne`](Self::Ne).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// `>`
    Gt,
    /// `>=`
    Ge,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `==`
    Eq,
    /// `!=`
    Ne,
}

impl Comparison {
    /// All comparisons.
    pub const ALL: [Comparison; 6] = [
        Comparison::Gt,
        Comparison::Ge,
        Comparison::Lt,
        Comparison::Le,
        Comparison::Eq,
        Comparison::Ne,
    ];

    /// Returns the operator in C++.
    pub fn operator(self) -> &'static str {
        match self {
            Comparison::Gt => ">",
            Comparison::Ge => ">=",
            Comparison::Lt => "<",
            Comparison::Le => "<=",
            Comparison::Eq => "==",
            Comparison::Ne => "!=",
        }
    }

    /// Returns the name in kernels.
    pub fn name(self) -> &'static str {
        match self {
            Comparison::Gt => "gt",
            Comparison::Ge => "ge",
            Comparison::Lt => "lt",
            Comparison::Le => "le",
            Comparison::Eq => "eq",
            Comparison::Ne => "ne",
        }
    }
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
        let operands = match *self {
            Node::Leaf(_)
            | Node::Row(_)
            | Node::Along(..)
            | Node::Position(_)
            | Node::Constant(_) => [None; 3],
            Node::Add(a, b)
            | Node::Sub(a, b)
            | Node::Mul(a, b)
            | Node::Div(a, b)
            | Node::Max(a, b)
            | Node::Min(a, b)
            | Node::Compare(_, a, b) => [Some(a), Some(b), None],
            Node::Select(mask, a, b) => [Some(mask), Some(a), Some(b)],
            Node::Scale(a, _)
            | Node::Offset(a, _)
            | Node::Clamp(a, ..)
            | Node::Pow(a, _)
            | Node::Apply(_, a)
            | Node::Dropout(a, _) => [Some(a), None, None],
        };
        operands.into_iter().flatten()
    }

    /// Returns the operands to which a gradient flows.
    pub fn differentiable_operands(&self) -> impl Iterator<Item = usize> {
        let blocked = match *self {
            Node::Compare(..) => usize::MAX,
            Node::Select(..) => 1,
            _ => 0,
        };
        self.operands().skip(blocked)
    }

    /// Returns the leaf that this node is.
    pub fn leaf(&self) -> Option<usize> {
        match *self {
            Node::Leaf(leaf) | Node::Row(leaf) | Node::Along(leaf, _) => Some(leaf),
            _ => None,
        }
    }

    /// Returns the node with another leaf, if it is one.
    #[must_use]
    pub fn with_leaf(self, leaf: impl FnOnce(usize) -> usize) -> Node {
        match self {
            Node::Leaf(of) => Node::Leaf(leaf(of)),
            Node::Row(of) => Node::Row(leaf(of)),
            Node::Along(of, strides) => Node::Along(leaf(of), strides),
            node => node,
        }
    }

    /// Returns true if both compute the same: zeros of different signs are equal, but not the same constants.
    #[doc(hidden)]
    pub fn is_same(&self, other: &Node) -> bool {
        self == other && self.constants().map(f32::to_bits) == other.constants().map(f32::to_bits)
    }

    fn constants(&self) -> [f32; 2] {
        match *self {
            Node::Constant(number)
            | Node::Scale(_, number)
            | Node::Offset(_, number)
            | Node::Pow(_, number) => [number, 0.0],
            Node::Clamp(_, min, max) => [min, max],
            _ => [0.0; 2],
        }
    }

    /// Returns the node with `f` applied to each operand.
    pub fn with_operands(self, f: impl Fn(usize) -> usize) -> Node {
        match self {
            Node::Leaf(_)
            | Node::Row(_)
            | Node::Along(..)
            | Node::Position(_)
            | Node::Constant(_) => self,
            Node::Add(a, b) => Node::Add(f(a), f(b)),
            Node::Sub(a, b) => Node::Sub(f(a), f(b)),
            Node::Mul(a, b) => Node::Mul(f(a), f(b)),
            Node::Div(a, b) => Node::Div(f(a), f(b)),
            Node::Max(a, b) => Node::Max(f(a), f(b)),
            Node::Min(a, b) => Node::Min(f(a), f(b)),
            Node::Compare(comparison, a, b) => Node::Compare(comparison, f(a), f(b)),
            Node::Select(mask, a, b) => Node::Select(f(mask), f(a), f(b)),
            Node::Scale(x, factor) => Node::Scale(f(x), factor),
            Node::Offset(x, offset) => Node::Offset(f(x), offset),
            Node::Clamp(x, min, max) => Node::Clamp(f(x), min, max),
            Node::Pow(x, exponent) => Node::Pow(f(x), exponent),
            Node::Apply(function, x) => Node::Apply(function, f(x)),
            Node::Dropout(x, dropout) => Node::Dropout(f(x), dropout),
        }
    }
}
