//! Optimizer steps.

use meshwright_backend::ops::optim::{AdamwArgs, SgdArgs};
use meshwright_backend::{
    AdamGroup, AdamStep, DType, ScalarFunction, SgdStep, UpdateExpr, UpdateNode, UpdateOperands,
};

use crate::{FLOATS, Operand, Target, values};

const LENS: [usize; 7] = [0, 1, 4, 7, 19, 1000, 4099];

/// Elements for several threads of a CPU.
const LARGE: [usize; 1] = [50_003];

/// Dtypes of gradients, and of copies of the parameters.
pub(crate) fn dtypes() -> impl Iterator<Item = (DType, Option<DType>)> {
    let copies = [None, Some(DType::F32), Some(DType::Bf16)];
    FLOATS.into_iter().flat_map(move |gradient| copies.map(|copy| (gradient, copy)))
}

/// Steps that are taken one after the other.
const STEPS: usize = 2;

/// Checks parameters, state and the copy, which is the rounded parameters.
#[track_caller]
fn check(target: &Target, what: &str, results: &[(&Operand, Vec<f64>)], copy: Option<&Operand>) {
    for (index, (got, expected)) in results.iter().enumerate() {
        target.check(&format!("result {index}, {what}"), got, expected, 1e-6);
    }
    if let Some(copy) = copy {
        target.check_exactly(&format!("copy, {what}"), copy, &results[0].0.numbers());
    }
}

/// Returns groups of these lengths, each with a learning rate and weight decay of its own.
fn groups(lens: &[usize]) -> Vec<AdamGroup> {
    let group = |(index, len): (usize, &usize)| {
        let weight_decay = if index.is_multiple_of(2) { 0.1 } else { 0.0 };
        AdamGroup { len: *len, lr: 3e-3 * (index % 5 + 1) as f32, weight_decay }
    };
    lens.iter().enumerate().map(group).collect()
}

#[track_caller]
fn check_adamw(
    target: &Target,
    step: &AdamStep,
    groups: &[AdamGroup],
    (gradient, copy): (DType, Option<DType>),
) {
    let len = groups.iter().map(|group| group.len).sum();
    let [mut p, mut m] = [1, 2].map(|seed| target.put(&values(len, seed)));
    let mut v = target.put(&values(len, 3).into_iter().map(|x| x * x).collect::<Vec<_>>());
    let g = target.floats(gradient, &values(len, 4));
    let mut copy = copy.map(|dtype| target.blank(dtype, len));
    let [mut exact_p, mut exact_m, mut exact_v] = [&p, &m, &v].map(Operand::wide);
    for _ in 0..STEPS {
        let copy = copy.as_mut().map(|copy| copy.view_mut());
        let (p, g, m, v) = (p.view_mut(), g.view(), m.view_mut(), v.view_mut());
        target.backend().adamw(step, groups, AdamwArgs { p, g, m, v, copy, rounding: &[] });
    }
    let g = g.wide();
    let of_elements = groups.iter().flat_map(|group| std::iter::repeat_n(group, group.len));
    for (i, group) in of_elements.enumerate() {
        let (lr, decay) = (f64::from(group.lr), f64::from(group.weight_decay));
        let g = g[i] * f64::from(step.grad_scale);
        let (p, m, v) = (&mut exact_p[i], &mut exact_m[i], &mut exact_v[i]);
        for _ in 0..STEPS {
            *m = step.beta1 * *m + (1.0 - step.beta1) * g;
            *v = step.beta2 * *v + (1.0 - step.beta2) * g * g;
            let root = (*v / f64::from(step.bias_correction2)).sqrt() + f64::from(step.eps);
            *p = *p * (1.0 - lr * decay) - lr * *m / f64::from(step.bias_correction1) / root;
        }
    }
    let results = [(&p, exact_p), (&m, exact_m), (&v, exact_v)];
    check(target, &format!("{len} of {gradient}"), &results, copy.as_ref());
}

const ADAM: AdamStep = AdamStep {
    beta1: 0.9,
    beta2: 0.95,
    eps: 1e-8,
    bias_correction1: 0.271,
    bias_correction2: 0.142_625,
    grad_scale: 0.37,
};

/// AdamW follows its definition.
pub fn adamw(target: &Target) {
    // Close to 1: its complement would lose digits in f32.
    let close = AdamStep { beta2: 0.99999, eps: 1e-6, ..ADAM };
    for dtypes in dtypes() {
        for len in target.cases(&LENS, &LARGE) {
            check_adamw(target, &ADAM, &groups(&[len]), dtypes);
            check_adamw(target, &close, &groups(&[len]), dtypes);
        }
    }
}

/// Groups of parameters begin in the middle of vectors or not, may be empty, and are more than one launch takes.
pub fn adamw_groups(target: &Target) {
    let many: Vec<usize> = (0..150).map(|index| 4 * (index % 5)).collect();
    for lens in [&[40, 8, 4000, 3][..], &[5, 0, 12, 1], &[7_000, 1, 13_000], &many] {
        check_adamw(target, &ADAM, &groups(lens), (DType::F32, Some(DType::Bf16)));
    }
}

