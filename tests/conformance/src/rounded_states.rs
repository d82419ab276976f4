//! Optimizer steps whose state is bf16: the f32 step on the widened state, and rounding by the bits of each element.

use half::bf16;
use meshwright_backend::ops::optim::{AdamwArgs, SgdArgs};
use meshwright_backend::{
    AdamGroup, AdamStep, DType, SgdStep, StateRounding, UpdateExpr, UpdateNode, UpdateOperands,
};

use crate::optim::dtypes;
use crate::{FLOATS, Operand, Target, values};

/// Steps that are taken one after the other.
const STEPS: usize = 2;

/// Elements of several parameters: contiguous ones that begin at any index, blocks of rows that are shorter or longer
/// than vectors, and indices beyond 32 bits.
fn layouts() -> Vec<Vec<StateRounding>> {
    let part = |len, first, start, [row, stride]: [u64; 2]| {
        let key = 0x9e37_79b9_7f4a_7c15 * (len as u64 + 1);
        StateRounding { len, key, first, start, row, stride }
    };
    let run = [1, 1];
    vec![
        vec![],
        vec![part(1, 3, 0, run)],
        vec![part(1000, 0, 0, run)],
        vec![part(997, 5, 2, run)],
        vec![part(320, 7, 5, [8, 24])],
        vec![part(301, 1, 13, [7, 21])],
        vec![part(600, 1 << 35, 69, [70, 1 << 36])],
        vec![
            part(40, 0, 0, run),
            part(3, 9, 1, run),
            part(133, 0, 4, [12, 36]),
            part(64, 2, 0, run),
        ],
    ]
}

/// More parameters than one launch takes.
fn many_parameters() -> Vec<StateRounding> {
    (0..150).map(|key| StateRounding::contiguous(key, key, 4 * (key as usize % 5))).collect()
}

/// Several threads of a CPU.
fn large_layout() -> Vec<StateRounding> {
    let rows =
        StateRounding { start: 17, row: 33, stride: 70, ..StateRounding::contiguous(3, 1, 41_001) };
    vec![StateRounding::contiguous(2, 3, 9_001), rows]
}

fn cases(target: &Target) -> Vec<Vec<StateRounding>> {
    target.cases(&layouts(), &[large_layout(), many_parameters()])
}

