//! Dropout of weights: a pass of its own over a tile, which draws the words of four weights together.

use std::ops::Range;

use crate::philox::philox4x32;
use crate::simd::dispatch;
use meshwright_backend::{AttentionShape, GlobalPositions, WeightDropout};

/// Positions of one side of the blocks whose words are drawn together: those that differ by half of it share draws.
const BLOCK: usize = 16;
const HALF: usize = BLOCK / 2;

/// Draws that are computed together.
const LANES: usize = 16;

/// Keys of these draws.
const KEYS: usize = 2 * LANES;

/// The factors of weights before they are multiplied by values: 0 if they are dropped, or 1. Results are multiplied by
/// `kept`, so that weights which are rounded to bf16 are those without dropout.
pub(super) struct WeightFactors {
    dropout: WeightDropout,
    threshold: u32,
    /// The factor of the weights that are kept.
    pub kept: f32,
}

/// The draws of the queries at one position and half a block later, of one head.
struct QueryDraws {
    key: [u32; 2],
    threshold: u32,
    /// The counter but for the word of the key.
    unit: u32,
    head: u32,
    row: u32,
}

impl WeightFactors {
    /// Returns the factors of a call with dropout.
    pub fn new(s: &AttentionShape) -> Option<WeightFactors> {
        let dropout = s.dropout?;
        let (threshold, kept) = (dropout.threshold(), dropout.kept_factor());
        Some(WeightFactors { dropout, threshold, kept })
    }

    /// Multiplies the weights of some queries of a head, in rows of `row_len`, by their factors. A row begins with the
    /// weights of `keys`.
    pub fn multiply(
        &self,
        [sample, head]: [usize; 2],
        queries: Range<usize>,
        keys: Range<usize>,
        row_len: usize,
        weights: &mut [f32],
    ) {
        let WeightDropout { key, rows, first_head, queries: positions, keys: of_keys, .. } =
            self.dropout;
        let runs = consecutive_runs(&of_keys, keys.clone());
        let position = |row: usize| positions.position(queries.start + row);
        for row in 0..queries.len() {
            let at = position(row);
            let is_upper = at % BLOCK < HALF;
            // A query that shares its draws with an earlier one has had them.
            if !is_upper && row >= HALF && position(row - HALF) + HALF == at {
                continue;
            }
            let has_lower =
                is_upper && row + HALF < queries.len() && position(row + HALF) == at + HALF;
            let draws = QueryDraws {
                key: [key as u32, (key >> 32) as u32],
                threshold: self.threshold,
                unit: (at / BLOCK * HALF + at % HALF) as u32,
                head: (first_head + head) as u32,
                row: rows.position(sample) as u32,
            };
            let (before, after) = weights.split_at_mut(((row + HALF) * row_len).min(weights.len()));
            for (first, run) in &runs {
                let run = run.start - keys.start..run.end - keys.start;
                let own = &mut before[row * row_len..][run.clone()];
                let none: &mut [f32] = &mut [];
                let halves = match (is_upper, has_lower) {
                    (true, true) => [own, &mut after[run]],
                    (true, false) => [own, none],
                    (false, _) => [none, own],
                };
                multiply_run(&draws, *first, halves);
            }
        }
    }
}

/// Returns runs of indices at consecutive positions, and the position of the first one of each.
fn consecutive_runs(
    positions: &GlobalPositions,
    indices: Range<usize>,
) -> Vec<(usize, Range<usize>)> {
    let middle = positions.gap_at.clamp(indices.start, indices.end);
    [indices.start..middle, middle..indices.end]
        .into_iter()
        .filter(|run| !run.is_empty())
        .map(|run| (positions.position(run.start), run))
        .collect()
}

dispatch! {
    /// Multiplies the weights of keys from position `first` on, of the query at the position of the draws and of that
    /// half a block later; without weights of one of them, it is left out.
    fn multiply_run<const FMA: bool>(draws: &QueryDraws, first: usize, halves: [&mut [f32]; 2]) {
        let [upper, lower] = halves;
        let end = first + upper.len().max(lower.len());
        for base in (first / BLOCK * BLOCK..end).step_by(KEYS) {
            let mut counters = [[0; LANES], [draws.unit; LANES], [draws.head; LANES], [draws.row; LANES]];
            for (lane, counter) in counters[0].iter_mut().enumerate() {
                *counter = (base / 2 + lane) as u32;
            }
            let words = philox4x32(draws.key, counters);
            let keys = first.max(base)..end.min(base + KEYS);
            let (inside, of_base) = (keys.start - first..keys.end - first, keys.start - base);
            for (weights, words) in [&mut *upper, &mut *lower].into_iter().zip(words.chunks_exact(2)) {
                if weights.is_empty() {
                    continue;
                }
                let mut factors = [0.0; KEYS];
                for (block, factors) in factors.chunks_exact_mut(BLOCK).enumerate() {
                    for (words, factors) in words.iter().zip(factors.chunks_exact_mut(HALF)) {
                        for (word, factor) in words[block * HALF..].iter().zip(factors) {
                            *factor = if *word < draws.threshold { 0.0 } else { 1.0 };
                        }
                    }
                }
                for (weight, factor) in weights[inside.clone()].iter_mut().zip(&factors[of_base..]) {
                    *weight *= factor;
                }
            }
        }
    }
}

dispatch! {
    /// `x *= y * factor`, element by element.
    pub(super) fn multiply_each<const FMA: bool>(x: &mut [f32], y: &[f32], factor: f32) {
        for (x, y) in x.iter_mut().zip(y) {
            *x *= y * factor;
        }
    }
}
