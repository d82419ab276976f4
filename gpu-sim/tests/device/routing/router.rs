//! Weights and auxiliary losses of routers, and their gradients, on the host and on simulated devices.

use meshwright::backend::DType;
use meshwright::backend::ops::routing::{
    RouterAuxiliaryLossArgs, RouterAuxiliaryLossBackwardArgs, RouterOptions, RouterScore,
    RouterWeightsArgs, RouterWeightsBackwardArgs,
};

use super::sides;
use crate::support::{FLOATS, Side, assert_close, epsilon, values};

#[path = "../../../../runtime/cpu/src/tests/routing/reference.rs"]
mod reference;
use reference::{SIZES, TOKENS, choices, gradient, magnitudes};

const SCORES: [RouterScore; 2] = [RouterScore::Softmax, RouterScore::Sigmoid];
const SCALE: f32 = 2.5;
const Z: f32 = 0.1;

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().copied().map(f64::from).collect()
}

fn narrow(x: Vec<f64>) -> Vec<f32> {
    x.into_iter().map(|x| x as f32).collect()
}

/// Weights, and gradients of the logits.
fn weights_and_grads(
    side: &Side,
    options: RouterOptions,
    (experts, k): (usize, usize),
    logits: &[f32],
    choices: &[u32],
    dweights: &[f32],
) -> [Vec<f32>; 2] {
    let mut weights = side.blank(DType::F32, choices.len());
    let mut dlogits = side.blank(DType::F32, logits.len());
    let (logits, choices) = (side.put(logits), side.put(choices));
    side.backend().router_weights(
        options,
        RouterWeightsArgs {
            experts,
            k,
            logits: logits.view(),
            choices: choices.view(),
            weights: weights.view_mut(),
        },
    );
    side.backend().router_weights_backward(
        options,
        RouterWeightsBackwardArgs {
            experts,
            k,
            logits: logits.view(),
            choices: choices.view(),
            dweights: side.put(dweights).view(),
            dlogits: dlogits.view_mut(),
        },
    );
    [weights.numbers(), dlogits.numbers()]
}

/// Auxiliary losses, and gradients of the logits.
fn losses_and_grads(
    side: &Side,
    dtype: DType,
    score: RouterScore,
    logits: &[f32],
    factors: &[f32],
    dout: &[f32],
) -> [Vec<f32>; 2] {
    let experts = factors.len();
    let mut out = side.blank(dtype, dout.len());
    let mut dlogits = side.blank(DType::F32, logits.len());
    let (logits, factors) = (side.put(logits), side.put(factors));
    side.backend().router_auxiliary_loss(
        score,
        RouterAuxiliaryLossArgs {
            experts,
            logits: logits.view(),
            factors: factors.view(),
            z: Z,
            out: out.view_mut(),
        },
    );
    side.backend().router_auxiliary_loss_backward(
        score,
        RouterAuxiliaryLossBackwardArgs {
            experts,
            logits: logits.view(),
            factors: factors.view(),
            z: Z,
            dout: side.floats(dtype, dout).view(),
            dlogits: dlogits.view_mut(),
        },
    );
    [out.numbers(), dlogits.numbers()]
}

/// Expected weights, and gradients of the logits.
fn expected_weights(
    options: RouterOptions,
    (experts, k): (usize, usize),
    logits: &[f32],
    choices: &[u32],
    dweights: &[f32],
) -> [Vec<f32>; 2] {
    let RouterOptions { score, normalize, scale } = options;
    let (mut expected, mut grads) = (Vec::new(), Vec::new());
    let of_choices = choices.chunks_exact(k).zip(dweights.chunks_exact(k));
    for (logits, (choices, dweights)) in logits.chunks_exact(experts).zip(of_choices) {
        let (logits, dweights) = (wide(logits), wide(dweights));
        let weights = |logits: &[f64]| {
            let is_sigmoid = score == RouterScore::Sigmoid;
            let weights = reference::weights(is_sigmoid, normalize, logits, choices);
            weights.into_iter().map(|weight| weight * f64::from(scale))
        };
        expected.extend(weights(&logits));
        grads.extend(gradient(&logits, |logits| {
            weights(logits).zip(&dweights).map(|(weight, grad)| weight * grad).sum()
        }));
    }
    [expected, grads].map(narrow)
}

