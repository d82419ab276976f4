//! Attention and its backward.

mod case;
mod dropout;
mod formula;
mod masks;
mod parts;
mod random;
mod special;

use meshwright_backend::{AttentionShape, Band, DType, SequenceLayout};

use crate::{FLOATS, Target};
pub use case::{Case, Results, shape};
pub use dropout::{dropped, dropped_at_random, dropped_parts, dropped_rate};
pub use masks::{backward_ranges, biases, distant_biases, empty, masks, scores, value_dims};
pub use parts::{fixed_parts, merged_rows, random_parts};
use random::{DIMS, Random};
pub use special::{
    accumulation, infinite_biases, large_scores, nan, nan_in_document, rows_without_keys,
    rows_without_scores, wide_results,
};

/// Checks all results of a case against the formula.
#[track_caller]
fn check(target: &Target, what: &str, case: &Case) {
    let got = case.run(target);
    if !target.compares_digest_alone() {
        let expected = case.reference(&got[0]);
        expected.check(target, &format!("{what} {:?}", case.s), case.dtype, &got);
    }
}

/// Full, partial and single tiles of tensor cores; grouped heads; head dims of every tile size, and partial ones.
fn tiles() -> [AttentionShape; 12] {
    [
        shape(1, 1, [1, 1, 64], true),
        shape(2, 65, [4, 2, 64], true),
        shape(1, 128, [1, 1, 64], false),
        shape(1, 259, [2, 1, 64], true),
        shape(1, 131, [2, 2, 64], false),
        shape(1, 200, [2, 1, 128], true),
        shape(1, 70, [1, 1, 128], false),
        shape(2, 40, [3, 1, 8], true),
        shape(1, 150, [1, 1, 40], false),
        shape(1, 100, [1, 1, 96], true),
        shape(1, 80, [2, 1, 136], false),
        shape(1, 100, [1, 1, 256], true),
    ]
}

/// Sizes of other kernels, and of tiles of a CPU.
fn others(causal: bool) -> ([AttentionShape; 8], [AttentionShape; 5]) {
    let usual = [
        shape(1, 1, [1, 1, 1], causal),
        shape(2, 7, [2, 1, 8], causal),
        shape(2, 17, [2, 1, 8], causal),
        shape(1, 40, [4, 2, 18], causal),
        shape(1, 50, [3, 3, 33], causal),
        shape(1, 64, [2, 2, 64], causal),
        shape(1, 20, [1, 1, 256], causal),
        shape(2, 90, [4, 2, 32], causal),
    ];
    let large = [
        shape(1, 1, [1, 1, 2], causal),
        shape(2, 65, [4, 2, 18], causal),
        shape(1, 129, [3, 3, 34], causal),
        shape(1, 515, [2, 1, 16], causal),
        shape(1, 640, [1, 1, 128], causal),
    ];
    (usual, large)
}

/// Self-attention of many sizes follows the formula.
pub fn formula(target: &Target) {
    for s in tiles() {
        check(target, "tiles", &Case::new(s, DType::Bf16));
    }
    for (dtype, causal) in FLOATS.into_iter().flat_map(|dtype| [(dtype, true), (dtype, false)]) {
        let (usual, large) = others(causal);
        for s in target.cases(&usual, &large) {
            check(target, "others", &Case::new(s, dtype));
        }
    }
    for s in target.cases(&[], &tiles()) {
        check(target, "tiles", &Case::new(s, DType::F32));
    }
}

/// Random cases follow the formula.
pub fn random(target: &Target) {
    let check = |seed: u64, dtype: DType, lengths: &[usize], dims: &[[usize; 2]]| {
        let case = Random(seed).case(dtype, lengths, dims);
        check(target, &format!("random case {seed}"), &case);
    };
    (0..48).for_each(|seed| check(seed, DType::F32, &[70], &DIMS));
    (0..24).for_each(|seed| check(seed, DType::Bf16, &[150], &[[64, 64]]));
    for seed in target.cases(&[], &(100..350).collect::<Vec<_>>()) {
        let dtype = if seed % 4 == 3 { DType::Bf16 } else { DType::F32 };
        check(seed, dtype, &[2, 40, 40, 150, 150, 700], &DIMS);
    }
}

/// Sequences that are partitioned among threads: by queries if there are fewer heads than threads, and in the backward
/// by blocks of keys if there are fewer key/value heads; with every mask and score function, and several query heads of
/// one key/value head.
pub fn long_sequences(target: &Target) {
    let causal = shape(1, 1300, [3, 1, 16], true);
    let window = Band { before: Some(700), ..Band::CAUSAL };
    let ahead = Band { offset: 130, before: Some(600), after: Some(50) };
    let documents = |_, query| [query as u32 / 300 * 300, query as u32 / 300 * 300 + 300];
    let odd = AttentionShape { value_dim: 34, ..shape(2, 705, [2, 1, 18], true) };
    let longer = shape(1, 5000, [1, 1, 4], true);
    for dtype in FLOATS {
        let case = |s| Case::new(s, dtype);
        let cases = [
            case(shape(1, 1100, [2, 1, 8], true)),
            case(causal),
            case(AttentionShape { band: window, ..causal }),
            case(AttentionShape { band: ahead, soft_cap: Some(2.0), ..causal }),
            case(AttentionShape { keys: SequenceLayout { len: 1500, pitch: 1600 }, ..causal })
                .with_ranges(documents)
                .with_sinks(),
            case(odd).with_sinks(),
            case(odd).with_bias(900, 750),
            // Over more queries than one task of a CPU's forward pass has.
            case(AttentionShape { band: Band { before: Some(600), ..Band::CAUSAL }, ..longer }),
        ];
        for case in target.cases(&[], &cases) {
            check(target, "a long sequence", &case);
        }
    }
}
