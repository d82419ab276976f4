use super::{CpuBackend, assert_close, assert_same_on_any_threads, on_every_backend, values, wide};
use meshwright_backend::{
    Backend, BlockIndex, DropoutMask, ElementwiseOps, Expr, LeafGrad, Node, UnaryFunction, View,
};

/// The error function by a series whose terms all have one sign, so that nothing cancels.
pub(super) fn erf(x: f64) -> f64 {
    let (mut term, mut sum, mut n) = (x, x, 1.0);
    while term.abs() > 1e-18 * sum.abs() {
        n += 2.0;
        term *= 2.0 * x * x / n;
        sum += term;
    }
    sum * 2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp()
}

fn apply(function: UnaryFunction, x: f64) -> f64 {
    match function {
        UnaryFunction::Silu => x / (1.0 + (-x).exp()),
        UnaryFunction::Gelu => 0.5 * x * (1.0 + erf(x / 2f64.sqrt())),
        UnaryFunction::GeluTanh => {
            let root = (2.0 / std::f64::consts::PI).sqrt();
            0.5 * x * (1.0 + (root * (x + 0.044715 * x.powi(3))).tanh())
        }
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
    }
}

/// Evaluates element `i` of an expression in f64. Dropout is tested elsewhere.
fn evaluate(expr: &Expr, leaves: &[Vec<f64>], i: usize) -> f64 {
    let mut values: Vec<f64> = Vec::new();
    for node in &expr.nodes {
        values.push(match *node {
            Node::Leaf(leaf) => leaves[leaf][i],
            Node::Row(leaf) => leaves[leaf][i % leaves[leaf].len()],
            Node::Constant(number) => f64::from(number),
            Node::Add(a, b) => values[a] + values[b],
            Node::Sub(a, b) => values[a] - values[b],
            Node::Mul(a, b) => values[a] * values[b],
            Node::Div(a, b) => values[a] / values[b],
            Node::Scale(a, factor) => values[a] * f64::from(factor),
            Node::Offset(a, offset) => values[a] + f64::from(offset),
            Node::Clamp(a, min, max) => values[a].clamp(f64::from(min), f64::from(max)),
            Node::Apply(function, a) => apply(function, values[a]),
            Node::Dropout(..) => unreachable!("no dropout in these expressions"),
        });
    }
    values[values.len() - 1]
}

/// Gradients of `sum(grad * result)` by central differences in f64.
fn differences(expr: &Expr, leaves: &[Vec<f64>], grad: &[f64]) -> Vec<Vec<f64>> {
    const STEP: f64 = 1e-5;
    let mut gradients = Vec::new();
    for (leaf, values) in leaves.iter().enumerate() {
        // Elements of the result read one element of each leaf, so all of a leaf can move together.
        let moved = |step: f64| {
            let mut leaves = leaves.to_vec();
            leaves[leaf] = values.iter().map(|x| x + step).collect();
            leaves
        };
        let (up, down) = (moved(STEP), moved(-STEP));
        let mut gradient = vec![0.0; values.len()];
        for (i, grad) in grad.iter().enumerate() {
            let slope = (evaluate(expr, &up, i) - evaluate(expr, &down, i)) / (2.0 * STEP);
            gradient[i % values.len()] += grad * slope;
        }
        gradients.push(gradient);
    }
    gradients
}

fn backward(
    cpu: &dyn Backend,
    expr: &Expr,
    leaves: &[Vec<f32>],
    grad: &[f32],
    accumulate: bool,
) -> Vec<Vec<f32>> {
    let before = if accumulate { 1.0 } else { f32::NAN };
    let mut grads: Vec<Vec<f32>> = leaves.iter().map(|leaf| vec![before; leaf.len()]).collect();
    let views: Vec<View> = leaves.iter().map(|leaf| leaf[..].into()).collect();
    let slots =
        grads.iter_mut().map(|grad| Some(LeafGrad { view: (&mut grad[..]).into(), accumulate }));
    cpu.map_backward(expr, &views, grad.into(), &mut slots.collect::<Vec<_>>());
    grads
}

