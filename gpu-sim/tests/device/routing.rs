//! Routing of tokens to experts, on the host and on simulated devices.

mod router;

use meshwright::backend::ops::routing::{
    CombineTokensArgs, CombineWeightGradArgs, DispatchTokensArgs, GroupByExpertArgs, TopKArgs,
};
use meshwright::backend::{DType, RoutingShape};

use crate::support::{
    FLOATS, Side, assert_close, assert_same, devices, epsilon, host, numbers_below, on_both, values,
};

/// The host and every device.
fn sides() -> impl Iterator<Item = Side> {
    devices().into_iter().chain([host()])
}

/// Columns of the `k` largest, NaN before all numbers, and the lower of equal ones first.
fn largest(row: &[f32], k: usize) -> Vec<u32> {
    let mut cols: Vec<u32> = (0..row.len() as u32).collect();
    cols.sort_by(|a, b| {
        let [x, y] = [a, b].map(|col| row[*col as usize]);
        let by_number = y.partial_cmp(&x).unwrap_or_else(|| y.is_nan().cmp(&x.is_nan()));
        by_number.then(a.cmp(b))
    });
    cols.truncate(k);
    cols
}

/// Few different numbers, so that many are equal, and some special ones.
fn scores(tokens: usize, experts: usize) -> Vec<f32> {
    let mut scores: Vec<f32> = values(tokens * experts, 1);
    scores.iter_mut().for_each(|x| *x = (*x * 4.0).round() / 4.0);
    let special = [f32::NAN, -0.0, 0.0, f32::NEG_INFINITY, f32::INFINITY];
    for (special, x) in special.into_iter().zip(scores.iter_mut().step_by(7)) {
        *x = special;
    }
    scores
}

/// The largest scores and their experts.
fn top_k(
    side: &Side,
    dtype: DType,
    scores: &[f32],
    experts: usize,
    k: usize,
) -> (Vec<f32>, Vec<u32>) {
    let tokens = scores.len() / experts;
    let mut values = side.blank(DType::F32, tokens * k);
    let mut choices = side.put(&vec![u32::MAX; tokens * k]);
    side.backend().top_k(TopKArgs {
        experts,
        k,
        scores: side.floats(dtype, scores).view(),
        values: values.view_mut(),
        choices: choices.view_mut(),
    });
    (values.numbers(), choices.get())
}

#[test]
fn top_k_breaks_ties_by_the_lower_expert() {
    for side in sides() {
        for dtype in FLOATS {
            for (tokens, experts, k) in
                [(0, 4, 2), (1, 1, 1), (37, 8, 2), (9, 64, 8), (5, 33, 3), (3, 300, 8), (4, 8, 8)]
            {
                let scores = scores(tokens, experts);
                let (found, choices) = top_k(&side, dtype, &scores, experts, k);
                let rows = scores.chunks_exact(experts);
                let expected: Vec<u32> = rows.clone().flat_map(|row| largest(row, k)).collect();
                assert_eq!(choices, expected, "{k} of {experts}, {dtype}");
                let of_row = |(row, cols): (&[f32], &[u32])| -> Vec<f32> {
                    cols.iter().map(|col| row[*col as usize]).collect()
                };
                let numbers: Vec<f32> =
                    rows.zip(expected.chunks_exact(k)).flat_map(of_row).collect();
                assert_same("scores", &found, &numbers);
            }
        }
    }
}

/// Counts, order and positions of choices.
fn groups(choices: &[u32], experts: usize) -> [Vec<u32>; 3] {
    let of = |expert: usize| {
        choices.iter().enumerate().filter(move |(_, c)| (**c as usize).min(experts) == expert)
    };
    let counts = (0..experts).map(|expert| of(expert).count() as u32).collect();
    let order: Vec<u32> =
        (0..=experts).flat_map(|expert| of(expert).map(|(i, _)| i as u32)).collect();
    let mut positions = vec![0; choices.len()];
    for (position, choice) in order.iter().enumerate() {
        positions[*choice as usize] = position as u32;
    }
    [counts, order, positions]
}

