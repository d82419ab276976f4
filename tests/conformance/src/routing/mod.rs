//! Routing of tokens to experts and back.

mod choice;
mod formula;
mod router;

use meshwright_backend::ops::routing::{
    CombineTokensArgs, CombineWeightGradArgs, DispatchTokensArgs, GroupByExpertArgs, TopKArgs,
};
use meshwright_backend::{DType, MAX_TOP_K, RoutingShape};

use crate::values::numbers_below;
use crate::{FLOATS, Operand, Target, scaled, values};
pub use choice::{choice_scores, equal_scores};
pub use router::{independent_tokens, no_score, penalties, weights};

/// Returns the columns of the `k` largest, NaN before all numbers, and the lower of equal ones first.
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

/// Returns few different numbers, so that many are equal, and some special ones.
fn scores(tokens: usize, experts: usize) -> Vec<f32> {
    let mut scores = scaled(tokens * experts, 1, 4.0);
    scores.iter_mut().for_each(|x| *x = x.round() / 4.0);
    let special = [f32::NAN, -0.0, 0.0, f32::NEG_INFINITY, f32::INFINITY];
    for (special, x) in special.into_iter().zip(scores.iter_mut().step_by(7)) {
        *x = special;
    }
    scores
}

/// The largest scores are found, and among equal ones the lower experts'.
pub fn top_k(target: &Target) {
    let usual = [
        [0, 4, 2],
        [1, 1, 1],
        [37, 8, 2],
        [9, 64, 8],
        [5, 33, 3],
        [3, 300, 8],
        [4, 8, 8],
        [4, 512, MAX_TOP_K],
        [3, MAX_TOP_K, MAX_TOP_K],
    ];
    for [tokens, experts, k] in target.cases(&usual, &[[301, 20, 3], [2000, 60, 2]]) {
        for dtype in FLOATS {
            let scores = target.floats(dtype, &scores(tokens, experts));
            let mut found = target.blank(DType::F32, tokens * k);
            let mut choices = target.put(&vec![u32::MAX; tokens * k]);
            target.backend().top_k(TopKArgs {
                experts,
                k,
                scores: scores.view(),
                values: found.view_mut(),
                choices: choices.view_mut(),
            });
            let scores = scores.numbers();
            let rows = scores.chunks_exact(experts);
            let expected: Vec<u32> = rows.clone().flat_map(|row| largest(row, k)).collect();
            let what = format!("{k} of {experts}, {dtype}");
            assert_eq!(choices.get::<u32>(), expected, "{what}");
            let of_row = |(row, cols): (&[f32], &[u32])| -> Vec<f32> {
                cols.iter().map(|col| row[*col as usize]).collect()
            };
            let numbers: Vec<f32> = rows.zip(expected.chunks_exact(k)).flat_map(of_row).collect();
            target.check_exactly(&what, &found, &numbers);
        }
    }
}

/// Returns the counts, order and positions of choices.
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

/// Choices are grouped by expert in their order, with the choices of experts that do not exist last.
pub fn grouping(target: &Target) {
    for (n, experts) in [(0, 3), (1, 1), (70, 8), (12_000, 60), (2048, 256), (900, 1000)] {
        let choices = numbers_below(experts as u32 + 2, n, 3);
        let [mut counts, mut order, mut positions] =
            [experts, n, n].map(|len| target.put(&vec![u32::MAX; len]));
        target.backend().group_by_expert(GroupByExpertArgs {
            choices: target.put(&choices).view(),
            counts: counts.view_mut(),
            order: order.view_mut(),
            positions: positions.view_mut(),
        });
        let got = [counts, order, positions].map(|operand| operand.get::<u32>());
        assert_eq!(got, groups(&choices, experts), "{n} choices of {experts} experts");
    }
}

/// Tokens, choices of each, columns, and the number of rows of choices.
const SIZES: [[usize; 4]; 7] = [
    [0, 2, 4, 0],
    [1, 1, 1, 1],
    [30, 2, 24, 60],
    [9, 8, 5, 50],
    [6, MAX_TOP_K, 5, 150],
    [17, 3, 264, 40],
    [70, 3, 40, 210],
];

/// Rows for several threads of a CPU.
const LARGE: [[usize; 4]; 2] = [[301, 3, 70, 903], [2000, 2, 33, 4000]];

