//! Rounding of bf16: keys and values travel in it, and partial results in f32.

use half::bf16;

use super::case::{Case, RankResults, Style, largest_difference};
use crate::backend::{Band, DType};

/// Returns root mean square and maximum of the differences.
fn errors(actual: &[f32], expected: &[f64]) -> [f64; 2] {
    let squares = actual.iter().zip(expected).map(|(a, b)| (f64::from(*a) - b).powi(2));
    [(squares.sum::<f64>() / actual.len() as f64).sqrt(), largest_difference(actual, expected)]
}

/// Attention of all ranks together is at most twice as far from exact arithmetic on the same operands as that of one rank.
#[test]
fn ranks_round_no_more_than_one_rank() {
    let grouped = Case::causal(192, 8, 2);
    let packing = [vec![5, 100, 87], vec![192]];
    let biased = Case { has_bias: true, has_sinks: true, bias_distance: 40, ..grouped.clone() };
    let biased = Case { band: Band::ALL, documents: Some(packing), ..biased };
    for case in [Case::causal(192, 8, 8), grouped, biased] {
        let rounded = |x: Vec<f32>| x.into_iter().map(|x| bf16::from_f32(x).to_f32()).collect();
        let expected = case.reference_of(case.operands().map(rounded));
        let on = |ranks, style| -> RankResults {
            case.on_ranks_with(ranks, style, DType::Bf16, |comms| comms)
        };
        let of = |results: RankResults| {
            let each = results.arrays.iter().zip(&expected).filter(|(got, _)| !got.is_empty());
            each.map(|(actual, expected)| errors(actual, expected)).collect::<Vec<_>>()
        };
        let alone = of(on(1, Style::Ring));
        for style in [Style::Ring, Style::Gather, Style::Exchange(8), Style::Exchange(2)] {
            let errors = of(on(8, style));
            assert_eq!(errors.len(), if case.has_bias { 6 } else { 4 });
            for (name, (errors, alone)) in
                ["out", "dq", "dk", "dv", "dsinks", "dbias"].iter().zip(errors.iter().zip(&alone))
            {
                assert!(alone[0] > 0.0, "one rank rounds");
                let is_near = errors.iter().zip(alone).all(|(error, alone)| *error <= 2.0 * alone);
                assert!(is_near, "{name} of {style:?}: {errors:?}, alone {alone:?}: {case:?}");
            }
        }
    }
}
