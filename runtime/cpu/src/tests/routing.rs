mod reference;
mod router;

use super::{assert_close, assert_same_on_any_threads, on_every_backend, values, wide};
use meshwright_backend::ops::routing::{
    CombineTokensArgs, CombineWeightGradArgs, DispatchTokensArgs, GroupByExpertArgs, TopKArgs,
};
use meshwright_backend::{Backend, RoutingShape};

/// The chosen scores, the order and the positions of their choices.
fn route(cpu: &dyn Backend, scores: &[f32], experts: usize, k: usize) -> (Vec<f32>, [Vec<u32>; 2]) {
    let n = scores.len() / experts * k;
    let mut weights = vec![f32::NAN; n];
    let [mut choices, mut order, mut positions] = [(); 3].map(|()| vec![u32::MAX; n]);
    let mut counts = vec![u32::MAX; experts];
    cpu.top_k(TopKArgs {
        experts,
        k,
        scores: scores.into(),
        values: (&mut weights[..]).into(),
        choices: (&mut choices[..]).into(),
    });
    cpu.group_by_expert(GroupByExpertArgs {
        choices: (&choices[..]).into(),
        counts: (&mut counts[..]).into(),
        order: (&mut order[..]).into(),
        positions: (&mut positions[..]).into(),
    });
    assert_eq!(counts.iter().sum::<u32>() as usize, n);
    (weights, [order, positions])
}

/// Rows of choices, rows of tokens that are combined from them, and gradients of weights.
fn exchange(
    cpu: &dyn Backend,
    shape: RoutingShape,
    x: &[f32],
    weights: &[f32],
    [order, positions]: &[Vec<u32>; 2],
) -> [Vec<f32>; 3] {
    let mut rows = vec![f32::NAN; x.len() * shape.top_k];
    let mut out = vec![f32::NAN; x.len()];
    let mut dweights = vec![f32::NAN; shape.choices()];
    cpu.dispatch_tokens(
        shape,
        DispatchTokensArgs {
            x: x.into(),
            order: order[..].into(),
            weights: None,
            out: (&mut rows[..]).into(),
        },
    );
    cpu.combine_tokens(
        shape,
        CombineTokensArgs {
            x: (&rows[..]).into(),
            positions: positions[..].into(),
            weights: Some(weights.into()),
            out: (&mut out[..]).into(),
        },
    );
    cpu.combine_weight_grad(
        shape,
        CombineWeightGradArgs {
            x: (&rows[..]).into(),
            positions: positions[..].into(),
            dy: x.into(),
            dweights: (&mut dweights[..]).into(),
        },
    );
    [rows, out, dweights]
}

#[test]
fn tokens_come_back_with_the_sum_of_their_weights() {
    let shape = RoutingShape { tokens: 301, top_k: 3 };
    let (experts, cols) = (20, 70);
    let (scores, x) = (values(shape.tokens * experts, 1), values(shape.tokens * cols, 2));
    on_every_backend(|cpu| {
        let (weights, groups) = route(cpu, &scores, experts, shape.top_k);
        let [_, out, dweights] = exchange(cpu, shape, &x, &weights, &groups);
        let (mut expected, mut expected_grads) = (Vec::new(), Vec::new());
        for (row, weights) in x.chunks_exact(cols).zip(weights.chunks_exact(shape.top_k)) {
            let (row, sum) = (wide(row), wide(weights).iter().sum::<f64>());
            expected.extend(row.iter().map(|x| x * sum));
            let square: f64 = row.iter().map(|x| x * x).sum();
            expected_grads.extend([square; 3]);
        }
        assert_close("combined", &out, &expected, 1e-6);
        assert_close("gradients of weights", &dweights, &expected_grads, 1e-6);
    });
}

#[test]
fn routing_is_the_same_on_any_number_of_threads() {
    let shape = RoutingShape { tokens: 2000, top_k: 2 };
    let (experts, cols) = (60, 33);
    let (scores, x) = (values(shape.tokens * experts, 1), values(shape.tokens * cols, 2));
    assert_same_on_any_threads("routing", |cpu| {
        let (weights, groups) = route(cpu, &scores, experts, shape.top_k);
        let [rows, out, dweights] = exchange(cpu, shape, &x, &weights, &groups);
        [weights, rows, out, dweights].concat()
    });
}