/// Calls `test` with operands of tokens (`[tokens, cols]`) and of choices (`[rows, cols]`), the order and the
/// positions of choices, and the number of columns.
fn for_every_size(
    target: &Target,
    test: impl Fn(RoutingShape, &Operand, &Operand, [&[u32]; 2], usize),
) {
    for [tokens, top_k, cols, rows] in target.cases(&SIZES, &LARGE) {
        let shape = RoutingShape { tokens, top_k };
        let [_, order, positions] = groups(&numbers_below(5, shape.choices(), 1), 5);
        for dtype in FLOATS {
            let [of_tokens, of_choices] = [(tokens, 2), (rows, 3)]
                .map(|(n, seed)| target.floats(dtype, &values(n * cols, seed)));
            test(shape, &of_tokens, &of_choices, [&order[..rows], &positions], cols);
        }
    }
}

/// Rows of tokens go to the positions of their choices, multiplied by their weights.
pub fn dispatch(target: &Target) {
    for_every_size(target, |shape, x, y, [order, _], cols| {
        for has_weights in [false, true] {
            let numbers = values(shape.choices(), 4);
            let weights = has_weights.then(|| target.put(&numbers));
            let mut out = target.blank(x.dtype(), order.len() * cols);
            target.backend().dispatch_tokens(
                shape,
                DispatchTokensArgs {
                    x: x.view(),
                    order: target.put(order).view(),
                    weights: weights.as_ref().map(Operand::view),
                    out: out.view_mut(),
                },
            );
            assert_eq!(out.numbers().len(), y.numbers().len());
            let x = x.numbers();
            let row = |choice: &u32| {
                let choice = *choice as usize;
                let weight = if has_weights { numbers[choice] } else { 1.0 };
                x[choice / shape.top_k * cols..][..cols].iter().map(move |x| weight * x)
            };
            let expected: Vec<f32> = order.iter().flat_map(row).collect();
            target.check_exactly(&format!("{shape:?}, {cols} columns"), &out, &expected);
        }
    });
}

/// The rows of each token's choices are added with their weights.
pub fn combine(target: &Target) {
    for_every_size(target, |shape, x, y, [_, positions], cols| {
        for has_weights in [false, true] {
            let numbers = values(shape.choices(), 4);
            let weights = has_weights.then(|| target.put(&numbers));
            let mut out = target.blank(x.dtype(), shape.tokens * cols);
            target.backend().combine_tokens(
                shape,
                CombineTokensArgs {
                    x: y.view(),
                    positions: target.put(positions).view(),
                    weights: weights.as_ref().map(Operand::view),
                    out: out.view_mut(),
                },
            );
            let y = y.wide();
            let mut expected = vec![0.0; shape.tokens * cols];
            for (choice, position) in positions.iter().enumerate() {
                let weight = if has_weights { f64::from(numbers[choice]) } else { 1.0 };
                let sum = &mut expected[choice / shape.top_k * cols..][..cols];
                let row = y.chunks_exact(cols).nth(*position as usize);
                let row = row.into_iter().flatten();
                sum.iter_mut().zip(row).for_each(|(sum, y)| *sum += weight * y);
            }
            target.check(&format!("{shape:?}, {cols} columns"), &out, &expected, 1e-6);
        }
    });
}

/// Gradients of weights are dot products.
pub fn weight_gradients(target: &Target) {
    for_every_size(target, |shape, dy, x, [_, positions], cols| {
        let mut dweights = target.blank(DType::F32, shape.choices());
        target.backend().combine_weight_grad(
            shape,
            CombineWeightGradArgs {
                x: x.view(),
                positions: target.put(positions).view(),
                dy: dy.view(),
                dweights: dweights.view_mut(),
            },
        );
        let [x, dy] = [x, dy].map(Operand::wide);
        let dot = |(choice, position): (usize, &u32)| -> f64 {
            let row = x.chunks_exact(cols).nth(*position as usize).into_iter().flatten();
            dy[choice / shape.top_k * cols..].iter().zip(row).map(|(dy, x)| dy * x).sum()
        };
        let expected: Vec<f64> = positions.iter().enumerate().map(dot).collect();
        target.check(&format!("{shape:?}, {cols} columns"), &dweights, &expected, 1e-6);
    });
}