#[test]
fn choices_are_grouped_by_expert_in_order() {
    for side in sides() {
        for (n, experts) in [(0, 3), (1, 1), (70, 8), (12_000, 60), (2048, 256), (900, 1000)] {
            // Some of an expert that does not exist.
            let choices = numbers_below(experts as u32 + 2, n, 3);
            let [mut counts, mut order, mut positions] =
                [experts, n, n].map(|len| side.put(&vec![u32::MAX; len]));
            side.backend().group_by_expert(GroupByExpertArgs {
                choices: side.put(&choices).view(),
                counts: counts.view_mut(),
                order: order.view_mut(),
                positions: positions.view_mut(),
            });
            let got = [counts, order, positions].map(|operand| operand.get::<u32>());
            assert_eq!(got, groups(&choices, experts), "{n} choices of {experts} experts");
        }
    }
}

/// Tokens, choices of each, columns, and the number of rows of choices.
const SIZES: [(usize, usize, usize, usize); 5] =
    [(0, 2, 4, 0), (1, 1, 1, 1), (30, 2, 24, 60), (9, 8, 5, 50), (17, 3, 264, 40)];

/// Rows of `x[tokens, cols]` at the positions of their choices.
fn dispatch(
    side: &Side,
    dtype: DType,
    shape: RoutingShape,
    x: &[f32],
    order: &[u32],
    weights: Option<&[f32]>,
) -> Vec<f32> {
    let cols = x.len().checked_div(shape.tokens).unwrap_or(0);
    let weights = weights.map(|weights| side.put(weights));
    let mut out = side.blank(dtype, order.len() * cols);
    side.backend().dispatch_tokens(
        shape,
        DispatchTokensArgs {
            x: side.floats(dtype, x).view(),
            order: side.put(order).view(),
            weights: weights.as_ref().map(|weights| weights.view()),
            out: out.view_mut(),
        },
    );
    out.numbers()
}

/// Sums of the rows of each token's choices.
fn combine(
    side: &Side,
    dtype: DType,
    shape: RoutingShape,
    (x, cols): (&[f32], usize),
    positions: &[u32],
    weights: Option<&[f32]>,
) -> Vec<f32> {
    let weights = weights.map(|weights| side.put(weights));
    let mut out = side.blank(dtype, shape.tokens * cols);
    side.backend().combine_tokens(
        shape,
        CombineTokensArgs {
            x: side.floats(dtype, x).view(),
            positions: side.put(positions).view(),
            weights: weights.as_ref().map(|weights| weights.view()),
            out: out.view_mut(),
        },
    );
    out.numbers()
}

#[test]
fn rows_go_to_experts_and_back_with_their_weights() {
    for side in sides() {
        for dtype in FLOATS {
            for (tokens, top_k, cols, rows) in SIZES {
                let shape = RoutingShape { tokens, top_k };
                let [_, order, positions] = groups(&numbers_below(5, shape.choices(), 1), 5);
                let [x, y] = [(tokens, 2), (rows, 3)].map(|(n, seed)| values(n * cols, seed));
                let all_weights = values(shape.choices(), 4);
                for with_weights in [false, true] {
                    let weights = with_weights.then_some(&all_weights[..]);
                    let weight_of =
                        |choice: usize| if with_weights { all_weights[choice] } else { 1.0 };

                    let out = dispatch(&side, dtype, shape, &x, &order[..rows], weights);
                    let numbers = side.floats(dtype, &x).numbers();
                    let expected: Vec<f32> = order[..rows]
                        .iter()
                        .map(|choice| *choice as usize)
                        .flat_map(|choice| {
                            let row = &numbers[choice / top_k * cols..][..cols];
                            row.iter().map(move |x| weight_of(choice) * x)
                        })
                        .collect();
                    let rounded = side.floats(dtype, &expected).numbers();
                    assert_same("dispatched", &out, &rounded);

                    let out = combine(&side, dtype, shape, (&y, cols), &positions, weights);
                    let numbers = side.floats(dtype, &y).numbers();
                    let mut expected = vec![0.0; tokens * cols];
                    for (choice, position) in positions.iter().enumerate() {
                        let sum = &mut expected[choice / top_k * cols..][..cols];
                        if let Some(row) =
                            numbers.get(*position as usize * cols..).filter(|row| row.len() >= cols)
                        {
                            sum.iter_mut().zip(row).for_each(|(s, x)| *s += weight_of(choice) * x);
                        }
                    }
                    assert_close("combined", &out, &expected, epsilon(dtype), 1e-6);
                }
            }
        }
    }
}

