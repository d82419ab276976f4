//! Elementwise expressions.

mod dropout;
mod expressions;
mod formula;
mod repeated;
mod special;

use meshwright_backend::{DType, Expr, LeafGrad, Node};

use crate::{FLOATS, Operand, Target, scaled, values};
use expressions::{Case, composite, simple};
use formula::gradients;

pub use dropout::{blocks, large_indices, rate};
pub use formula::erf;
pub use repeated::{positions, repeated};
pub use special::{
    clamped_gradients, comparisons, large_numbers, larger_and_smaller, nan, powers, quotients,
    selections, special_values,
};

/// Rows and columns.
const SIZES: [[usize; 2]; 6] = [[0, 8], [2, 1], [10, 7], [40, 64], [6, 1032], [600, 16]];

/// Rows for several threads of a CPU.
const LARGE: [[usize; 2]; 3] = [[4, 1250], [2000, 33], [2000, 150]];

/// Evaluates an expression.
fn evaluate(target: &Target, expr: &Expr, leaves: &[Operand], len: usize) -> Operand {
    let views: Vec<_> = leaves.iter().map(Operand::view).collect();
    let mut out = target.blank(leaves[0].dtype(), len);
    target.backend().map(expr, &views, out.view_mut());
    out
}

/// Computes gradients of the leaves that are wanted; with `before`, they are added to this number.
fn backward(
    target: &Target,
    expr: &Expr,
    leaves: &[Operand],
    wanted: &[bool],
    grad: &Operand,
    before: Option<f32>,
) -> Vec<Option<Operand>> {
    let views: Vec<_> = leaves.iter().map(Operand::view).collect();
    let gradient = |(leaf, wanted): (usize, &bool)| {
        let repeats =
            |node: &Node| matches!(node, Node::Row(of) | Node::Along(of, _) if *of == leaf);
        let dtype = if expr.nodes.iter().any(repeats) { DType::F32 } else { leaves[leaf].dtype() };
        let before = vec![before.unwrap_or(f32::NAN); leaves[leaf].len()];
        wanted.then(|| target.floats(dtype, &before))
    };
    let mut grads: Vec<Option<Operand>> = wanted.iter().enumerate().map(gradient).collect();
    let accumulate = before.is_some();
    let mut slots: Vec<_> = grads
        .iter_mut()
        .map(|grad| grad.as_mut().map(|grad| LeafGrad { view: grad.view_mut(), accumulate }))
        .collect();
    target.backend().map_backward(expr, &views, grad.view(), &mut slots);
    drop(slots);
    grads
}

/// Expressions and the gradients of their leaves, written and accumulated, follow the formula.
pub fn formula(target: &Target) {
    for [rows, cols] in target.cases(&SIZES, &LARGE) {
        for case in [composite(rows, cols), target.cases(&[], &simple(rows, cols))].concat() {
            FLOATS.into_iter().for_each(|dtype| check(target, &case, &[rows, cols], dtype));
        }
    }
}

fn check(target: &Target, case: &Case, sizes: &[usize], dtype: DType) {
    let (len, expr) = (sizes.iter().product(), Expr { nodes: case.nodes.clone() });
    let leaves = case.leaves.iter().enumerate().map(|(seed, leaf_len)| {
        let factor = if *leaf_len == len { 4.0 } else { 2.0 };
        target.floats(dtype, &scaled(*leaf_len, seed as u64, factor))
    });
    let leaves: Vec<Operand> = leaves.collect();
    let grad = target.floats(dtype, &values(len, 9));
    let mask = dropout::mask(target, &expr, len);
    let exact: Vec<Vec<f64>> = leaves.iter().map(Operand::wide).collect();
    let exact_grad = grad.wide();
    let result = evaluate(target, &expr, &leaves, len);
    let grads = [None, Some(1.0)]
        .map(|before| (before, backward(target, &expr, &leaves, &case.wanted, &grad, before)));
    if target.compares_digest_alone() {
        let results =
            [&result].into_iter().chain(grads.iter().flat_map(|(_, grads)| grads.iter().flatten()));
        results.for_each(|result| drop(result.numbers()));
        return;
    }

    let what = format!("{:?}, {sizes:?}", expr.nodes);
    let (expected, slopes) = gradients(&expr, &exact, &exact_grad, &mask);
    target.check(&what, &result, &expected, case.tolerance * 4e-7);
    for (before, grads) in &grads {
        for (leaf, (got, slopes)) in grads.iter().zip(&slopes).enumerate() {
            let Some(got) = got else { continue };
            let expected: Vec<f64> =
                slopes.iter().map(|slope| slope + f64::from(before.unwrap_or(0.0))).collect();
            let what = format!("leaf {leaf} of {what}, onto {before:?}");
            target.check(&what, got, &expected, case.tolerance * 3e-6);
        }
    }
}

/// Leaves that do not occur, or whose values do not matter, have a gradient of zero.
pub fn unused_leaves(target: &Target) {
    use Node::*;
    let expr = Expr { nodes: vec![Leaf(0), Leaf(2), Scale(0, 2.0)] };
    let leaves = [1, 2, 3].map(|seed| target.put(&values(50, seed)));
    for before in [None, Some(1.0)] {
        let grads = backward(target, &expr, &leaves, &[true; 3], &leaves[0], before);
        for unused in &grads[1..] {
            let unused = unused.as_ref().expect("a gradient");
            target.check_exactly("an unused leaf", unused, &[before.unwrap_or(0.0); 50]);
        }
    }
}

/// The gradient of a leaf that is also a row is f32.
pub fn leaf_and_row(target: &Target) {
    use Node::*;
    let expr = Expr { nodes: vec![Leaf(0), Row(0), Mul(0, 1)] };
    let [x, grad] = [1, 2].map(|seed| target.floats(DType::Bf16, &values(3000, seed)));
    let product = |(x, grad)| 2.0 * x * grad;
    let expected: Vec<f32> = x.numbers().into_iter().zip(grad.numbers()).map(product).collect();
    let grads = backward(target, &expr, &[x], &[true], &grad, None);
    target.check_exactly("dx", grads[0].as_ref().expect("a gradient"), &expected);
}
