//! Weights and auxiliary losses of routers (MoE), on the CPU.

use super::float::{Float, by_float};
use super::math::{exp, lane_max, lane_sum, larger, natural_log, zip_map};
use super::simd::dispatch;
use super::softmax::row_count;
use super::workers::{Rows, Workers};
use meshwright_backend::MAX_TOP_K;
use meshwright_backend::ops::routing::{
    RouterAuxiliaryLossArgs, RouterAuxiliaryLossBackwardArgs, RouterOptions, RouterScore,
    RouterWeightsArgs, RouterWeightsBackwardArgs,
};

pub(super) fn router_weights(workers: &Workers, options: RouterOptions, args: RouterWeightsArgs) {
    let RouterWeightsArgs { experts, k, logits, choices, mut weights } = args;
    let (logits, choices, weights) = (logits.typed(), choices.typed(), weights.typed::<f32>());
    let tokens = checked_tokens("router_weights", (experts, k), logits, choices);
    assert_eq!(weights.len(), tokens * k, "router_weights: {k} weights of {tokens} tokens");
    workers.rows(tokens, experts, Rows(weights, k), |range, weights| {
        for (token, weights) in range.zip(weights.0.chunks_exact_mut(k)) {
            let logits = &logits[token * experts..][..experts];
            weights_of_token(options, logits, &choices[token * k..][..k], weights);
        }
    });
}

pub(super) fn router_weights_backward(
    workers: &Workers,
    options: RouterOptions,
    args: RouterWeightsBackwardArgs,
) {
    let RouterWeightsBackwardArgs { experts, k, logits, choices, dweights, mut dlogits } = args;
    let (logits, choices) = (logits.typed(), choices.typed());
    let (dweights, dlogits) = (dweights.typed::<f32>(), dlogits.typed::<f32>());
    let tokens = checked_tokens("router_weights_backward", (experts, k), logits, choices);
    let fits = [dweights.len(), dlogits.len()] == [tokens * k, tokens * experts];
    assert!(fits, "router_weights_backward: {k} weights and {experts} logits of {tokens} tokens");
    workers.rows(tokens, experts, Rows(dlogits, experts), |range, dlogits| {
        for (token, dlogits) in range.zip(dlogits.0.chunks_exact_mut(experts)) {
            let logits = &logits[token * experts..][..experts];
            let (choices, dweights) = (&choices[token * k..][..k], &dweights[token * k..][..k]);
            weights_of_token_backward(options, logits, choices, dweights, dlogits);
        }
    });
}

/// Returns the number of tokens with these logits and choices.
fn checked_tokens(
    what: &str,
    (experts, k): (usize, usize),
    logits: &[f32],
    choices: &[u32],
) -> usize {
    assert!((1..=MAX_TOP_K.min(experts)).contains(&k), "{what}: {k} of {experts} experts");
    let tokens = row_count(logits.len(), experts);
    assert_eq!(choices.len(), tokens * k, "{what}: {k} choices of {tokens} tokens");
    tokens
}

/// Scores of a token's experts up to a factor that all have in common, so that some do not underflow.
#[derive(Clone, Copy)]
pub(super) struct Scores {
    score: RouterScore,
    /// Logarithm of the divisor of scores.
    base: f32,
}

impl Scores {
    /// Creates the scores of experts the largest of whose logits is `max`; the largest score is 1/2 to 1.
    #[inline(always)]
    pub(super) fn up_to(score: RouterScore, max: f32) -> Scores {
        match score {
            RouterScore::Softmax => Scores { score, base: max },
            // The sigmoid is about e^x for negative x, and about 1 for positive x.
            RouterScore::Sigmoid => Scores { score, base: max.min(0.0) },
        }
    }

    /// Creates the scores themselves of a sigmoid.
    #[inline(always)]
    pub(super) fn of_sigmoid() -> Scores {
        Scores { score: RouterScore::Sigmoid, base: 0.0 }
    }

    #[inline(always)]
    pub(super) fn get<const FMA: bool>(self, logit: f32) -> f32 {
        match self.score {
            RouterScore::Softmax => exp::<FMA>(logit - self.base),
            RouterScore::Sigmoid => {
                let numerator = if logit > 0.0 { 1.0 } else { exp::<FMA>(logit - self.base) };
                numerator / (1.0 + exp::<FMA>(-logit.abs()))
            }
        }
    }

