//! Rounding of bf16: keys and values travel in it, and partial results in f32.

use half::bf16;

use super::case::{Case, Style, largest_difference};
use meshwright_backend::{Band, DType};

/// Differences of results from exact arithmetic, of several draws of operands together: a maximum of one draw is mostly
/// chance.
#[derive(Debug, Default)]
struct Errors {
    squares: f64,
    count: usize,
    largest: f64,
}

impl Errors {
    fn add(&mut self, actual: &[f32], expected: &[f64]) {
        let squares = actual.iter().zip(expected).map(|(a, b)| (f64::from(*a) - b).powi(2));
        self.squares += squares.sum::<f64>();
        self.count += actual.len();
        self.largest = self.largest.max(largest_difference(actual, expected));
    }

    fn root_mean_square(&self) -> f64 {
        (self.squares / self.count as f64).sqrt()
    }
}

const NAMES: [&str; 6] = ["out", "dq", "dk", "dv", "dsinks", "dbias"];

/// Attention of all ranks together is at most twice as far from exact arithmetic on the same operands as that of one
/// rank.
#[test]
fn ranks_round_no_more_than_one_rank() {
    let grouped = Case::causal(192, 8, 2);
    let packing = [vec![5, 100, 87], vec![192]];
    let biased = Case { has_bias: true, has_sinks: true, bias_distance: 40, ..grouped.clone() };
    let biased = Case { band: Band::ALL, documents: Some(packing), ..biased };
    for case in [Case::causal(192, 8, 8), grouped, biased] {
        let draws = (0..4).map(|draw| {
            let case = Case { draw, ..case.clone() };
            let rounded = |x: Vec<f32>| x.into_iter().map(|x| bf16::from_f32(x).to_f32()).collect();
            let expected = case.reference_of(case.operands().map(rounded));
            (case, expected)
        });
        let draws: Vec<_> = draws.collect();
        let of = |ranks, style| -> [Errors; 6] {
            let mut errors: [Errors; 6] = Default::default();
            for (case, expected) in &draws {
                let results = case.on_ranks_with(ranks, style, DType::Bf16, |comms| comms);
                for ((errors, got), expected) in
                    errors.iter_mut().zip(&results.arrays).zip(expected)
                {
                    errors.add(got, expected);
                }
            }
            errors
        };
        let alone = of(1, Style::Ring);
        for style in [Style::Ring, Style::Gather, Style::Exchange(8), Style::Exchange(2)] {
            let errors = of(8, style);
            let results = if case.has_bias { 6 } else { 4 };
            for (name, (errors, alone)) in NAMES.iter().zip(errors.iter().zip(&alone)).take(results)
            {
                assert!(alone.squares > 0.0, "one rank rounds {name}");
                let is_near = errors.root_mean_square() <= 2.0 * alone.root_mean_square()
                    && errors.largest <= 2.0 * alone.largest;
                assert!(is_near, "{name} of {style:?}: {errors:?}, alone {alone:?}: {case:?}");
            }
        }
    }
}