/// SGD follows its definition, with and without momentum.
pub fn sgd(target: &Target) {
    for (nesterov, has_momentum) in [(false, false), (false, true), (true, true)] {
        let step =
            SgdStep { lr: 0.07, momentum: 0.9, nesterov, weight_decay: 0.01, grad_scale: 1.3 };
        for (gradient, copy) in dtypes() {
            for len in target.cases(&LENS, &LARGE) {
                let mut p = target.put(&values(len, 1));
                let g = target.floats(gradient, &values(len, 2));
                let mut momentum = has_momentum.then(|| target.put(&values(len, 3)));
                let mut copy = copy.map(|dtype| target.blank(dtype, len));
                let mut exact_p = p.wide();
                let mut exact_momentum = momentum.as_ref().map_or(vec![0.0; len], Operand::wide);
                for _ in 0..STEPS {
                    let momentum = momentum.as_mut().map(|momentum| momentum.view_mut());
                    let copy = copy.as_mut().map(|copy| copy.view_mut());
                    let (p, g) = (p.view_mut(), g.view());
                    let args = SgdArgs { p, g, momentum, copy, rounding: &[] };
                    target.backend().sgd(&step, args);
                }
                let factor = if has_momentum { f64::from(step.momentum) } else { 0.0 };
                let (lr, decay) = (f64::from(step.lr), f64::from(step.weight_decay));
                for (i, g) in g.wide().into_iter().enumerate() {
                    let g = g * f64::from(step.grad_scale);
                    let (p, momentum) = (&mut exact_p[i], &mut exact_momentum[i]);
                    for _ in 0..STEPS {
                        *momentum = factor * *momentum + g;
                        let change = if nesterov { g + factor * *momentum } else { *momentum };
                        *p = *p * (1.0 - lr * decay) - lr * change;
                    }
                }
                let mut results = vec![(&p, exact_p)];
                results.extend(momentum.as_ref().map(|momentum| (momentum, exact_momentum)));
                let what = format!("{len} of {gradient}, nesterov {nesterov}, {has_momentum}");
                check(target, &what, &results, copy.as_ref());
            }
        }
    }
}

/// `x - y * y` of the host, and as CUDA source.
static LESS_SQUARE: ScalarFunction = ScalarFunction {
    name: "less_square",
    cpu: |x, y| x - y * y,
    cuda: "return __fsub_rn(x, __fmul_rn(y, y));",
};

/// Returns an update with every operation.
fn every_update_node() -> UpdateExpr {
    use UpdateNode::*;
    let nodes = vec![
        Param,
        Gradient,
        State(0),
        State(1),
        Constant(0.3),
        Mul(2, 4),
        Add(5, 1),
        Abs(6),
        Sqrt(7),
        Div(6, 8),
        Sign(3),
        Neg(10),
        Min(9, 11),
        Max(12, 4),
        Sub(0, 13),
        Call(&LESS_SQUARE, 14, 6),
    ];
    UpdateExpr { nodes, param: 15, states: vec![6, 12] }
}

/// Evaluates an update of one element, without fused multiply-add.
fn evaluate(update: &UpdateExpr, param: f32, gradient: f32, states: [f32; 2]) -> [f32; 3] {
    use UpdateNode::*;
    let mut x: Vec<f32> = Vec::new();
    for node in &update.nodes {
        x.push(match *node {
            Param => param,
            Gradient => gradient,
            State(state) => states[state],
            Constant(number) => number,
            Neg(a) => -x[a],
            Abs(a) => x[a].abs(),
            Sign(a) => x[a].signum(),
            Sqrt(a) => x[a].sqrt(),
            Add(a, b) => x[a] + x[b],
            Sub(a, b) => x[a] - x[b],
            Mul(a, b) => x[a] * x[b],
            Div(a, b) => x[a] / x[b],
            Min(a, b) => x[a].min(x[b]),
            Max(a, b) => x[a].max(x[b]),
            Call(function, a, b) => (function.cpu)(x[a], x[b]),
        });
    }
    [update.param, update.states[0], update.states[1]].map(|node| x[node])
}

/// Elementwise updates have the bits of their definition.
pub fn updates(target: &Target) {
    let update = every_update_node();
    for (gradient, copy) in dtypes() {
        for len in target.cases(&LENS, &LARGE) {
            let [mut p, mut first, mut second] =
                [1, 2, 3].map(|seed| target.put(&values(len, seed)));
            let g = target.floats(gradient, &values(len, 4));
            let mut copy = copy.map(|dtype| target.blank(dtype, len));
            let mut exact = [&p, &first, &second].map(|operand| operand.numbers());
            for _ in 0..STEPS {
                let operands = UpdateOperands {
                    param: p.view_mut(),
                    gradient: g.view(),
                    states: vec![first.view_mut(), second.view_mut()],
                    rounding: &[],
                    copy: copy.as_mut().map(|copy| copy.view_mut()),
                };
                target.backend().apply_update(&update, operands);
            }
            for (i, g) in g.numbers().into_iter().enumerate() {
                for _ in 0..STEPS {
                    let [p, first, second] = [0, 1, 2].map(|result| exact[result][i]);
                    let results = evaluate(&update, p, g, [first, second]);
                    exact.iter_mut().zip(results).for_each(|(exact, result)| exact[i] = result);
                }
            }
            for (got, expected) in
                [&p, &first, &second].into_iter().chain(&copy).zip(exact.iter().chain([&exact[0]]))
            {
                target.check_exactly(&format!("{len} of {gradient}"), got, expected);
            }
        }
    }
}
