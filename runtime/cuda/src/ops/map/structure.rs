//! The structure of an elementwise expression, which determines the source of its kernel.

use crate::ops::strided::StridedBlock;
use meshwright_backend::{DType, Expr, Node, UpdateExpr, UpdateNode};

/// The structure of an expression and of its gradients, without sizes, addresses and constants: the key of the cache of
/// kernels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Structure(Vec<[u32; 3]>);

/// Form of the required gradient of a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestedGradient {
    /// Not required, or the result does not depend on the leaf.
    No,
    /// Element by element.
    Each,
    /// Summed over rows.
    RowSum,
}

impl Structure {
    /// Returns the structure of the kernel that evaluates `expr` over `leaves` leaves.
    pub(super) fn forward(expr: &Expr, dtype: DType, leaves: usize) -> Structure {
        Structure::new(0, expr, dtype, leaves)
    }

    /// Returns the structure of the kernel that computes the required gradients of leaves.
    pub(super) fn backward(
        expr: &Expr,
        dtype: DType,
        requested: &[RequestedGradient],
    ) -> Structure {
        let mut structure = Structure::new(1, expr, dtype, requested.len());
        structure.0.extend(requested.iter().map(|requested| [*requested as u32, 0, 0]));
        structure
    }

    /// The kernel of an optimizer update.
    pub(super) fn of_update(expr: &UpdateExpr, gradient: DType, copy: Option<DType>) -> Structure {
        let copy = copy.map_or(u32::MAX, |dtype| dtype as u32);
        let mut words = vec![[2, gradient as u32, copy], [expr.states.len() as u32, 0, 0]];
        for node in &expr.nodes {
            words.push(update_word(node));
            if let UpdateNode::Call(function, ..) = node {
                words.push([function.cuda.len() as u32, 0, 0]);
                words.extend(function.cuda.bytes().map(|byte| [u32::from(byte), 0, 0]));
            }
        }
        words.extend(expr.states.iter().chain([&expr.param]).map(|node| [*node as u32, 0, 0]));
        Structure(words)
    }

    fn new(direction: u32, expr: &Expr, dtype: DType, leaves: usize) -> Structure {
        let mut words = Vec::with_capacity(1 + expr.nodes.len() + leaves);
        words.push([direction, dtype as u32, leaves as u32]);
        words.extend(expr.nodes.iter().map(node_words));
        Structure(words)
    }
}

fn node_words(node: &Node) -> [u32; 3] {
    let [kind, a, b] = match node {
        Node::Leaf(leaf) => [0, *leaf, 0],
        Node::Row(leaf) => [1, *leaf, 0],
        Node::Add(a, b) => [2, *a, *b],
        Node::Sub(a, b) => [3, *a, *b],
        Node::Mul(a, b) => [4, *a, *b],
        Node::Scale(a, _) => [5, *a, 0],
        Node::Offset(a, _) => [6, *a, 0],
        Node::Apply(function, a) => [7, *a, *function as usize],
        // The kernel iterates over the dims that remain after neighboring dims are merged.
        Node::Dropout(a, dropout) => {
            let StridedBlock { sizes, gaps, .. } = StridedBlock::from_index(&dropout.index);
            [if gaps.is_empty() { 8 } else { 9 }, *a, sizes.len()]
        }
        Node::Div(a, b) => [10, *a, *b],
        Node::Clamp(a, ..) => [11, *a, 0],
        Node::Constant(_) => [12, 0, 0],
    };
    [kind, a, b].map(|word| word as u32)
}

fn update_word(node: &UpdateNode) -> [u32; 3] {
    let [kind, a, b] = match node {
        UpdateNode::Param => [0, 0, 0],
        UpdateNode::Gradient => [1, 0, 0],
        UpdateNode::State(state) => [2, *state, 0],
        UpdateNode::Constant(_) => [3, 0, 0],
        UpdateNode::Neg(x) => [4, *x, 0],
        UpdateNode::Abs(x) => [5, *x, 0],
        UpdateNode::Sign(x) => [6, *x, 0],
        UpdateNode::Sqrt(x) => [7, *x, 0],
        UpdateNode::Add(a, b) => [8, *a, *b],
        UpdateNode::Sub(a, b) => [9, *a, *b],
        UpdateNode::Mul(a, b) => [10, *a, *b],
        UpdateNode::Div(a, b) => [11, *a, *b],
        UpdateNode::Min(a, b) => [12, *a, *b],
        UpdateNode::Max(a, b) => [13, *a, *b],
        UpdateNode::Call(_, a, b) => [14, *a, *b],
    };
    [kind, a, b].map(|word| word as u32)
}
