//! Weights and auxiliary losses of routers, and their gradients.

use half::bf16;

use super::reference::{self, SIZES, TOKENS, choices, gradient, magnitudes};
use crate::float::Float;
use crate::tests::{assert_close, assert_same_on_any_threads, on_every_backend, values, wide};
use meshwright_backend::ops::routing::{
    RouterAuxiliaryLossArgs, RouterAuxiliaryLossBackwardArgs, RouterOptions, RouterScore,
    RouterWeightsArgs, RouterWeightsBackwardArgs,
};
use meshwright_backend::{Backend, View, ViewMut};

const SCORES: [RouterScore; 2] = [RouterScore::Softmax, RouterScore::Sigmoid];
const SCALE: f32 = 2.5;
const Z: f32 = 0.1;

/// Every combination of options.
fn all_options() -> impl Iterator<Item = RouterOptions> {
    SCORES.into_iter().flat_map(|score| {
        [true, false].map(|normalize| RouterOptions { score, normalize, scale: SCALE })
    })
}

/// Weights, and gradients of the logits.
fn weights_and_grads(
    cpu: &dyn Backend,
    options: RouterOptions,
    (experts, k): (usize, usize),
    logits: &[f32],
    choices: &[u32],
    dweights: &[f32],
) -> [Vec<f32>; 2] {
    let (mut weights, mut dlogits) = (vec![f32::NAN; choices.len()], vec![f32::NAN; logits.len()]);
    let (logits, choices) = (View::from(logits), View::from(choices));
    let out = ViewMut::from(&mut weights[..]);
    cpu.router_weights(options, RouterWeightsArgs { experts, k, logits, choices, weights: out });
    cpu.router_weights_backward(
        options,
        RouterWeightsBackwardArgs {
            experts,
            k,
            logits,
            choices,
            dweights: dweights.into(),
            dlogits: (&mut dlogits[..]).into(),
        },
    );
    [weights, dlogits]
}

/// Auxiliary losses, and gradients of the logits.
fn losses_and_grads<T: Float>(
    cpu: &dyn Backend,
    score: RouterScore,
    logits: &[f32],
    factors: &[f32],
    dout: &[T],
) -> (Vec<T>, Vec<f32>) {
    let experts = factors.len();
    let mut out = vec![T::narrow_from_f32(f32::NAN); dout.len()];
    let mut dlogits = vec![f32::NAN; logits.len()];
    let (logits, factors) = (View::from(logits), View::from(factors));
    let losses = ViewMut::from(&mut out[..]);
    cpu.router_auxiliary_loss(
        score,
        RouterAuxiliaryLossArgs { experts, logits, factors, z: Z, out: losses },
    );
    cpu.router_auxiliary_loss_backward(
        score,
        RouterAuxiliaryLossBackwardArgs {
            experts,
            logits,
            factors,
            z: Z,
            dout: dout.into(),
            dlogits: (&mut dlogits[..]).into(),
        },
    );
    (out, dlogits)
}

#[test]
fn weights_and_their_gradients_follow_the_formula() {
    for (experts, k) in SIZES {
        let choices = choices(TOKENS, experts, k);
        let dweights = values(TOKENS * k, 2);
        for logits in magnitudes(&values(TOKENS * experts, 1)) {
            for options in all_options() {
                let RouterOptions { score, normalize, .. } = options;
                let (mut expected, mut expected_grads) = (Vec::new(), Vec::new());
                for token in 0..TOKENS {
                    let logits = wide(&logits[token * experts..][..experts]);
                    let choices = &choices[token * k..][..k];
                    let dweights = wide(&dweights[token * k..][..k]);
                    let weights = |logits: &[f64]| {
                        let is_sigmoid = score == RouterScore::Sigmoid;
                        let weights = reference::weights(is_sigmoid, normalize, logits, choices);
                        weights.into_iter().map(|weight| weight * f64::from(SCALE))
                    };
                    expected.extend(weights(&logits));
                    expected_grads.extend(gradient(&logits, |logits| {
                        weights(logits).zip(&dweights).map(|(weight, grad)| weight * grad).sum()
                    }));
                }
                on_every_backend(|cpu| {
                    let sizes = (experts, k);
                    let [weights, grads] =
                        weights_and_grads(cpu, options, sizes, &logits, &choices, &dweights);
                    let what = format!("{k} of {experts}, {options:?}");
                    assert_close(&format!("weights, {what}"), &weights, &expected, 2e-6);
                    assert_close(&format!("gradients, {what}"), &grads, &expected_grads, 1e-5);
                });
            }
        }
    }
}