    /// Returns the derivative of a score by its logit, divided by the score.
    #[inline(always)]
    fn slope<const FMA: bool>(self, logit: f32) -> f32 {
        match self.score {
            RouterScore::Softmax => 1.0,
            RouterScore::Sigmoid => {
                // 1 minus the sigmoid, without cancellation.
                let small = exp::<FMA>(-logit.abs());
                (if logit > 0.0 { small } else { 1.0 }) / (1.0 + small)
            }
        }
    }
}

/// Computes the weights of a token's choices for a scale of 1. Returns the scores, and their sum, the divisor.
#[inline(always)]
fn unscaled_weights<const FMA: bool>(
    options: RouterOptions,
    logits: &[f32],
    choices: &[u32],
    weights: &mut [f32],
) -> (Scores, f32) {
    let RouterOptions { score, normalize, sum_epsilon, .. } = options;
    for (weight, choice) in weights.iter_mut().zip(choices) {
        *weight = logits[*choice as usize];
    }
    let scores = match (score, normalize) {
        (_, true) => Scores::up_to(score, weights.iter().copied().fold(f32::NEG_INFINITY, larger)),
        (RouterScore::Softmax, false) => Scores::up_to(score, lane_max(logits, larger)),
        (RouterScore::Sigmoid, false) => Scores::of_sigmoid(),
    };
    for weight in &mut *weights {
        *weight = scores.get::<FMA>(*weight);
    }
    let sum = match (score, normalize) {
        (_, true) => weights.iter().sum(),
        (RouterScore::Softmax, false) => lane_sum([logits], |[logit]| scores.get::<FMA>(logit)),
        (RouterScore::Sigmoid, false) => 1.0,
    };
    let sum = match (score, normalize) {
        (RouterScore::Sigmoid, true) if sum_epsilon > 0.0 => {
            sum + sum_epsilon * exp::<FMA>(-scores.base)
        }
        _ => sum,
    };
    for weight in weights {
        *weight /= sum;
    }
    (scores, sum)
}

dispatch! {
    fn weights_of_token<const FMA: bool>(
        options: RouterOptions, logits: &[f32], choices: &[u32], weights: &mut [f32],
    ) {
        unscaled_weights::<FMA>(options, logits, choices, weights);
        for weight in weights {
            *weight *= options.scale;
        }
    }
}

dispatch! {
    fn weights_of_token_backward<const FMA: bool>(
        options: RouterOptions, logits: &[f32], choices: &[u32], dweights: &[f32], dlogits: &mut [f32],
    ) {
        let mut weights = [0.0; MAX_TOP_K];
        let weights = &mut weights[..choices.len()];
        let (scores, sum) = unscaled_weights::<FMA>(options, logits, choices, weights);
        let of_choices = weights.iter().zip(dweights);
        // Each logit reduces all weights through the sum, if they are divided by one.
        let reduction = match (options.score, options.normalize) {
            (RouterScore::Sigmoid, false) => 0.0,
            _ => options.scale * of_choices.clone().map(|(weight, grad)| weight * grad).sum::<f32>(),
        };
        match (options.score, options.normalize) {
            (RouterScore::Softmax, false) => zip_map([logits], dlogits, |[logit]| {
                -reduction * (scores.get::<FMA>(logit) / sum)
            }),
            // The other logits have no effect.
            _ => dlogits.fill(0.0),
        }
        for (choice, (weight, grad)) in choices.iter().zip(of_choices) {
            let choice = *choice as usize;
            let slope = scores.slope::<FMA>(logits[choice]);
            dlogits[choice] = weight * slope * (options.scale * grad - reduction);
        }
    }
}

pub(super) fn router_auxiliary_loss(
    workers: &Workers,
    score: RouterScore,
    args: RouterAuxiliaryLossArgs,
) {
    by_float!(args.out.dtype() => T; auxiliary_loss::<T>(workers, score, args));
}