/// Expected auxiliary losses, and gradients of the logits.
fn expected_losses(
    score: RouterScore,
    logits: &[f32],
    factors: &[f32],
    dout: &[f32],
) -> [Vec<f32>; 2] {
    let (is_sigmoid, experts, factors) =
        (score == RouterScore::Sigmoid, factors.len(), wide(factors));
    let loss =
        |logits: &[f64]| reference::auxiliary_loss(is_sigmoid, logits, &factors, f64::from(Z));
    let (mut expected, mut grads) = (Vec::new(), Vec::new());
    for (logits, dout) in logits.chunks_exact(experts).zip(dout) {
        let logits = wide(logits);
        expected.push(loss(&logits));
        grads.extend(gradient(&logits, loss).into_iter().map(|grad| grad * f64::from(*dout)));
    }
    [expected, grads].map(narrow)
}

#[test]
fn weights_of_routers_and_their_gradients_follow_the_formula() {
    let sides: Vec<Side> = sides().collect();
    for (tokens, (experts, k)) in
        SIZES.map(|sizes| (TOKENS, sizes)).into_iter().chain([(0, (4, 2))])
    {
        let choices = choices(tokens, experts, k);
        let dweights = values(tokens * k, 2);
        for logits in magnitudes(&values(tokens * experts, 1)) {
            for (score, normalize) in SCORES.into_iter().flat_map(|s| [(s, true), (s, false)]) {
                let options = RouterOptions { score, normalize, scale: SCALE };
                let sizes = (experts, k);
                let expected = expected_weights(options, sizes, &logits, &choices, &dweights);
                for side in &sides {
                    let got = weights_and_grads(side, options, sizes, &logits, &choices, &dweights);
                    let what = format!("{k} of {experts}, {options:?}");
                    assert_close(&format!("weights, {what}"), &got[0], &expected[0], 1e-5, 1e-6);
                    assert_close(&format!("gradients, {what}"), &got[1], &expected[1], 1e-5, 2e-6);
                }
            }
        }
    }
}

#[test]
fn auxiliary_losses_and_their_gradients_follow_the_formula() {
    let sides: Vec<Side> = sides().collect();
    for (tokens, (experts, _)) in
        SIZES.map(|sizes| (TOKENS, sizes)).into_iter().chain([(0, (4, 2))])
    {
        let (factors, dout) = (values(experts, 2), values(tokens, 3));
        for logits in magnitudes(&values(tokens * experts, 1)) {
            for (score, dtype) in SCORES.into_iter().flat_map(|s| FLOATS.map(|dtype| (s, dtype))) {
                let rounded = sides[0].floats(dtype, &dout).numbers();
                let expected = expected_losses(score, &logits, &factors, &rounded);
                for side in &sides {
                    let got = losses_and_grads(side, dtype, score, &logits, &factors, &dout);
                    let what = format!("{experts} experts, {score:?}, {dtype}");
                    let tolerance = epsilon(dtype).max(1e-5);
                    assert_close(
                        &format!("auxiliary losses, {what}"),
                        &got[0],
                        &expected[0],
                        tolerance,
                        1e-6,
                    );
                    assert_close(&format!("gradients, {what}"), &got[1], &expected[1], 1e-5, 1e-5);
                }
            }
        }
    }
}

/// Many tokens, so that each warp has several, and the results depend on neither their number nor the grid.
#[test]
fn tokens_of_routers_are_independent() {
    let (tokens, experts, k) = (3000, 40, 3);
    let (logits, factors) = (values(tokens * experts, 1), values(experts, 2));
    let (dweights, dout) = (values(tokens * k, 3), values(tokens, 4));
    let choices = choices(tokens, experts, k);
    let options = RouterOptions { score: RouterScore::Sigmoid, normalize: true, scale: SCALE };
    let sizes = (experts, k);
    for side in sides() {
        let run = |start: usize, end: usize| {
            let (logits, of_choices) =
                (&logits[start * experts..end * experts], start * k..end * k);
            let (choices, dweights) = (&choices[of_choices.clone()], &dweights[of_choices]);
            let weights = weights_and_grads(&side, options, sizes, logits, choices, dweights);
            let dout = &dout[start..end];
            let losses = losses_and_grads(&side, DType::F32, options.score, logits, &factors, dout);
            [weights, losses].concat()
        };
        let [all, last] = [run(0, tokens), run(tokens - 7, tokens)];
        for (all, last) in all.iter().zip(last) {
            assert_eq!(all[all.len() - last.len()..], last);
        }
    }
}
