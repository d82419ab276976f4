//! Scores that tokens choose experts by (MoE), on the CPU.

use super::math::{lane_max, lane_sum, larger, zip_map};
use super::router::Scores;
use super::score_key::score_key;
use super::scratch::with_scratch;
use super::simd::dispatch;
use super::softmax::row_count;
use super::workers::{Rows, Workers};
use meshwright_backend::ops::routing::{
    ChoiceScoresArgs, ExpertGroups, RouterOptions, RouterScore,
};

pub(super) fn choice_scores(workers: &Workers, options: RouterOptions, args: ChoiceScoresArgs) {
    let ChoiceScoresArgs { experts, logits, bias, mut scores } = args;
    let (logits, scores) = (logits.typed::<f32>(), scores.typed());
    let bias: Option<&[f32]> = bias.map(|bias| bias.typed());
    let tokens = row_count(logits.len(), experts);
    assert_eq!(scores.len(), logits.len(), "choice_scores: a score for each logit");
    let fits = bias.is_none_or(|bias| bias.len() == experts);
    assert!(fits, "choice_scores: a bias of each of {experts} experts");
    if let Some(mistake) = options.groups.and_then(|groups| groups.mistake(experts, 1)) {
        panic!("choice_scores: {mistake}");
    }
    workers.rows(tokens, experts, Rows(scores, experts), |range, scores| {
        for (token, scores) in range.zip(scores.0.chunks_exact_mut(experts)) {
            scores_of_token(options.score, &logits[token * experts..][..experts], scores);
            if let Some(bias) = bias {
                scores.iter_mut().zip(bias).for_each(|(score, bias)| *score += bias);
            }
            if let Some(groups) = options.groups {
                exclude_groups(groups, scores);
            }
        }
    });
}

dispatch! {
    fn scores_of_token<const FMA: bool>(score: RouterScore, logits: &[f32], out: &mut [f32]) {
        let (scores, sum) = match score {
            RouterScore::Sigmoid => (Scores::of_sigmoid(), 1.0),
            RouterScore::Softmax => {
                let scores = Scores::up_to(score, lane_max(logits, larger));
                (scores, lane_sum([logits], |[logit]| scores.get::<FMA>(logit)))
            }
        };
        zip_map([logits], out, |[logit]| scores.get::<FMA>(logit) / sum);
    }
}

/// Sets the scores of all experts to negative infinity whose group is not among the best ones.
fn exclude_groups(groups: ExpertGroups, scores: &mut [f32]) {
    let ExpertGroups { count, best, top } = groups;
    let size = scores.len() / count;
    with_scratch(count, |sums| {
        for (sum, scores) in sums.iter_mut().zip(scores.chunks_exact(size)) {
            *sum = sum_of_largest(scores, top);
        }
        let key = |group: usize| score_key(sums[group], group as u32);
        for (group, scores) in scores.chunks_exact_mut(size).enumerate() {
            let better = (0..count).filter(|other| key(*other) > key(group)).count();
            if better >= best {
                scores.fill(f32::NEG_INFINITY);
            }
        }
    });
}

/// Adds up the `top` largest scores, the largest first.
fn sum_of_largest(scores: &[f32], top: usize) -> f32 {
    let (mut last, mut sum) = (u64::MAX, 0.0);
    for _ in 0..top {
        let keys = scores.iter().enumerate().map(|(col, score)| score_key(*score, col as u32));
        last = keys.filter(|key| *key < last).max().unwrap_or_default();
        sum += scores[(u32::MAX - last as u32) as usize];
    }
    sum
}