fn run(cpu: &dyn Backend, expr: &Expr, leaves: &[Vec<f32>], len: usize) -> Vec<f32> {
    let views: Vec<View> = leaves.iter().map(|leaf| leaf[..].into()).collect();
    let mut out = vec![f32::NAN; len];
    cpu.map(expr, &views, (&mut out[..]).into());
    out
}

fn scaled(len: usize, seed: u64, factor: f32) -> Vec<f32> {
    values(len, seed).into_iter().map(|x| factor * x).collect()
}

#[test]
fn every_node_and_its_gradient_follow_the_formula() {
    use Node::*;
    use UnaryFunction::*;
    let leaf = || Leaf(0);
    let expressions = [
        vec![Leaf(0)],
        vec![Leaf(0), Leaf(1), Add(0, 1)],
        vec![Leaf(0), Leaf(1), Sub(0, 1)],
        vec![Leaf(0), Leaf(1), Mul(0, 1)],
        vec![leaf(), Scale(0, -1.5)],
        vec![leaf(), Offset(0, 0.75), Mul(0, 1)],
        vec![leaf(), Apply(Silu, 0)],
        vec![leaf(), Apply(Gelu, 0)],
        vec![leaf(), Apply(GeluTanh, 0)],
        vec![leaf(), Apply(Relu, 0)],
        vec![leaf(), Apply(Tanh, 0)],
        vec![leaf(), Apply(Exp, 0)],
        vec![leaf(), Apply(Sigmoid, 0)],
        vec![leaf(), Apply(Softplus, 0)],
        vec![leaf(), Apply(Square, 0)],
        vec![leaf(), Apply(Abs, 0)],
        vec![leaf(), Clamp(0, -1.25, 0.5)],
        // Of positive numbers, which are not too small for differences.
        vec![leaf(), Apply(Square, 0), Offset(1, 0.5), Apply(Log, 2)],
        vec![leaf(), Apply(Square, 0), Offset(1, 0.5), Apply(Sqrt, 2)],
        vec![leaf(), Apply(Square, 0), Offset(1, 0.5), Apply(Rsqrt, 2)],
        vec![leaf(), Apply(Square, 0), Offset(1, 0.5), Apply(Recip, 2)],
        vec![Leaf(0), Leaf(1), Apply(Square, 1), Offset(2, 0.5), Div(0, 3)],
        // A row as the divisor, which also reads the quotient.
        vec![Leaf(0), Row(2), Apply(Square, 1), Offset(2, 0.5), Div(0, 3), Div(4, 3)],
        // A number as the dividend, and as the divisor.
        vec![Leaf(0), Apply(Square, 0), Offset(1, 0.5), Constant(-0.75), Div(3, 2)],
        vec![Constant(0.75), Row(2), Div(1, 0), Leaf(0), Mul(2, 3)],
        vec![Row(2)],
        vec![Leaf(0), Row(2), Add(0, 1), Apply(Gelu, 2), Row(2), Mul(3, 4)],
        // SwiGLU; the same leaf more than once; a value used more than once.
        vec![Leaf(0), Apply(Silu, 0), Leaf(1), Mul(1, 2)],
        vec![Leaf(0), Leaf(0), Mul(0, 1), Leaf(0), Sub(2, 3)],
        vec![Leaf(0), Apply(Tanh, 0), Mul(1, 1), Leaf(1), Mul(2, 3), Add(1, 4)],
        // The result does not depend on the first nodes.
        vec![Leaf(1), Row(2), Mul(0, 1), Leaf(0), Scale(3, 0.5)],
    ];
    for nodes in expressions {
        let expr = Expr { nodes };
        for (len, row) in [(1, 1), (35, 7), (1024, 64), (5000, 1250), (66_000, 33)] {
            let leaves = vec![scaled(len, 1, 4.0), scaled(len, 2, 4.0), scaled(row, 3, 2.0)];
            let exact: Vec<_> = leaves.iter().map(|leaf| wide(leaf)).collect();
            let grad = values(len, 4);
            let expected: Vec<_> = (0..len).map(|i| evaluate(&expr, &exact, i)).collect();
            let gradients = differences(&expr, &exact, &wide(&grad));
            let one_more: Vec<Vec<f64>> =
                gradients.iter().map(|g| g.iter().map(|x| x + 1.0).collect()).collect();
            on_every_backend(|cpu| {
                let what = format!("{:?} of {len}", expr.nodes);
                assert_close(&what, &run(cpu, &expr, &leaves, len), &expected, 4e-7);
                for (leaf, got) in backward(cpu, &expr, &leaves, &grad, false).iter().enumerate() {
                    assert_close(&format!("leaf {leaf} of {what}"), got, &gradients[leaf], 3e-6);
                }
                for (leaf, got) in backward(cpu, &expr, &leaves, &grad, true).iter().enumerate() {
                    assert_close(&format!("leaf {leaf} of {what}"), got, &one_more[leaf], 3e-6);
                }
            });
        }
    }
}

