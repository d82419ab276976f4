//! Weights and penalties of routers, and their gradients.

use meshwright_backend::DType;
use meshwright_backend::ops::routing::{
    RouterAuxiliaryLossArgs, RouterAuxiliaryLossBackwardArgs, RouterOptions, RouterScore,
    RouterWeightsArgs, RouterWeightsBackwardArgs,
};

use super::formula::{self, SIZES, TOKENS, choices, gradient, magnitudes};
use crate::values::wide;
use crate::{FLOATS, Operand, Target, values};

const SCORES: [RouterScore; 2] = [RouterScore::Softmax, RouterScore::Sigmoid];
const SCALE: f32 = 2.5;
const Z: f32 = 0.1;

/// Returns every combination of options.
fn all_options() -> impl Iterator<Item = RouterOptions> {
    SCORES.into_iter().flat_map(|score| {
        [(true, 0.0), (false, 0.0), (true, 1e-3)].map(|(normalize, sum_epsilon)| RouterOptions {
            score,
            normalize,
            scale: SCALE,
            sum_epsilon,
            groups: None,
        })
    })
}

/// Returns the tokens and sizes of all cases.
fn sizes() -> impl Iterator<Item = (usize, (usize, usize))> {
    SIZES.map(|sizes| (TOKENS, sizes)).into_iter().chain([(0, (4, 2))])
}

/// Computes weights, and gradients of the logits.
fn weights_and_grads(
    target: &Target,
    options: RouterOptions,
    (experts, k): (usize, usize),
    logits: &[f32],
    choices: &[u32],
    dweights: &[f32],
) -> [Operand; 2] {
    let mut weights = target.blank(DType::F32, choices.len());
    let mut dlogits = target.blank(DType::F32, logits.len());
    let (logits, choices) = (target.put(logits), target.put(choices));
    target.backend().router_weights(
        options,
        RouterWeightsArgs {
            experts,
            k,
            logits: logits.view(),
            choices: choices.view(),
            weights: weights.view_mut(),
        },
    );
    target.backend().router_weights_backward(
        options,
        RouterWeightsBackwardArgs {
            experts,
            k,
            logits: logits.view(),
            choices: choices.view(),
            dweights: target.put(dweights).view(),
            dlogits: dlogits.view_mut(),
        },
    );
    [weights, dlogits]
}

/// Computes penalties of the dtype of `dout`, and gradients of the logits.
fn penalties_and_grads(
    target: &Target,
    score: RouterScore,
    logits: &[f32],
    factors: &[f32],
    dout: &Operand,
) -> [Operand; 2] {
    let experts = factors.len();
    let mut out = target.blank(dout.dtype(), logits.len() / experts);
    let mut dlogits = target.blank(DType::F32, logits.len());
    let (logits, factors) = (target.put(logits), target.put(factors));
    target.backend().router_auxiliary_loss(
        score,
        RouterAuxiliaryLossArgs {
            experts,
            logits: logits.view(),
            factors: factors.view(),
            z: Z,
            out: out.view_mut(),
        },
    );
    target.backend().router_auxiliary_loss_backward(
        score,
        RouterAuxiliaryLossBackwardArgs {
            experts,
            logits: logits.view(),
            factors: factors.view(),
            z: Z,
            dout: dout.view(),
            dlogits: dlogits.view_mut(),
        },
    );
    [out, dlogits]
}

/// Weights of choices and their gradients follow the formula.
pub fn weights(target: &Target) {
    for (tokens, (experts, k)) in sizes() {
        let choices = choices(tokens, experts, k);
        let dweights = values(tokens * k, 2);
        for logits in magnitudes(&values(tokens * experts, 1)) {
            for options in all_options() {
                let is_sigmoid = options.score == RouterScore::Sigmoid;
                let (mut expected, mut expected_grads) = (Vec::new(), Vec::new());
                let of_choices = choices.chunks_exact(k).zip(dweights.chunks_exact(k));
                for (logits, (choices, dweights)) in logits.chunks_exact(experts).zip(of_choices) {
                    let (logits, dweights) = (wide(logits), wide(dweights));
                    let weights = |logits: &[f64]| {
                        let epsilon = f64::from(options.sum_epsilon);
                        let divisor = options.normalize.then_some(epsilon);
                        let weights = formula::weights(is_sigmoid, divisor, logits, choices);
                        weights.into_iter().map(|weight| weight * f64::from(SCALE))
                    };
                    expected.extend(weights(&logits));
                    expected_grads.extend(gradient(&logits, |logits| {
                        weights(logits).zip(&dweights).map(|(weight, grad)| weight * grad).sum()
                    }));
                }
                let sizes = (experts, k);
                let [weights, grads] =
                    weights_and_grads(target, options, sizes, &logits, &choices, &dweights);
                let what = format!("{k} of {experts}, {options:?}");
                target.check(&format!("weights, {what}"), &weights, &expected, 2e-6);
                target.check(&format!("gradients, {what}"), &grads, &expected_grads, 1e-5);
            }
        }
    }
}

