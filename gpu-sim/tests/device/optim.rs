//! Optimizer steps on a simulated device.

use meshwright::backend::ops::optim::{AdamwArgs, SgdArgs};
use meshwright::backend::{
    AdamGroup, AdamStep, DType, ScalarFunction, SgdStep, UpdateExpr, UpdateNode, UpdateOperands,
};

use crate::support::{FLOATS, Side, assert_close, assert_same, on_both, values};

const LENS: [usize; 6] = [0, 1, 4, 7, 1000, 4099];
const COPIES: [Option<DType>; 3] = [None, Some(DType::F32), Some(DType::Bf16)];

const ADAM: AdamStep = AdamStep {
    beta1: 0.9,
    beta2: 0.95,
    eps: 1e-8,
    bias_correction1: 0.271,
    bias_correction2: 0.142_625,
    grad_scale: 0.37,
};

/// Compares optimizer steps: bitwise if the CPU has fused multiply-add, which both kernels then use.
#[track_caller]
fn assert_steps_agree(what: &str, got: &[Vec<f32>], expected: &[Vec<f32>]) {
    assert_eq!(got.len(), expected.len());
    for (got, expected) in got.iter().zip(expected) {
        if std::is_x86_feature_detected!("fma") {
            assert_same(what, got, expected);
        } else {
            assert_close(what, got, expected, 1e-6, 1e-7);
        }
    }
}

fn squares(len: usize, seed: u64) -> Vec<f32> {
    values(len, seed).into_iter().map(|x| x * x).collect()
}

/// Returns groups of these lengths, each with a learning rate and weight decay of its own.
fn groups(lens: &[usize]) -> Vec<AdamGroup> {
    let group = |(index, len): (usize, &usize)| {
        let weight_decay = if index.is_multiple_of(2) { 0.1 } else { 0.0 };
        AdamGroup { len: *len, lr: 3e-3 * (index + 1) as f32, weight_decay }
    };
    lens.iter().enumerate().map(group).collect()
}

fn adamw(side: &Side, groups: &[AdamGroup], gradient: DType, copy: Option<DType>) -> Vec<Vec<f32>> {
    let len = groups.iter().map(|group| group.len).sum();
    let [mut p, mut m] = [1, 2].map(|seed| side.put(&values(len, seed)));
    let mut v = side.put(&squares(len, 3));
    let g = side.floats(gradient, &values(len, 4));
    let mut copy = copy.map(|dtype| side.blank(dtype, len));
    for _ in 0..2 {
        let copy = copy.as_mut().map(|copy| copy.view_mut());
        side.backend().adamw(
            &ADAM,
            groups,
            AdamwArgs { p: p.view_mut(), g: g.view(), m: m.view_mut(), v: v.view_mut(), copy },
        );
    }
    [Some(p), Some(m), Some(v), copy].iter().flatten().map(|operand| operand.numbers()).collect()
}

#[test]
fn adamw_takes_the_steps_of_the_host() {
    for (gradient, copy) in FLOATS.into_iter().flat_map(|g| COPIES.map(|copy| (g, copy))) {
        for len in LENS {
            on_both(
                |side| adamw(side, &groups(&[len]), gradient, copy),
                |got, expected| {
                    assert_steps_agree(&format!("{len} of {gradient}, {copy:?}"), got, expected);
                },
            );
        }
    }
}

/// Groups begin in the middle of vectors or not, may be empty, and are more than one launch takes.
#[test]
fn adamw_has_a_learning_rate_for_each_group() {
    let many: Vec<usize> = (0..150).map(|index| 4 * (index % 5)).collect();
    for lens in [&[40, 8, 4000, 3][..], &[5, 0, 12, 1], &many] {
        on_both(
            |side| adamw(side, &groups(lens), DType::F32, Some(DType::Bf16)),
            |got, expected| assert_steps_agree(&format!("{lens:?}"), got, expected),
        );
    }
}

fn sgd(
    side: &Side,
    len: usize,
    step: &SgdStep,
    with_momentum: bool,
    gradient: DType,
    copy: Option<DType>,
) -> Vec<Vec<f32>> {
    let mut p = side.put(&values(len, 1));
    let g = side.floats(gradient, &values(len, 2));
    let mut momentum = with_momentum.then(|| side.put(&values(len, 3)));
    let mut copy = copy.map(|dtype| side.blank(dtype, len));
    for _ in 0..2 {
        let momentum = momentum.as_mut().map(|momentum| momentum.view_mut());
        let copy = copy.as_mut().map(|copy| copy.view_mut());
        side.backend().sgd(step, SgdArgs { p: p.view_mut(), g: g.view(), momentum, copy });
    }
    [Some(p), momentum, copy].iter().flatten().map(|operand| operand.numbers()).collect()
}

#[test]
fn sgd_takes_the_steps_of_the_host() {
    for (nesterov, with_momentum) in [(false, false), (false, true), (true, true)] {
        let step =
            SgdStep { lr: 0.07, momentum: 0.9, nesterov, weight_decay: 0.01, grad_scale: 1.3 };
        for (gradient, copy) in FLOATS.into_iter().flat_map(|g| COPIES.map(|copy| (g, copy))) {
            for len in LENS {
                on_both(
                    |side| sgd(side, len, &step, with_momentum, gradient, copy),
                    |got, expected| {
                        let what = format!("{len} of {gradient}, {copy:?}, {nesterov}");
                        assert_steps_agree(&what, got, expected);
                    },
                );
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

/// Every operation of elementwise updates.
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

fn update(side: &Side, len: usize, gradient: DType, copy: Option<DType>) -> Vec<Vec<f32>> {
    let [mut param, mut first, mut second] = [1, 2, 3].map(|seed| side.put(&values(len, seed)));
    let g = side.floats(gradient, &values(len, 4));
    let mut copy = copy.map(|dtype| side.blank(dtype, len));
    for _ in 0..2 {
        let operands = UpdateOperands {
            param: param.view_mut(),
            gradient: g.view(),
            states: vec![first.view_mut(), second.view_mut()],
            copy: copy.as_mut().map(|copy| copy.view_mut()),
        };
        side.backend().apply_update(&every_update_node(), operands);
    }
    let results = [Some(param), Some(first), Some(second), copy];
    results.iter().flatten().map(|operand| operand.numbers()).collect()
}

/// No operation is fused with another, so the bits are the same as on any host.
#[test]
fn elementwise_updates_have_the_bits_of_the_host() {
    for (gradient, copy) in FLOATS.into_iter().flat_map(|g| COPIES.map(|copy| (g, copy))) {
        for len in LENS {
            on_both(
                |side| update(side, len, gradient, copy),
                |got, expected| {
                    for (got, expected) in got.iter().zip(expected) {
                        assert_same(&format!("{len} of {gradient}, {copy:?}"), got, expected);
                    }
                },
            );
        }
    }
}
