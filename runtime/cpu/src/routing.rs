//! Routing of tokens to experts (MoE), on the CPU.

use super::CpuBackend;
use super::choice_scores;
use super::float::{Float, by_float, store_rounded, workplace, workplace_len};
use super::math::{fma, lane_sum};
use super::router;
use super::score_key::score_key;
use super::scratch::with_scratch;
use super::simd::dispatch;
use super::workers::{Rows, Workers};
use meshwright_backend::ops::routing::{
    ChoiceScoresArgs, CombineTokensArgs, CombineWeightGradArgs, DispatchTokensArgs,
    GroupByExpertArgs, RouterAuxiliaryLossArgs, RouterAuxiliaryLossBackwardArgs, RouterOptions,
    RouterScore, RouterWeightsArgs, RouterWeightsBackwardArgs, TopKArgs,
};
use meshwright_backend::{MAX_TOP_K, RoutingOps, RoutingShape, View};

impl RoutingOps for CpuBackend {
    fn top_k(&self, args: TopKArgs) {
        by_float!(args.scores.dtype() => T; top_k::<T>(&self.workers, args));
    }

    fn group_by_expert(&self, args: GroupByExpertArgs) {
        let GroupByExpertArgs { choices, mut counts, mut order, mut positions } = args;
        group_by_expert(choices.typed(), counts.typed(), order.typed(), positions.typed());
    }

    fn dispatch_tokens(&self, shape: RoutingShape, args: DispatchTokensArgs) {
        by_float!(args.x.dtype() => T; dispatch_tokens::<T>(&self.workers, shape, args));
    }

    fn combine_tokens(&self, shape: RoutingShape, args: CombineTokensArgs) {
        by_float!(args.x.dtype() => T; combine_tokens::<T>(&self.workers, shape, args));
    }

    fn combine_weight_grad(&self, shape: RoutingShape, args: CombineWeightGradArgs) {
        by_float!(args.x.dtype() => T; combine_weight_grad::<T>(&self.workers, shape, args));
    }

    fn choice_scores(&self, options: RouterOptions, args: ChoiceScoresArgs) {
        choice_scores::choice_scores(&self.workers, options, args);
    }

    fn router_weights(&self, options: RouterOptions, args: RouterWeightsArgs) {
        router::router_weights(&self.workers, options, args);
    }

    fn router_weights_backward(&self, options: RouterOptions, args: RouterWeightsBackwardArgs) {
        router::router_weights_backward(&self.workers, options, args);
    }

    fn router_auxiliary_loss(&self, score: RouterScore, args: RouterAuxiliaryLossArgs) {
        router::router_auxiliary_loss(&self.workers, score, args);
    }

    fn router_auxiliary_loss_backward(
        &self,
        score: RouterScore,
        args: RouterAuxiliaryLossBackwardArgs,
    ) {
        router::router_auxiliary_loss_backward(&self.workers, score, args);
    }
}

fn top_k<T: Float>(workers: &Workers, args: TopKArgs) {
    let TopKArgs { experts, k, scores, mut values, mut choices } = args;
    let (scores, values, choices) = (scores.typed::<T>(), values.typed(), choices.typed());
    assert!((1..=MAX_TOP_K.min(experts)).contains(&k), "top_k: {k} of {experts} experts");
    let tokens = scores.len() / experts;
    assert_eq!(scores.len(), tokens * experts, "top_k: whole rows of {experts} scores");
    assert_eq!([values.len(), choices.len()], [tokens * k; 2], "top_k: {k} of {tokens} tokens");
    let outputs = (Rows(values, k), Rows(choices, k));
    workers.rows(tokens, experts, outputs, |range, (values, choices)| {
        let rows = scores[range.start * experts..range.end * experts].chunks_exact(experts);
        let outputs = values.0.chunks_exact_mut(k).zip(choices.0.chunks_exact_mut(k));
        for (row, (values, choices)) in rows.zip(outputs) {
            top_k_of_row(row, values, choices);
        }
    });
}

/// Selects the choices of a token by finding the next lower score, once per choice.
fn top_k_of_row<T: Float>(row: &[T], values: &mut [f32], choices: &mut [u32]) {
    let mut last = u64::MAX;
    for (value, choice) in values.iter_mut().zip(choices) {
        let keys = row.iter().enumerate().map(|(col, x)| score_key(x.widen_to_f32(), col as u32));
        last = keys.filter(|key| *key < last).max().unwrap_or_default();
        *choice = u32::MAX - last as u32;
        *value = row[*choice as usize].widen_to_f32();
    }
}

/// Sorts choices by expert with a counting sort, which is stable.
fn group_by_expert(choices: &[u32], counts: &mut [u32], order: &mut [u32], positions: &mut [u32]) {
    let (n, experts) = (choices.len(), counts.len());
    assert_eq!([order.len(), positions.len()], [n; 2], "group_by_expert: {n} choices");
    let expert_of = |choice: u32| (choice as usize).min(experts);
    counts.fill(0);
    for choice in choices {
        if let Some(count) = counts.get_mut(*choice as usize) {
            *count += 1;
        }
    }
    let mut next = Vec::with_capacity(experts + 1);
    let mut start = 0;
    for count in &*counts {
        next.push(start);
        start += count;
    }
    next.push(start);
    for (choice, (expert, position)) in choices.iter().zip(positions).enumerate() {
        let next = &mut next[expert_of(*expert)];
        *position = *next;
        order[*next as usize] = choice as u32;
        *next += 1;
    }
}

