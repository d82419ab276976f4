//! Expressions that are tested.

use meshwright_backend::{BlockIndex, Comparison, Node, UnaryFunction};

use super::dropout::mask_of;
use Node::*;
use UnaryFunction::*;

/// An expression, the lengths of its leaves, and which of them have a gradient.
#[derive(Clone)]
pub struct Case {
    pub nodes: Vec<Node>,
    pub leaves: Vec<usize>,
    pub wanted: Vec<bool>,
    /// Factor of the tolerance: more where functions are composed.
    pub tolerance: f64,
}

impl Case {
    pub fn new(nodes: Vec<Node>, leaves: &[usize]) -> Case {
        let wanted = vec![true; leaves.len()];
        Case { nodes, leaves: leaves.to_vec(), wanted, tolerance: 1.0 }
    }
}

/// Returns expressions that have many nodes, as each is compiled for a GPU, over operands of `rows` rows of `cols`.
pub fn composite(rows: usize, cols: usize) -> Vec<Case> {
    let n = rows * cols;
    let functions = vec![
        Leaf(0),
        Apply(Silu, 0),
        Apply(Gelu, 0),
        Apply(GeluTanh, 0),
        Apply(Relu, 0),
        Apply(Tanh, 0),
        Scale(0, -0.7),
        Offset(0, 0.4),
        Apply(Exp, 6),
        Row(1),
        Mul(1, 8),
        Mul(2, 9),
        Sub(10, 3),
        Add(11, 4),
        Mul(12, 5),
        Sub(13, 7),
    ];
    // Of numbers from 0.5 on, where a function needs positive ones.
    let more = vec![
        Leaf(0),
        Apply(Square, 0),
        Offset(1, 0.5),
        Apply(Log, 2),
        Apply(Sqrt, 2),
        Apply(Rsqrt, 2),
        Apply(Recip, 2),
        Apply(Abs, 0),
        Apply(Sigmoid, 0),
        Apply(Softplus, 8),
        Clamp(7, 0.25, 1.5),
        Mul(3, 4),
        Div(11, 2),
        Mul(5, 6),
        Add(12, 13),
        Mul(9, 10),
        Sub(14, 15),
    ];
    let compared = vec![
        Leaf(0),
        Row(1),
        Max(0, 1),
        Min(2, 1),
        Compare(Comparison::Ge, 0, 1),
        Apply(Sin, 0),
        Apply(Cos, 2),
        Select(4, 5, 6),
        Mul(7, 3),
        Apply(Square, 0),
        Offset(9, 0.5),
        Pow(10, 1.5),
        Sub(8, 11),
    ];
    let by_number = vec![
        Leaf(0),
        Constant(0.75),
        Div(0, 1),
        Row(1),
        Apply(Square, 3),
        Offset(4, 0.5),
        Constant(-1.5),
        Div(6, 5),
        Mul(2, 7),
    ];
    let by_row =
        vec![Leaf(0), Row(1), Apply(Square, 1), Offset(2, 0.5), Div(0, 3), Row(1), Mul(4, 5)];
    let gelu_of_sum = vec![Leaf(0), Row(1), Add(0, 1), Apply(Gelu, 2), Row(1), Mul(3, 4)];
    let dropout = Dropout(2, mask_of(0.3, BlockIndex::whole(&[rows, cols])));
    vec![
        Case::new(vec![Leaf(0)], &[n]),
        Case { tolerance: 4.0, ..Case::new(more, &[n]) },
        Case { tolerance: 4.0, ..Case::new(compared, &[n, cols]) },
        Case::new(by_row, &[n, cols]),
        Case::new(by_number, &[n, cols]),
        Case::new(vec![Row(0), Leaf(1), Mul(0, 1), Mul(2, 0)], &[cols, n]),
        Case { tolerance: 4.0, ..Case::new(functions, &[n, cols]) },
        Case { tolerance: 4.0, ..Case::new(gelu_of_sum, &[n, cols]) },
        // The gradient of a bias alone: the sums of the columns of the result's.
        Case {
            wanted: vec![false, true],
            ..Case::new(vec![Leaf(0), Row(1), Add(0, 1)], &[n, 2 * cols])
        },
        // SwiGLU, with the gradient of one operand only.
        Case {
            wanted: vec![true, false],
            ..Case::new(vec![Leaf(0), Apply(Silu, 0), Leaf(1), Mul(1, 2)], &[n, n])
        },
        // One leaf used repeatedly; one value used repeatedly.
        Case::new(vec![Leaf(0), Apply(Tanh, 0), Mul(1, 1), Leaf(0), Mul(2, 3), Sub(1, 4)], &[n]),
        // Rows of different lengths, one of them a whole operand.
        Case::new(
            vec![Leaf(0), Row(1), Mul(0, 1), Row(2), Add(2, 3), Row(3), Mul(4, 5)],
            &[n, cols, 2 * cols, n.max(1)],
        ),
        Case::new(vec![Leaf(0), Row(1), Add(0, 1), dropout, Leaf(2), Add(3, 4)], &[n, cols, n]),
    ]
}

/// Returns expressions with one or few functions each.
pub fn simple(rows: usize, cols: usize) -> Vec<Case> {
    let n = rows * cols;
    let positive = |function| vec![Leaf(0), Apply(Square, 0), Offset(1, 0.5), Apply(function, 2)];
    let of_leaf = [Silu, Gelu, GeluTanh, Relu, Tanh, Exp, Sigmoid, Softplus, Square, Abs, Sin, Cos]
        .map(|function| vec![Leaf(0), Apply(function, 0)]);
    let others = [
        vec![Leaf(0), Leaf(1), Add(0, 1)],
        vec![Leaf(0), Leaf(1), Sub(0, 1)],
        vec![Leaf(0), Leaf(1), Mul(0, 1)],
        vec![Leaf(0), Scale(0, -1.5)],
        vec![Leaf(0), Offset(0, 0.75), Mul(0, 1)],
        vec![Leaf(0), Clamp(0, -1.25, 0.5)],
        vec![Leaf(0), Leaf(1), Apply(Square, 1), Offset(2, 0.5), Div(0, 3)],
        // A row as the divisor, which also reads the quotient.
        vec![Leaf(0), Row(2), Apply(Square, 1), Offset(2, 0.5), Div(0, 3), Div(4, 3)],
        // A number as the dividend, and as the divisor.
        vec![Leaf(0), Apply(Square, 0), Offset(1, 0.5), Constant(-0.75), Div(3, 2)],
        vec![Constant(0.75), Row(2), Div(1, 0), Leaf(0), Mul(2, 3)],
        vec![Row(2)],
        vec![Leaf(0), Leaf(0), Mul(0, 1), Leaf(0), Sub(2, 3)],
        vec![Leaf(0), Apply(Tanh, 0), Mul(1, 1), Leaf(1), Mul(2, 3), Add(1, 4)],
        // The result does not depend on the first nodes.
        vec![Leaf(1), Row(2), Mul(0, 1), Leaf(0), Scale(3, 0.5)],
    ];
    let of_positive = [Log, Sqrt, Rsqrt, Recip].map(positive);
    of_leaf
        .into_iter()
        .chain(of_positive)
        .chain(others)
        .map(|nodes| Case::new(nodes, &[n, n, cols]))
        .collect()
}
