//! Lengths, bands, key ranges, soft caps, biases and sinks.

use meshwright_backend::{AttentionShape, Band, DType, SequenceLayout};

use super::case::{Case, shape};
use super::check;
use crate::{FLOATS, Target};

/// `[queries, keys]`, each `[length, pitch]`.
fn lengths(s: AttentionShape, [queries, keys]: [[usize; 2]; 2]) -> AttentionShape {
    let [queries, keys] = [queries, keys].map(|[len, pitch]| SequenceLayout { len, pitch });
    AttentionShape { queries, keys, ..s }
}

fn band(
    s: AttentionShape,
    offset: isize,
    before: Option<usize>,
    after: Option<usize>,
) -> AttentionShape {
    AttentionShape { band: Band { offset, before, after }, ..s }
}

/// Dtypes and lengths for kernels with large or small tiles, to be filled in part by both lengths.
const TILES: [(DType, [usize; 2]); 3] =
    [(DType::Bf16, [70, 150]), (DType::F32, [19, 37]), (DType::Bf16, [19, 37])];

fn mask_cases(dtype: DType, [small, large]: [usize; 2]) -> Vec<Case> {
    let s = |batch, heads| shape(batch, 1, heads, true);
    let both = |len: [usize; 2]| [len, len];
    let case = |s| Case::new(s, dtype);
    let cross = [[small, small], [large, large]];
    let shorter = [[large, large], [small, small]];
    vec![
        // More queries than keys, and the reverse: the last query sees the last key, or some see nothing.
        case(band(
            lengths(s(2, [2, 1, 16]), [[large, large + 3], [small, small + 1]]),
            0,
            None,
            Some(0),
        )),
        case(band(lengths(s(1, [2, 1, 16]), cross), (large - small) as isize, None, Some(0))),
        case(band(lengths(s(1, [1, 1, 16]), both([large; 2])), -(small as isize), None, Some(2))),
        // Windows, in both directions, of self-attention and of cross-attention.
        case(band(
            lengths(s(2, [2, 2, 16]), both([large, large + 5])),
            0,
            Some(small / 2),
            Some(0),
        )),
        case(band(lengths(s(1, [3, 1, 16]), cross), 7, Some(9), Some(small))),
        case(band(lengths(s(1, [1, 1, 16]), shorter), -3, Some(5), None)),
        // Documents, with and without a window, and queries of padding at the end.
        case(lengths(s(2, [2, 1, 16]), both([large, large + 2]))).with_documents(&[1, small, 17]),
        case(band(lengths(s(1, [2, 1, 16]), both([large; 2])), 0, Some(20), Some(20)))
            .with_documents(&[small + 3, large - small - 3]),
        // Query heads that begin inside of a group, and key/value heads that no query reads.
        case(AttentionShape {
            group: 3,
            first_head: 2,
            ..lengths(s(1, [4, 3, 16]), both([small; 2]))
        }),
    ]
}

/// Queries see the keys of their band and range.
pub fn masks(target: &Target) {
    for (dtype, sizes) in TILES {
        mask_cases(dtype, sizes).iter().for_each(|case| check(target, "mask", case));
    }
}

/// Everything that changes scores, together.
pub fn scores(target: &Target) {
    for (dtype, [small, large]) in TILES {
        let s = |batch, heads| {
            let s = lengths(shape(batch, 1, heads, true), [[large, large + 1]; 2]);
            AttentionShape { soft_cap: Some(1.5), ..s }
        };
        let biased = Case::new(s(1, [2, 1, 16]), dtype).with_bias(small, small / 2).with_sinks();
        check(target, "scores", &biased);
        let windowed = band(s(2, [2, 2, 16]), 0, Some(small), Some(3));
        let windowed = Case::new(windowed, dtype)
            .with_documents(&[small - 5, 3, 20])
            .with_bias(2 * large, large)
            .with_sinks();
        check(target, "scores", &Case { wide: true, accumulate: true, ..windowed });
    }
}

/// Values may have another width than keys.
pub fn value_dims(target: &Target) {
    let of_f32 = [[12, 5], [5, 12]].map(|dims| (DType::F32, dims));
    let of_bf16 = [[192, 128], [16, 64], [64, 128]].map(|dims| (DType::Bf16, dims));
    for (dtype, [head_dim, value_dim]) in of_f32.into_iter().chain(of_bf16) {
        let s = shape(1, 70, [2, 1, head_dim], true);
        check(target, "dims", &Case::new(AttentionShape { value_dim, ..s }, dtype));
    }
}

/// Biases are clamped to their distances: distances that no pair has, and blocks of a longer sequence that have some of
/// the distances, or the first or last alone.
pub fn biases(target: &Target) {
    // A single bias has no gradient but rounding errors, since it changes no weight.
    for (distances, zero) in [(2, 0), (3, 1), (200, 0), (200, 199)] {
        let case = Case::new(shape(1, 40, [2, 2, 4], false), DType::F32);
        check(target, "distances", &case.with_bias(distances, zero).with_sinks());
    }
    for offset in [-1000, -90, -20, 17, 90, 1000] {
        let s = band(shape(2, 40, [2, 2, 4], false), offset, None, None);
        let case = Case { accumulate: true, ..Case::new(s, DType::F32) };
        check(target, "offsets", &case.with_bias(31, 12));
    }
}

/// Blocks of a ring: keys before and after the queries, whose distances are not all in the table.
pub fn distant_biases(target: &Target) {
    for offset in [-150, -40, 70, 150] {
        let before = (offset == 70).then_some(100);
        let s = band(shape(1, 150, [2, 1, 64], false), offset, before, None);
        let case = Case { wide: true, accumulate: true, ..Case::new(s, DType::Bf16) };
        check(target, "offsets", &case.with_bias(120, 50).with_sinks());
    }
}

/// Neither keys nor queries nor samples.
pub fn empty(target: &Target) {
    for (dtype, accumulate) in FLOATS.into_iter().flat_map(|dtype| [(dtype, false), (dtype, true)])
    {
        for (batch, len) in [(2, [0, 20]), (2, [20, 0]), (2, [0, 0]), (0, [20, 20])] {
            let s = lengths(shape(batch, 1, [2, 1, 16], false), len.map(|len| [len, len + 1]));
            let case = Case::new(s, dtype).with_bias(9, 4).with_sinks();
            check(target, "nothing", &Case { accumulate, wide: accumulate, ..case });
        }
        check(target, "nothing", &Case::new(shape(3, 0, [2, 1, 64], true), dtype));
    }
}

/// Ranges may end before they begin, next to others far from there.
pub fn backward_ranges(target: &Target) {
    for first in target.cases(&[20], &[32, 100, 170]) {
        let s = shape(1, 700, [2, 1, 4], false);
        let s = AttentionShape { queries: SequenceLayout::dense(170), ..s };
        let ends = |query: usize| if query < first { 37 } else { 690 };
        let case = Case::new(s, DType::F32).with_ranges(|_, query| [600, ends(query)]);
        check(target, "empty ranges", &case);
    }
}