/// Gradients of the weights of a combination.
fn weight_grad(
    side: &Side,
    dtype: DType,
    shape: RoutingShape,
    [x, dy]: [&[f32]; 2],
    positions: &[u32],
) -> Vec<f32> {
    let mut dweights = side.blank(DType::F32, shape.choices());
    side.backend().combine_weight_grad(
        shape,
        CombineWeightGradArgs {
            x: side.floats(dtype, x).view(),
            positions: side.put(positions).view(),
            dy: side.floats(dtype, dy).view(),
            dweights: dweights.view_mut(),
        },
    );
    dweights.numbers()
}

#[test]
fn gradients_of_weights_are_dot_products() {
    for side in sides() {
        for dtype in FLOATS {
            for (tokens, top_k, cols, rows) in SIZES {
                let shape = RoutingShape { tokens, top_k };
                let [.., positions] = groups(&numbers_below(5, shape.choices(), 1), 5);
                let [dy, x] = [(tokens, 2), (rows, 3)].map(|(n, seed)| values(n * cols, seed));
                let got = weight_grad(&side, dtype, shape, [&x, &dy], &positions);
                let [dy, x] = [dy, x].map(|operand| side.floats(dtype, &operand).numbers());
                let dot = |(choice, position): (usize, &u32)| -> f32 {
                    if *position as usize >= rows {
                        return 0.0;
                    }
                    let x = &x[*position as usize * cols..][..cols];
                    dy[choice / top_k * cols..].iter().zip(x).map(|(dy, x)| dy * x).sum()
                };
                let expected: Vec<f32> = positions.iter().enumerate().map(dot).collect();
                assert_close("weights", &got, &expected, 1e-5, 1e-5);
            }
        }
    }
}

/// Selection, grouping and dispatch have the bits of the host; sums are in another order.
#[test]
fn devices_agree_with_the_host() {
    let shape = RoutingShape { tokens: 70, top_k: 3 };
    let (experts, cols) = (20, 40);
    let (scores, x) = (scores(shape.tokens, experts), values(shape.tokens * cols, 2));
    for dtype in FLOATS {
        let run = |side: &Side| {
            let (weights, choices) = top_k(side, dtype, &scores, experts, shape.top_k);
            let finite: Vec<f32> =
                weights.iter().map(|x| if x.is_finite() { *x } else { 1.0 }).collect();
            let [_, order, positions] = groups(&choices, experts);
            let rows = dispatch(side, dtype, shape, &x, &order, Some(&finite));
            let sums = combine(side, dtype, shape, (&rows, cols), &positions, Some(&finite));
            let grads = weight_grad(side, dtype, shape, [&rows, &x], &positions);
            (weights, choices, rows, sums, grads)
        };
        on_both(run, |got, expected| {
            assert_same("weights", &got.0, &expected.0);
            assert_eq!(got.1, expected.1);
            assert_same("rows", &got.2, &expected.2);
            assert_close("sums", &got.3, &expected.3, epsilon(dtype), 1e-6);
            assert_close("gradients", &got.4, &expected.4, 1e-5, 1e-5);
        });
    }
}