#[test]
fn leaves_without_a_gradient_slot_are_left_out() {
    let expr = Expr { nodes: vec![Node::Leaf(0), Node::Leaf(1), Node::Mul(0, 1)] };
    let cpu = CpuBackend::new(1).expect("one thread starts nothing");
    let (x, y, grad, mut dy) = (values(9, 1), values(9, 2), values(9, 3), vec![f32::NAN; 9]);
    let slot = LeafGrad { view: (&mut dy[..]).into(), accumulate: false };
    let leaves = [x[..].into(), y[..].into()];
    cpu.map_backward(&expr, &leaves, (&grad[..]).into(), &mut [None, Some(slot)]);
    for i in 0..9 {
        assert_eq!(dy[i], grad[i] * x[i]);
    }
}

#[test]
fn row_sums_are_the_same_on_any_number_of_threads() {
    let nodes =
        vec![Node::Leaf(0), Node::Row(1), Node::Add(0, 1), Node::Apply(UnaryFunction::Silu, 2)];
    let expr = Expr { nodes };
    let leaves = [values(300_000, 1), values(50, 2)];
    let grad = values(300_000, 3);
    assert_same_on_any_threads("map", |cpu| {
        let mut all = run(cpu, &expr, &leaves, 300_000);
        all.extend(backward(cpu, &expr, &leaves, &grad, false).concat());
        all
    });
}

#[test]
fn nan_survives_every_function() {
    use Node::*;
    let functions = UnaryFunction::ALL.iter().map(|function| Apply(*function, 0));
    for node in functions.chain([Scale(0, 0.0), Offset(0, 1.0), Clamp(0, 0.0, 2.0), Div(0, 0)]) {
        let expr = Expr { nodes: vec![Leaf(0), node] };
        on_every_backend(|cpu| {
            let out = run(cpu, &expr, &[vec![1.0, f32::NAN, 1.0]], 3);
            assert_eq!(out.map_nan(), [false, true, false], "{:?}", expr.nodes);
        });
    }
}

#[test]
fn gradients_of_large_numbers_are_their_limits() {
    use UnaryFunction::*;
    let large = vec![-f32::MAX, -1e30, -1e20, 1e20, 1e30, f32::MAX];
    for function in UnaryFunction::ALL {
        let limit = |x: f32| match function {
            Silu | Gelu | GeluTanh | Relu | Softplus => f32::from(x > 0.0),
            Tanh | Sigmoid => 0.0,
            Exp if x < 0.0 => 0.0,
            Exp => f32::INFINITY,
            Log => 1.0 / x,
            Sqrt | Rsqrt if x < 0.0 => f32::NAN,
            Sqrt => (0.5 / f64::from(x).sqrt()) as f32,
            Rsqrt => (-0.5 * f64::from(x).powf(-1.5)) as f32,
            Recip => (-f64::from(x).powi(-2)) as f32,
            Square => 2.0 * x,
            Abs => x.signum(),
        };
        let expr = Expr { nodes: vec![Node::Leaf(0), Node::Apply(*function, 0)] };
        on_every_backend(|cpu| {
            let slopes = backward(cpu, &expr, std::slice::from_ref(&large), &[1.0; 6], false);
            for (x, slope) in large.iter().zip(&slopes[0]) {
                let limit = limit(*x);
                let close =
                    (slope - limit).abs() <= 4.0 * f32::EPSILON * limit.abs() + f32::MIN_POSITIVE;
                let same = *slope == limit || (slope.is_nan() && limit.is_nan());
                assert!(same || close, "{function:?} of {x}: {slope}, not {limit}");
            }
        });
    }
}

