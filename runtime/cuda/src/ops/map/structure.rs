//! The structure of an elementwise expression, which determines the source of its kernel.

use super::sum_form::SumForm;
use crate::ops::strided::StridedBlock;
use meshwright_backend::{DType, Expr, LeafStrides, Node, UpdateExpr, UpdateNode};

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
    /// Summed over the dims along which the leaf is repeated.
    RepeatedSum,
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

    /// Returns the structure of the kernel that sums the gradients of leaves that are repeated along some dims.
    pub(super) fn repeated_sums(
        expr: &Expr,
        dtype: DType,
        requested: &[RequestedGradient],
        form: SumForm,
    ) -> Structure {
        let mut structure = Structure::backward(expr, dtype, requested);
        structure.0[0][0] = 3;
        let dims = [form.kept, form.repeated].map(|dims| dims as u32);
        structure.0.push([dims[0], dims[1], u32::from(form.in_lanes)]);
        structure
    }

    /// The kernel of an optimizer update, for the dtypes of the gradient and of the states.
    pub(super) fn of_update(
        expr: &UpdateExpr,
        [gradient, state]: [DType; 2],
        copy: Option<DType>,
    ) -> Structure {
        let copy = copy.map_or(u32::MAX, |dtype| dtype as u32);
        let states = [expr.states.len() as u32, state as u32, 0];
        let mut words = vec![[2, gradient as u32, copy], states];
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
        let patterns = expr.stride_patterns();
        words.extend(expr.nodes.iter().map(|node| node_words(node, &patterns)));
        Structure(words)
    }
}

/// Returns the position of the strides of a leaf among the patterns of its expression.
pub(super) fn pattern_of(patterns: &[LeafStrides], strides: &LeafStrides) -> usize {
    let merged = strides.merged();
    patterns.iter().position(|known| *known == merged).expect("all patterns are listed")
}

/// Returns the stride of the innermost dim as kernels are compiled for: 0, 1, or 2 for others.
pub(super) fn inner_stride(pattern: &LeafStrides) -> usize {
    pattern.strides.last().map_or(0, |stride| (*stride).min(2))
}

fn node_words(node: &Node, patterns: &[LeafStrides]) -> [u32; 3] {
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
        // Of this pattern, with as many dims.
        Node::Along(leaf, strides) => {
            let pattern = pattern_of(patterns, strides);
            let (dims, inner) = (patterns[pattern].sizes.len(), inner_stride(&patterns[pattern]));
            [13, *leaf, pattern | dims << 8 | inner << 16]
        }
        Node::Position(_) => [14, 0, 0],
        Node::Max(a, b) => [15, *a, *b],
        Node::Min(a, b) => [16, *a, *b],
        Node::Select(mask, a, b) => [17 | mask << 8, *a, *b],
        Node::Pow(a, _) => [18, *a, 0],
        Node::Compare(comparison, a, b) => [19 + *comparison as usize, *a, *b],
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
