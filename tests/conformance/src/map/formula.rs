//! Expressions and their gradients in f64.

use meshwright_backend::{Comparison, Expr, Node, UnaryFunction};

/// Returns the error function, by a series whose terms all have one sign, so that nothing cancels.
pub fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum, mut n) = (x, x, 1.0);
    while term.abs() > 1e-18 * sum.abs() {
        n += 2.0;
        term *= 2.0 * x * x / n;
        sum += term;
    }
    sum * 2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp()
}

pub fn apply(function: UnaryFunction, x: f64) -> f64 {
    match function {
        UnaryFunction::Silu => x / (1.0 + (-x).exp()),
        UnaryFunction::Gelu => 0.5 * x * (1.0 + erf(x / 2f64.sqrt())),
        UnaryFunction::GeluTanh => {
            let root = (2.0 / std::f64::consts::PI).sqrt();
            0.5 * x * (1.0 + (root * (x + 0.044715 * x.powi(3))).tanh())
        }
        UnaryFunction::Relu if x.is_nan() => x,
        UnaryFunction::Relu => x.max(0.0),
        UnaryFunction::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        UnaryFunction::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        UnaryFunction::Tanh => x.tanh(),
        UnaryFunction::Exp => x.exp(),
        UnaryFunction::Log => x.ln(),
        UnaryFunction::Sqrt => x.sqrt(),
        UnaryFunction::Rsqrt => 1.0 / x.sqrt(),
        UnaryFunction::Recip => 1.0 / x,
        UnaryFunction::Square => x * x,
        UnaryFunction::Abs => x.abs(),
        UnaryFunction::Sin => x.sin(),
        UnaryFunction::Cos => x.cos(),
    }
}

fn holds(comparison: Comparison, a: f64, b: f64) -> bool {
    match comparison {
        Comparison::Gt => a > b,
        Comparison::Ge => a >= b,
        Comparison::Lt => a < b,
        Comparison::Le => a <= b,
        Comparison::Eq => a == b,
        Comparison::Ne => a != b,
    }
}

/// Returns the derivative: by a central difference, unless the function has a corner.
fn derivative(function: UnaryFunction, x: f64) -> f64 {
    const STEP: f64 = 1e-5;
    match function {
        UnaryFunction::Relu => f64::from(u8::from(x > 0.0)),
        UnaryFunction::Abs => x.signum(),
        _ => (apply(function, x + STEP) - apply(function, x - STEP)) / (2.0 * STEP),
    }
}

/// Evaluates all nodes at element `i`, to `x`. `mask` has the factors of dropout.
fn evaluate(expr: &Expr, leaves: &[Vec<f64>], mask: &[f64], i: usize, x: &mut Vec<f64>) {
    x.clear();
    for node in &expr.nodes {
        x.push(match *node {
            Node::Leaf(leaf) => leaves[leaf][i],
            Node::Row(leaf) => leaves[leaf][i % leaves[leaf].len()],
            Node::Along(leaf, ref strides) => leaves[leaf][strides.leaf_index(i)],
            Node::Position(ref positions) => {
                let along = i / positions.inner() % positions.sizes[positions.dim];
                positions.position(along) as f64
            }
            Node::Max(a, b) => x[a].max(x[b]),
            Node::Min(a, b) => x[a].min(x[b]),
            Node::Compare(comparison, a, b) => f64::from(u8::from(holds(comparison, x[a], x[b]))),
            Node::Select(mask, a, b) => x[if x[mask] != 0.0 { a } else { b }],
            Node::Pow(a, exponent) => x[a].powf(f64::from(exponent)),
            Node::Constant(number) => f64::from(number),
            Node::Add(a, b) => x[a] + x[b],
            Node::Sub(a, b) => x[a] - x[b],
            Node::Mul(a, b) => x[a] * x[b],
            Node::Div(a, b) => x[a] / x[b],
            Node::Scale(a, factor) => x[a] * f64::from(factor),
            Node::Offset(a, offset) => x[a] + f64::from(offset),
            Node::Clamp(a, min, max) => x[a].clamp(f64::from(min), f64::from(max)),
            Node::Apply(function, a) => apply(function, x[a]),
            Node::Dropout(a, _) => x[a] * mask[i],
        });
    }
}

/// Computes the result, and the gradients of all leaves from the gradient of the result.
pub fn gradients(
    expr: &Expr,
    leaves: &[Vec<f64>],
    grad: &[f64],
    mask: &[f64],
) -> (Vec<f64>, Vec<Vec<f64>>) {
    let (mut result, mut x, mut slopes) = (Vec::with_capacity(grad.len()), Vec::new(), Vec::new());
    let mut gradients: Vec<Vec<f64>> = leaves.iter().map(|leaf| vec![0.0; leaf.len()]).collect();
    for (i, grad) in grad.iter().enumerate() {
        evaluate(expr, leaves, mask, i, &mut x);
        slopes.clear();
        slopes.resize(x.len(), 0.0);
        slopes[x.len() - 1] = *grad;
        for (at, node) in expr.nodes.iter().enumerate().rev() {
            let slope = slopes[at];
            match *node {
                Node::Leaf(leaf) => gradients[leaf][i] += slope,
                Node::Row(leaf) => {
                    let len = leaves[leaf].len();
                    gradients[leaf][i % len] += slope;
                }
                Node::Along(leaf, ref strides) => gradients[leaf][strides.leaf_index(i)] += slope,
                Node::Constant(_) | Node::Position(_) | Node::Compare(..) => {}
                Node::Max(a, b) | Node::Min(a, b) => {
                    let is_a = (x[a] > x[b]) == matches!(node, Node::Max(..));
                    let share = if x[a] == x[b] { 0.5 } else { f64::from(u8::from(is_a)) };
                    slopes[a] += share * slope;
                    slopes[b] += (1.0 - share) * slope;
                }
                Node::Select(mask, a, b) => slopes[if x[mask] != 0.0 { a } else { b }] += slope,
                Node::Pow(a, exponent) => {
                    let exponent = f64::from(exponent);
                    slopes[a] += slope * exponent * x[a].powf(exponent - 1.0);
                }
                Node::Add(a, b) => {
                    slopes[a] += slope;
                    slopes[b] += slope;
                }
                Node::Sub(a, b) => {
                    slopes[a] += slope;
                    slopes[b] -= slope;
                }
                Node::Mul(a, b) => {
                    slopes[a] += slope * x[b];
                    slopes[b] += slope * x[a];
                }
                Node::Div(a, b) => {
                    slopes[a] += slope / x[b];
                    slopes[b] -= slope * x[a] / (x[b] * x[b]);
                }
                Node::Scale(a, factor) => slopes[a] += slope * f64::from(factor),
                Node::Offset(a, _) => slopes[a] += slope,
                Node::Clamp(a, min, max) => {
                    let is_inside = (f64::from(min)..=f64::from(max)).contains(&x[a]);
                    slopes[a] += if is_inside { slope } else { 0.0 };
                }
                Node::Apply(function, a) => slopes[a] += slope * derivative(function, x[a]),
                Node::Dropout(a, _) => slopes[a] += slope * mask[i],
            }
        }
        result.push(x[x.len() - 1]);
    }
    (result, gradients)
}
