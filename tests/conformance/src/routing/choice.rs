//! Scores that tokens choose experts by.

use meshwright_backend::ops::routing::ChoiceScoresArgs;
use meshwright_backend::{DType, ExpertGroups, RouterOptions, RouterScore};

use super::formula;
use crate::values::wide;
use crate::{Operand, Target, scaled, values};

/// Experts, and groups of them.
const SIZES: [(usize, Option<ExpertGroups>); 8] = [
    (1, None),
    (33, None),
    (8, groups(2, 1, 2)),
    (8, groups(4, 2, 1)),
    (24, groups(3, 3, 2)),
    (60, groups(6, 2, 3)),
    (256, groups(8, 4, 2)),
    (96, groups(32, 5, 2)),
];

const fn groups(count: usize, best: usize, top: usize) -> Option<ExpertGroups> {
    Some(ExpertGroups { count, best, top })
}

fn scores_of(
    target: &Target,
    options: RouterOptions,
    experts: usize,
    logits: &[f32],
    bias: Option<&[f32]>,
) -> Operand {
    let mut scores = target.blank(DType::F32, logits.len());
    let logits = target.put(logits);
    let bias = bias.map(|bias| target.put(bias));
    target.backend().choice_scores(
        options,
        ChoiceScoresArgs {
            experts,
            logits: logits.view(),
            bias: bias.as_ref().map(Operand::view),
            scores: scores.view_mut(),
        },
    );
    scores
}

/// Scores follow the formula, with a bias and without.
pub fn choice_scores(target: &Target) {
    for (tokens, (experts, groups)) in [0, 7].into_iter().flat_map(|n| SIZES.map(|s| (n, s))) {
        let (logits, bias) = (scaled(tokens * experts, 1, 4.0), values(experts, 2));
        for score in [RouterScore::Softmax, RouterScore::Sigmoid] {
            for bias in [None, Some(&bias[..])] {
                let options = RouterOptions { score, groups, ..RouterOptions::default() };
                let found = scores_of(target, options, experts, &logits, bias);
                let wide_bias = bias.map_or(vec![0.0; experts], wide);
                let is_sigmoid = score == RouterScore::Sigmoid;
                let of_token = |logits: &[f32]| {
                    formula::choice_scores(is_sigmoid, groups, &wide(logits), &wide_bias)
                };
                let expected: Vec<f64> = logits.chunks_exact(experts).flat_map(of_token).collect();
                // Excluded scores are compared as numbers.
                let finite = |x: f64| if x.is_finite() { x } else { -8.0 };
                let numbers = found.numbers();
                let excluded = |x: &f32| *x == f32::NEG_INFINITY;
                let what = format!("{experts} experts, {options:?}, bias {}", bias.is_some());
                for (index, (found, expected)) in numbers.iter().zip(&expected).enumerate() {
                    assert_eq!(excluded(found), !expected.is_finite(), "{what}: element {index}");
                    let found = finite(f64::from(*found));
                    let difference = (found - finite(*expected)).abs();
                    assert!(difference < 2e-6, "{what}: element {index} is {found}");
                }
            }
        }
    }
}

/// The lower ones of equal groups are chosen.
pub fn equal_scores(target: &Target) {
    let groups = groups(4, 2, 2);
    let options = RouterOptions { score: RouterScore::Sigmoid, groups, ..RouterOptions::default() };
    let found = scores_of(target, options, 8, &[0.0; 16], None).numbers();
    let expected = [[0.5; 4], [f32::NEG_INFINITY; 4]].concat().repeat(2);
    assert_eq!(found, expected);
}