/// The draw of Philox 4x32-10 of Salmon, Moraes, Dror and Shaw (2011).
fn philox(key: u64, mut x: [u32; 4]) -> [u32; 4] {
    let mut key = [key as u32, (key >> 32) as u32];
    for _ in 0..10 {
        let products = [0xd251_1f53 * u64::from(x[0]), 0xcd9e_8d57 * u64::from(x[2])];
        let [low, high] = [products.map(|x| x as u32), products.map(|x| (x >> 32) as u32)];
        x = [high[1] ^ x[1] ^ key[0], low[1], high[0] ^ x[3] ^ key[1], low[0]];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    x
}

/// Rounds new values of state number `state` as [`StateRounding`] defines it.
fn rounded(rounding: &[StateRounding], state: usize, values: &[f32]) -> Vec<f32> {
    let elements = rounding.iter().flat_map(|part| (0..part.len).map(move |at| (part, at)));
    let round = |((part, at), x): ((&StateRounding, usize), &f32)| {
        let index = part.global_index(at);
        let counter = [(index / 4) as u32, (index >> 34) as u32, (state / 2) as u32, 0];
        let word = philox(part.key, counter)[(index % 4) as usize];
        let bits = if state.is_multiple_of(2) { word & 0xffff } else { word >> 16 };
        bf16::from_bits(((x.to_bits() + bits) >> 16) as u16).to_f32()
    };
    elements.zip(values).map(round).collect()
}

/// Operands of an update with `STATES` states.
struct Operands<const STATES: usize> {
    p: Operand,
    g: Operand,
    states: [Operand; STATES],
    copy: Option<Operand>,
}

impl<const STATES: usize> Operands<STATES> {
    fn new(target: &Target, len: usize, gradient: DType, copy: Option<DType>) -> Self {
        // Positive numbers, as second moments are.
        let state = |seed| values(len, seed).iter().map(|x| x * x).collect::<Vec<_>>();
        Operands {
            p: target.put(&values(len, 1)),
            g: target.floats(gradient, &values(len, 2)),
            states: std::array::from_fn(|index| {
                target.floats(DType::Bf16, &state(3 + index as u64))
            }),
            copy: copy.map(|dtype| target.blank(dtype, len)),
        }
    }
}

/// Checks that `update` of bf16 states gives the parameters of the update of the widened states, and these rounded.
#[track_caller]
fn check<const STATES: usize>(
    target: &Target,
    rounding: &[StateRounding],
    mut update: impl FnMut(&mut Operands<STATES>, &[StateRounding]),
) {
    let len = rounding.iter().map(|part| part.len).sum();
    for (gradient, copy) in dtypes() {
        let mut got = Operands::<STATES>::new(target, len, gradient, copy);
        for step in 0..STEPS {
            let what = format!("step {step} of {len}, {gradient}, {rounding:?}");
            let wide = |operand: &Operand| target.put(&operand.numbers());
            let mut expected = Operands {
                p: wide(&got.p),
                g: target.floats(gradient, &got.g.numbers()),
                states: got.states.each_ref().map(wide),
                copy: None,
            };
            update(&mut expected, &[]);
            update(&mut got, rounding);
            let params = expected.p.numbers();
            target.check_exactly(&what, &got.p, &params);
            for (state, (got, expected)) in got.states.iter().zip(&expected.states).enumerate() {
                let expected = rounded(rounding, state, &expected.numbers());
                target.check_exactly(&format!("state {state}, {what}"), got, &expected);
            }
            if let Some(copy) = &got.copy {
                target.check_exactly(&format!("copy, {what}"), copy, &params);
            }
        }
    }
}

/// AdamW in one group, and in groups that end inside of a parameter.
pub fn adamw(target: &Target) {
    let step = AdamStep {
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        bias_correction1: 0.271,
        bias_correction2: 0.142_625,
        grad_scale: 0.37,
    };
    for rounding in cases(target) {
        let len: usize = rounding.iter().map(|part| part.len).sum();
        let group = |len, lr| AdamGroup { len, lr, weight_decay: 0.1 };
        let half = len / 8 * 4;
        for groups in [vec![group(len, 3e-3)], vec![group(half, 3e-3), group(len - half, 1e-3)]] {
            check(target, &rounding, |operands: &mut Operands<2>, rounding| {
                let Operands { p, g, states: [m, v], copy } = operands;
                let copy = copy.as_mut().map(|copy| copy.view_mut());
                let (p, g, m, v) = (p.view_mut(), g.view(), m.view_mut(), v.view_mut());
                let args = AdamwArgs { p, g, m, v, copy, rounding };
                target.backend().adamw(&step, &groups, args);
            });
        }
    }
}

/// SGD with both kinds of momentum.
pub fn sgd(target: &Target) {
    for nesterov in [false, true] {
        let step =
            SgdStep { lr: 0.07, momentum: 0.9, nesterov, weight_decay: 0.01, grad_scale: 1.3 };
        for rounding in cases(target) {
            check(target, &rounding, |operands: &mut Operands<1>, rounding| {
                let Operands { p, g, states: [momentum], copy } = operands;
                let copy = copy.as_mut().map(|copy| copy.view_mut());
                let momentum = Some(momentum.view_mut());
                let args = SgdArgs { p: p.view_mut(), g: g.view(), momentum, copy, rounding };
                target.backend().sgd(&step, args);
            });
        }
    }
}

/// An expression with three states, so that the third takes its bits from another draw than the first two.
pub fn updates(target: &Target) {
    use UpdateNode::*;
    let nodes = vec![
        Param,
        Gradient,
        State(0),
        State(1),
        State(2),
        Constant(0.3),
        Mul(2, 5),
        Add(6, 1),
        Mul(4, 7),
        Sub(0, 8),
    ];
    // The second state is the first, so that only their bits differ.
    let update = UpdateExpr { nodes, param: 9, states: vec![7, 7, 8] };
    for rounding in cases(target) {
        check(target, &rounding, |operands: &mut Operands<3>, rounding| {
            let Operands { p, g, states, copy } = operands;
            let operands = UpdateOperands {
                param: p.view_mut(),
                gradient: g.view(),
                states: states.iter_mut().map(|state| state.view_mut()).collect(),
                rounding,
                copy: copy.as_mut().map(|copy| copy.view_mut()),
            };
            target.backend().apply_update(&update, operands);
        });
    }
}

/// Numbers, and sums with what is there, rounded by the bits of any state.
pub fn sums(target: &Target) {
    for rounding in cases(target) {
        let len = rounding.iter().map(|part| part.len).sum();
        for (state, (dtype, accumulate)) in
            FLOATS.into_iter().flat_map(|dtype| [(dtype, false), (dtype, true)]).enumerate()
        {
            let x = target.floats(dtype, &values(len, 1));
            let mut out = target.floats(DType::Bf16, &values(len, 2));
            let kept = if accumulate { out.numbers() } else { vec![0.0; len] };
            target.backend().round_state(state, x.view(), accumulate, out.view_mut(), &rounding);
            let sums: Vec<f32> = x.numbers().iter().zip(kept).map(|(x, kept)| x + kept).collect();
            let what = format!("{len} of {dtype}, state {state}, {accumulate}");
            target.check_exactly(&what, &out, &rounded(&rounding, state, &sums));
        }
    }
}
