//! The structure of an elementwise expression, which determines the source of its kernel.

use super::source::Wanted;
use crate::backend::cuda::ops::strided::StridedBlock;
use crate::backend::{DType, Expr, Node};

/// The structure of an expression and of its gradients, without sizes, addresses and constants: the key of the cache of
/// kernels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Structure(Vec<[u32; 3]>);

impl Structure {
    /// Returns the structure of the kernel that evaluates `expr` over `leaves` leaves.
    pub(super) fn forward(expr: &Expr, dtype: DType, leaves: usize) -> Structure {
        Structure::new(0, expr, dtype, leaves)
    }

    /// Returns the structure of the kernel that computes the wanted gradients of leaves.
    pub(super) fn backward(expr: &Expr, dtype: DType, wanted: &[Wanted]) -> Structure {
        let mut structure = Structure::new(1, expr, dtype, wanted.len());
        structure.0.extend(wanted.iter().map(|wanted| [*wanted as u32, 0, 0]));
        structure
    }

    fn new(direction: u32, expr: &Expr, dtype: DType, leaves: usize) -> Structure {
        let mut words = Vec::with_capacity(1 + expr.nodes.len() + leaves);
        words.push([direction, dtype as u32, leaves as u32]);
        words.extend(expr.nodes.iter().map(word));
        Structure(words)
    }
}

fn word(node: &Node) -> [u32; 3] {
    let [kind, a, b] = match node {
        Node::Leaf(leaf) => [0, *leaf, 0],
        Node::Row(leaf) => [1, *leaf, 0],
        Node::Add(a, b) => [2, *a, *b],
        Node::Sub(a, b) => [3, *a, *b],
        Node::Mul(a, b) => [4, *a, *b],
        Node::Scale(a, _) => [5, *a, 0],
        Node::Silu(a) => [6, *a, 0],
        Node::Gelu(a) => [7, *a, 0],
        Node::GeluTanh(a) => [8, *a, 0],
        Node::Relu(a) => [9, *a, 0],
        Node::Tanh(a) => [10, *a, 0],
        Node::Exp(a) => [11, *a, 0],
        Node::Offset(a, _) => [13, *a, 0],
        // The kernel iterates over the dims that remain after neighboring dims are merged.
        Node::Dropout(a, dropout) => [12, *a, StridedBlock::of(&dropout.index).sizes.len()],
    };
    [kind, a, b].map(|word| word as u32)
}
