//! Weights and auxiliary losses of routers (MoE), on GPUs.

use crate::GpuContext;
use crate::gpu::args;
use crate::kernels::ROUTER;
use meshwright_backend::ops::routing::{
    ChoiceScoresArgs, ExpertGroups, RouterAuxiliaryLossArgs, RouterAuxiliaryLossBackwardArgs,
    RouterOptions, RouterScore, RouterWeightsArgs, RouterWeightsBackwardArgs,
};
use meshwright_backend::{DType, MAX_TOP_K, View};

use super::launch::{address, check_operand, covering, float_name, to_u32};

pub(super) fn choice_scores(gpu: &GpuContext, options: RouterOptions, args: ChoiceScoresArgs) {
    let ChoiceScoresArgs { experts, logits, bias, scores } = args;
    let scores = scores.as_view();
    let tokens = checked_tokens("choice_scores", experts, logits);
    check_operand("scores", scores, DType::F32, logits.len());
    if let Some(bias) = bias {
        check_operand("bias", bias, DType::F32, experts);
    }
    // One group of all experts excludes none.
    let groups = options.groups.unwrap_or(ExpertGroups { count: 1, best: 1, top: 1 });
    if let Some(mistake) = groups.mistake(experts, 1) {
        panic!("choice_scores: {mistake}");
    }
    let (rows, cols, sigmoid) = (tokens as u64, to_u32(experts), is_sigmoid(options.score));
    let [count, best, top] = [groups.count, groups.best, groups.top].map(to_u32);
    // SAFETY: there are logits and scores of these tokens, and a bias of each expert or none.
    unsafe {
        gpu.launch(
            (&ROUTER, "choice_scores"),
            covering(gpu, rows * 32),
            args![
                address(logits),
                bias.map_or(0, address),
                rows,
                cols,
                sigmoid,
                count,
                best,
                top,
                address(scores)
            ],
        );
    }
}

pub(super) fn router_weights(gpu: &GpuContext, options: RouterOptions, args: RouterWeightsArgs) {
    let RouterWeightsArgs { experts, k, logits, choices, weights } = args;
    let weights = weights.as_view();
    let tokens = checked_choices("router_weights", experts, k, logits, choices);
    check_operand("weights", weights, DType::F32, tokens * k);
    let (rows, cols, k) = (tokens as u64, to_u32(experts), to_u32(k));
    let (sigmoid, normalize) = (is_sigmoid(options.score), u32::from(options.normalize));
    // SAFETY: there are logits and choices of these tokens, and a weight of each choice.
    unsafe {
        gpu.launch(
            (&ROUTER, "router_weights"),
            covering(gpu, rows * 32),
            args![
                address(logits),
                address(choices),
                rows,
                cols,
                k,
                sigmoid,
                normalize,
                options.scale,
                options.sum_epsilon,
                address(weights)
            ],
        );
    }
}

pub(super) fn router_weights_backward(
    gpu: &GpuContext,
    options: RouterOptions,
    args: RouterWeightsBackwardArgs,
) {
    let RouterWeightsBackwardArgs { experts, k, logits, choices, dweights, dlogits } = args;
    let dlogits = dlogits.as_view();
    let tokens = checked_choices("router_weights_backward", experts, k, logits, choices);
    check_operand("dweights", dweights, DType::F32, tokens * k);
    check_operand("dlogits", dlogits, DType::F32, tokens * experts);
    let (rows, cols, k) = (tokens as u64, to_u32(experts), to_u32(k));
    let (sigmoid, normalize) = (is_sigmoid(options.score), u32::from(options.normalize));
    // SAFETY: as in `router_weights`, and there is a gradient of each logit.
    unsafe {
        gpu.launch(
            (&ROUTER, "router_weights_backward"),
            covering(gpu, rows * 32),
            args![
                address(logits),
                address(choices),
                address(dweights),
                rows,
                cols,
                k,
                sigmoid,
                normalize,
                options.scale,
                options.sum_epsilon,
                address(dlogits)
            ],
        );
    }
}

pub(super) fn router_auxiliary_loss(
    gpu: &GpuContext,
    score: RouterScore,
    args: RouterAuxiliaryLossArgs,
) {
    let RouterAuxiliaryLossArgs { experts, logits, factors, z, out } = args;
    let out = out.as_view();
    let tokens = checked_tokens("router_auxiliary_loss", experts, logits);
    check_operand("factors", factors, DType::F32, experts);
    check_operand("out", out, out.dtype(), tokens);
    let name = format!("router_auxiliary_loss_{}", float_name(out.dtype()));
    let (rows, cols, sigmoid) = (tokens as u64, to_u32(experts), is_sigmoid(score));
    let (logits, factors, out) = (address(logits), address(factors), address(out));
    // SAFETY: there are logits of these tokens, a factor of each expert and a result of each token.
    unsafe {
        gpu.launch(
            (&ROUTER, &name),
            covering(gpu, rows * 32),
            args![logits, factors, rows, cols, sigmoid, z, out],
        );
    }
}

pub(super) fn router_auxiliary_loss_backward(
    gpu: &GpuContext,
    score: RouterScore,
    args: RouterAuxiliaryLossBackwardArgs,
) {
    let RouterAuxiliaryLossBackwardArgs { experts, logits, factors, z, dout, dlogits } = args;
    let dlogits = dlogits.as_view();
    let tokens = checked_tokens("router_auxiliary_loss_backward", experts, logits);
    check_operand("factors", factors, DType::F32, experts);
    check_operand("dout", dout, dout.dtype(), tokens);
    check_operand("dlogits", dlogits, DType::F32, tokens * experts);
    let name = format!("router_auxiliary_loss_backward_{}", float_name(dout.dtype()));
    let (rows, cols, sigmoid) = (tokens as u64, to_u32(experts), is_sigmoid(score));
    let (logits, factors) = (address(logits), address(factors));
    let (dout, dlogits) = (address(dout), address(dlogits));
    // SAFETY: as in `router_auxiliary_loss`, and there is a gradient of each logit.
    unsafe {
        gpu.launch(
            (&ROUTER, &name),
            covering(gpu, rows * 32),
            args![logits, factors, dout, rows, cols, sigmoid, z, dlogits],
        );
    }
}

/// Returns the number of tokens with these logits and choices.
fn checked_choices(what: &str, experts: usize, k: usize, logits: View, choices: View) -> usize {
    assert!((1..=MAX_TOP_K.min(experts)).contains(&k), "{what}: {k} of {experts} experts");
    let tokens = checked_tokens(what, experts, logits);
    check_operand("choices", choices, DType::U32, tokens * k);
    tokens
}

/// Returns the number of tokens with these logits.
fn checked_tokens(what: &str, experts: usize, logits: View) -> usize {
    let len = logits.len();
    let whole_rows = experts > 0 && len.is_multiple_of(experts);
    assert!(whole_rows, "{what}: whole rows of {experts} logits");
    check_operand("logits", logits, DType::F32, len);
    len / experts
}

fn is_sigmoid(score: RouterScore) -> u32 {
    u32::from(score == RouterScore::Sigmoid)
}