/// Penalties and their gradients follow the formula.
pub fn penalties(target: &Target) {
    for (tokens, (experts, _)) in sizes() {
        let factors = values(experts, 2);
        for logits in magnitudes(&values(tokens * experts, 1)) {
            for (score, dtype) in SCORES.into_iter().flat_map(|s| FLOATS.map(|dtype| (s, dtype))) {
                let dout = target.floats(dtype, &values(tokens, 3));
                let is_sigmoid = score == RouterScore::Sigmoid;
                let (wide_factors, z) = (wide(&factors), f64::from(Z));
                let penalty =
                    |logits: &[f64]| formula::auxiliary_loss(is_sigmoid, logits, &wide_factors, z);
                let (mut expected, mut expected_grads) = (Vec::new(), Vec::new());
                for (logits, dout) in logits.chunks_exact(experts).zip(dout.wide()) {
                    let logits = wide(logits);
                    expected.push(penalty(&logits));
                    let grads = gradient(&logits, penalty).into_iter();
                    expected_grads.extend(grads.map(|grad| grad * dout));
                }
                let [out, grads] = penalties_and_grads(target, score, &logits, &factors, &dout);
                let what = format!("{experts} experts, {score:?}");
                target.check(&format!("penalties, {what}"), &out, &expected, 2e-6);
                target.check(&format!("gradients, {what}"), &grads, &expected_grads, 1e-5);
            }
        }
    }
}

/// A logit of `-inf` counts as a score of zero.
pub fn no_score(target: &Target) {
    let logits = [0.5, f32::NEG_INFINITY, -0.25, f32::NEG_INFINITY];
    for options in all_options() {
        let [weights, grads] =
            weights_and_grads(target, options, (4, 2), &logits, &[0, 1], &[1.0, 2.0]);
        let (weights, grads) = (weights.numbers(), grads.numbers());
        assert!(weights[0] > 0.0 && weights[1] == 0.0, "{options:?}: {weights:?}");
        assert!(grads.iter().all(|grad| grad.is_finite()), "{options:?}: {grads:?}");
        let dout = target.put(&[1.0f32]);
        for result in penalties_and_grads(target, options.score, &logits, &[1.0; 4], &dout) {
            assert!(result.numbers().iter().all(|x| x.is_finite()), "{options:?}");
        }
    }
}

/// Results of a token depend on no other, however many there are.
pub fn independent_tokens(target: &Target) {
    let (tokens, experts, k) = (3000, 40, 3);
    let (logits, factors) = (values(tokens * experts, 1), values(experts, 2));
    let (dweights, dout) = (values(tokens * k, 3), values(tokens, 4));
    let choices = choices(tokens, experts, k);
    for options in all_options() {
        let run = |start: usize| -> Vec<Vec<f32>> {
            let (logits, of_choices) = (&logits[start * experts..], start * k..);
            let (choices, dweights) = (&choices[of_choices.clone()], &dweights[of_choices]);
            let weights =
                weights_and_grads(target, options, (experts, k), logits, choices, dweights);
            let dout = target.put(&dout[start..]);
            let penalties = penalties_and_grads(target, options.score, logits, &factors, &dout);
            weights.iter().chain(&penalties).map(Operand::numbers).collect()
        };
        for (all, last) in run(0).iter().zip(run(tokens - 7)) {
            assert_eq!(all[all.len() - last.len()..], last, "{options:?}");
        }
    }
}