#[test]
fn clamping_passes_gradients_of_the_range_with_its_ends() {
    let expr = Expr { nodes: vec![Node::Leaf(0), Node::Clamp(0, -1.0, 2.0)] };
    let x = vec![-3.0, -1.0, -0.5, 2.0, 2.5, f32::INFINITY];
    on_every_backend(|cpu| {
        let leaf = std::slice::from_ref(&x);
        assert_eq!(run(cpu, &expr, leaf, 6), [-1.0, -1.0, -0.5, 2.0, 2.0, 2.0]);
        assert_eq!(backward(cpu, &expr, leaf, &[3.0; 6], false)[0], [0.0, 3.0, 3.0, 3.0, 0.0, 0.0]);
    });
}

trait MapNan {
    fn map_nan(&self) -> Vec<bool>;
}

impl MapNan for Vec<f32> {
    fn map_nan(&self) -> Vec<bool> {
        self.iter().map(|x| x.is_nan()).collect()
    }
}

fn dropout(rate: f32, index: BlockIndex) -> Expr {
    Expr { nodes: vec![Node::Leaf(0), Node::Dropout(0, DropoutMask { key: 7, rate, index })] }
}

#[test]
fn dropout_drops_its_rate_and_keeps_the_mean() {
    for rate in [0.0, 0.1, 0.5, 1.0] {
        let len = 100_000;
        let expr = dropout(rate, BlockIndex::whole(&[100, 1000]));
        on_every_backend(|cpu| {
            let out = run(cpu, &expr, &[vec![1.0; len]], len);
            let kept = out.iter().filter(|x| **x != 0.0).count() as f32 / len as f32;
            assert!((kept - (1.0 - rate)).abs() < 0.006, "rate {rate}: kept {kept}");
            let value = if rate < 1.0 { 1.0 / (1.0 - rate) } else { 0.0 };
            assert!(out.iter().all(|x| *x == 0.0 || *x == value));
            let grads = backward(cpu, &expr, &[vec![1.0; len]], &vec![1.0; len], false);
            assert_eq!(grads[0], out, "the backward pass uses the same mask");
        });
    }
}

#[test]
fn a_block_draws_the_mask_of_the_whole() {
    let global = [6, 10, 34];
    let whole_expr = dropout(0.4, BlockIndex::whole(&global));
    let ones = |len| [vec![1.0; len]];
    on_every_backend(|cpu| {
        let whole = run(cpu, &whole_expr, &ones(6 * 10 * 34), 6 * 10 * 34);
        for dim in 0..3 {
            let mut index = BlockIndex::whole(&global);
            index.local[dim] /= 2;
            for half in 0..2 {
                index.offset[dim] = half * index.local[dim];
                let len = index.len();
                let part = run(cpu, &dropout(0.4, index.clone()), &ones(len), len);
                for (i, x) in part.iter().enumerate() {
                    assert_eq!(*x, whole[index.global_index(i) as usize], "dim {dim}, half {half}");
                }
            }
            // The first and the last third.
            let mut index = BlockIndex::whole(&global);
            let third = global[dim] / 3;
            (index.local[dim], index.gap_at[dim]) = (2 * third, third);
            index.gap[dim] = global[dim] - 2 * third;
            let len = index.len();
            let part = run(cpu, &dropout(0.4, index.clone()), &ones(len), len);
            for (i, x) in part.iter().enumerate() {
                assert_eq!(*x, whole[index.global_index(i) as usize], "dim {dim}, two thirds");
            }
        }
    });
}