fn auxiliary_loss<T: Float>(workers: &Workers, score: RouterScore, args: RouterAuxiliaryLossArgs) {
    let RouterAuxiliaryLossArgs { experts, logits, factors, z, mut out } = args;
    let (logits, factors, out) = (logits.typed::<f32>(), factors.typed(), out.typed::<T>());
    let tokens = row_count(logits.len(), experts);
    assert_eq!(factors.len(), experts, "router_auxiliary_loss: a factor of each expert");
    assert_eq!(out.len(), tokens, "router_auxiliary_loss: one result of each of {tokens} tokens");
    workers.rows(tokens, experts, Rows(out, 1), |range, out| {
        let logits = logits[range.start * experts..].chunks_exact(experts);
        for (out, logits) in out.0.iter_mut().zip(logits) {
            *out = T::narrow_from_f32(auxiliary_loss_of_token(score, logits, factors, z));
        }
    });
}

pub(super) fn router_auxiliary_loss_backward(
    workers: &Workers,
    score: RouterScore,
    args: RouterAuxiliaryLossBackwardArgs,
) {
    by_float!(args.dout.dtype() => T; auxiliary_loss_backward::<T>(workers, score, args));
}

fn auxiliary_loss_backward<T: Float>(
    workers: &Workers,
    score: RouterScore,
    args: RouterAuxiliaryLossBackwardArgs,
) {
    let RouterAuxiliaryLossBackwardArgs { experts, logits, factors, z, dout, mut dlogits } = args;
    let (logits, factors) = (logits.typed::<f32>(), factors.typed());
    let (dout, dlogits) = (dout.typed::<T>(), dlogits.typed());
    let tokens = row_count(logits.len(), experts);
    assert_eq!(factors.len(), experts, "router_auxiliary_loss_backward: a factor of each expert");
    let fits = [dout.len(), dlogits.len()] == [tokens, tokens * experts];
    assert!(
        fits,
        "router_auxiliary_loss_backward: a gradient and {experts} logits of {tokens} tokens"
    );
    workers.rows(tokens, experts, Rows(dlogits, experts), |range, dlogits| {
        for (token, dlogits) in range.zip(dlogits.0.chunks_exact_mut(experts)) {
            let logits = &logits[token * experts..][..experts];
            let dout = dout[token].widen_to_f32();
            auxiliary_loss_of_token_backward(score, logits, factors, z, dout, dlogits);
        }
    });
}

/// Sums over the experts of a token.
struct Sums {
    max: f32,
    /// Sum of exponentials relative to the maximum.
    exps: f32,
    scores: Scores,
    sum: f32,
    /// Mean of the factors, weighted by the probabilities.
    mean_factor: f32,
}

impl Sums {
    #[inline(always)]
    fn of<const FMA: bool>(score: RouterScore, logits: &[f32], factors: &[f32]) -> Sums {
        let max = lane_max(logits, larger);
        let exps = lane_sum([logits], |[logit]| exp::<FMA>(logit - max));
        let scores = Scores::up_to(score, max);
        let sum = match score {
            RouterScore::Softmax => exps,
            RouterScore::Sigmoid => lane_sum([logits], |[logit]| scores.get::<FMA>(logit)),
        };
        let weighted =
            lane_sum([logits, factors], |[logit, factor]| factor * scores.get::<FMA>(logit));
        Sums { max, exps, scores, sum, mean_factor: weighted / sum }
    }

    #[inline(always)]
    fn log_sum_exp(&self) -> f32 {
        self.max + natural_log(self.exps)
    }
}

dispatch! {
    fn auxiliary_loss_of_token<const FMA: bool>(
        score: RouterScore, logits: &[f32], factors: &[f32], z: f32,
    ) -> f32 {
        let sums = Sums::of::<FMA>(score, logits, factors);
        let lse = sums.log_sum_exp();
        z * (lse * lse) + sums.mean_factor
    }
}

dispatch! {
    fn auxiliary_loss_of_token_backward<const FMA: bool>(
        score: RouterScore, logits: &[f32], factors: &[f32], z: f32, dout: f32, dlogits: &mut [f32],
    ) {
        let sums = Sums::of::<FMA>(score, logits, factors);
        let of_softmax = 2.0 * z * sums.log_sum_exp();
        let Sums { max, exps, scores, sum, mean_factor } = sums;
        zip_map([logits, factors], dlogits, |[logit, factor]| {
            let softmax = exp::<FMA>(logit - max) / exps;
            let probability = scores.get::<FMA>(logit) / sum;
            let slope = scores.slope::<FMA>(logit);
            dout * (of_softmax * softmax + probability * slope * (factor - mean_factor))
        });
    }
}