#[test]
fn auxiliary_losses_and_their_gradients_follow_the_formula() {
    for (experts, _) in SIZES {
        let (factors, dout) = (values(experts, 2), values(TOKENS, 3));
        for logits in magnitudes(&values(TOKENS * experts, 1)) {
            for score in SCORES {
                let is_sigmoid = score == RouterScore::Sigmoid;
                let (factors_64, z) = (wide(&factors), f64::from(Z));
                let loss =
                    |logits: &[f64]| reference::auxiliary_loss(is_sigmoid, logits, &factors_64, z);
                let (mut expected, mut expected_grads) = (Vec::new(), Vec::new());
                for (logits, dout) in logits.chunks_exact(experts).zip(&dout) {
                    let logits = wide(logits);
                    expected.push(loss(&logits));
                    let grads = gradient(&logits, loss);
                    expected_grads.extend(grads.into_iter().map(|grad| grad * f64::from(*dout)));
                }
                on_every_backend(|cpu| {
                    let (out, grads) = losses_and_grads(cpu, score, &logits, &factors, &dout);
                    let what = format!("{experts} experts, {score:?}");
                    assert_close(&format!("auxiliary losses, {what}"), &out, &expected, 2e-6);
                    assert_close(&format!("gradients, {what}"), &grads, &expected_grads, 1e-5);
                });
            }
        }
    }
}

#[test]
fn auxiliary_losses_in_bf16_are_rounded_once() {
    let experts = 33;
    let (logits, factors) = (values(TOKENS * experts, 1), values(experts, 2));
    let dout: Vec<bf16> = values(TOKENS, 3).into_iter().map(bf16::from_f32).collect();
    let wide_dout: Vec<f32> = dout.iter().map(|x| x.to_f32()).collect();
    on_every_backend(|cpu| {
        for score in SCORES {
            let (out, grads) = losses_and_grads(cpu, score, &logits, &factors, &dout);
            let (wide_out, wide_grads) =
                losses_and_grads(cpu, score, &logits, &factors, &wide_dout);
            assert_eq!(out, wide_out.into_iter().map(bf16::from_f32).collect::<Vec<_>>());
            assert_eq!(grads, wide_grads);
        }
    });
}

#[test]
fn an_infinitely_small_logit_counts_as_a_score_of_zero() {
    let logits = [0.5, f32::NEG_INFINITY, -0.25, f32::NEG_INFINITY];
    on_every_backend(|cpu| {
        for options in all_options() {
            let [weights, grads] =
                weights_and_grads(cpu, options, (4, 2), &logits, &[0, 1], &[1.0, 2.0]);
            assert!(weights[0] > 0.0 && weights[1] == 0.0, "{options:?}: {weights:?}");
            assert!(grads.iter().all(|grad| grad.is_finite()), "{options:?}: {grads:?}");
            let (out, grads) = losses_and_grads(cpu, options.score, &logits, &[1.0; 4], &[1.0f32]);
            assert!(out.iter().chain(&grads).all(|x| x.is_finite()), "{options:?}: {grads:?}");
        }
    });
}

#[test]
fn routers_of_no_tokens_write_nothing() {
    on_every_backend(|cpu| {
        for options in all_options() {
            let [weights, grads] = weights_and_grads(cpu, options, (4, 2), &[], &[], &[]);
            assert!(weights.is_empty() && grads.is_empty());
            let (out, grads) = losses_and_grads::<f32>(cpu, options.score, &[], &[1.0; 4], &[]);
            assert!(out.is_empty() && grads.is_empty());
        }
    });
}

#[test]
fn routers_give_the_same_bits_on_any_number_of_threads() {
    let (tokens, experts, k) = (2000, 60, 3);
    let (logits, factors) = (values(tokens * experts, 1), values(experts, 2));
    let (dweights, dout) = (values(tokens * k, 3), values(tokens, 4));
    let choices = choices(tokens, experts, k);
    assert_same_on_any_threads("routers", |cpu| {
        let mut all = Vec::new();
        for options in all_options() {
            let results =
                weights_and_grads(cpu, options, (experts, k), &logits, &choices, &dweights);
            all.extend(results.concat());
            let (out, grads) = losses_and_grads(cpu, options.score, &logits, &factors, &dout);
            all.extend([out, grads].concat());
        }
        all
    });
}