fn dispatch_tokens<T: Float>(workers: &Workers, shape: RoutingShape, args: DispatchTokensArgs) {
    let DispatchTokensArgs { x, order, weights, mut out } = args;
    let (x, order, out) = (x.typed::<T>(), order.typed::<u32>(), out.typed());
    let weights = checked_weights(weights, shape);
    let cols = x.len().checked_div(shape.tokens).unwrap_or(0);
    assert_eq!(x.len(), shape.tokens * cols, "dispatch_tokens: rows of {shape:?}");
    assert_eq!(out.len(), order.len() * cols, "dispatch_tokens: {} rows", order.len());
    if cols == 0 {
        return;
    }
    workers.rows(order.len(), cols, Rows(out, cols), |range, out| {
        for (choice, out) in order[range].iter().zip(out.0.chunks_exact_mut(cols)) {
            let choice = *choice as usize;
            let weight = weights.map_or(1.0, |weights| weights[choice]);
            scale_row(&x[choice / shape.top_k * cols..][..cols], weight, out);
        }
    });
}

dispatch! {
    fn scale_row<const FMA: bool, T: Float>(x: &[T], weight: f32, out: &mut [T]) {
        for (out, x) in out.iter_mut().zip(x) {
            *out = T::narrow_from_f32(x.widen_to_f32() * weight);
        }
    }
}

fn combine_tokens<T: Float>(workers: &Workers, shape: RoutingShape, args: CombineTokensArgs) {
    let CombineTokensArgs { x, positions, weights, mut out } = args;
    let (x, positions, out) = (x.typed::<T>(), positions.typed(), out.typed());
    let weights = checked_weights(weights, shape);
    let cols = out.len().checked_div(shape.tokens).unwrap_or(0);
    assert_eq!(out.len(), shape.tokens * cols, "combine_tokens: rows of {shape:?}");
    check_choices(x, cols, positions, shape);
    if cols == 0 {
        return;
    }
    workers.rows(shape.tokens, cols * shape.top_k, Rows(out, cols), |range, out| {
        with_scratch(workplace_len::<T>(cols), |scratch| {
            for (token, out) in range.zip(out.0.chunks_exact_mut(cols)) {
                let choices = token * shape.top_k..(token + 1) * shape.top_k;
                let weights = weights.map(|weights| &weights[choices.clone()]);
                combine_row(x, &positions[choices], weights, out, scratch);
            }
        });
    });
}

dispatch! {
    /// Sums the rows of one token's choices.
    fn combine_row<const FMA: bool, T: Float>(
        x: &[T], positions: &[u32], weights: Option<&[f32]>, out: &mut [T], scratch: &mut [f32],
    ) {
        let cols = out.len();
        let sums = workplace(&mut *out, &mut *scratch);
        sums.fill(0.0);
        for (choice, position) in positions.iter().enumerate() {
            let Some(row) = x.chunks_exact(cols).nth(*position as usize) else { continue };
            let weight = weights.map_or(1.0, |weights| weights[choice]);
            for (sum, x) in sums.iter_mut().zip(row) {
                *sum = fma::<FMA>(weight, x.widen_to_f32(), *sum);
            }
        }
        store_rounded(scratch, out);
    }
}

fn combine_weight_grad<T: Float>(
    workers: &Workers,
    shape: RoutingShape,
    args: CombineWeightGradArgs,
) {
    let CombineWeightGradArgs { x, positions, dy, mut dweights } = args;
    let (x, positions, dy) = (x.typed::<T>(), positions.typed::<u32>(), dy.typed::<T>());
    let dweights = dweights.typed::<f32>();
    let cols = dy.len().checked_div(shape.tokens).unwrap_or(0);
    assert_eq!(dy.len(), shape.tokens * cols, "combine_weight_grad: rows of {shape:?}");
    assert_eq!(dweights.len(), shape.choices(), "combine_weight_grad: weights of {shape:?}");
    check_choices(x, cols, positions, shape);
    workers.rows(shape.choices(), cols, Rows(dweights, 1), |range, dweights| {
        for (choice, dweight) in range.zip(dweights.0) {
            let dy = &dy[choice / shape.top_k * cols..][..cols];
            let row = x.get(positions[choice] as usize * cols..).filter(|x| !x.is_empty());
            *dweight = row.map_or(0.0, |row| row_dot(dy, &row[..cols]));
        }
    });
}

dispatch! {
    fn row_dot<const FMA: bool, T: Float>(dy: &[T], x: &[T]) -> f32 {
        lane_sum([dy, x], |[dy, x]| dy * x)
    }
}

/// Checks the rows of choices and their positions.
fn check_choices<T>(x: &[T], cols: usize, positions: &[u32], shape: RoutingShape) {
    let whole_rows = x.len().checked_rem(cols).unwrap_or(x.len()) == 0;
    assert!(whole_rows, "{} elements are whole rows of {cols}", x.len());
    assert_eq!(positions.len(), shape.choices(), "a position for every choice of {shape:?}");
}

/// Returns the weights, one for every choice.
fn checked_weights(weights: Option<View<'_>>, shape: RoutingShape) -> Option<&[f32]> {
    let weights = weights.map(|weights| weights.typed());
    let fits = weights.is_none_or(|weights: &[f32]| weights.len() == shape.choices());
    assert!(fits, "a weight for every choice of {shape:?}");
    weights
}
