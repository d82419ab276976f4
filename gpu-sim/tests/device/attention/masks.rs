//! Lengths, bands, key ranges, soft caps, biases and sinks, against the formula.

use meshwright::backend::{AttentionShape, Band, DType, SequenceLayout};

use super::assert_follows_the_formula;
use super::case::{Case, NAMES, shape};
use crate::support::{assert_same, device};

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

/// Checks a case, with operands at the start of memory and at an offset.
#[track_caller]
fn check(case: &Case, seed: u64) {
    let skew = if case.dtype == DType::Bf16 { 8 } else { 1 };
    assert_follows_the_formula(case, &case.run(&device(seed, seed as usize % 2 * skew)));
}

/// Cases for kernels with small or large tiles, to be filled in part by both lengths.
fn cases(dtype: DType, [small, large]: [usize; 2]) -> Vec<Case> {
    let s = |batch, heads| shape(batch, 1, heads, true);
    let both = |len: [usize; 2]| [len, len];
    let case = |s| Case::new(s, dtype);
    vec![
        // More queries than keys, and the reverse: the last query sees the last key, or some see nothing.
        case(band(
            lengths(s(2, [2, 1, 16]), [[large, large + 3], [small, small + 1]]),
            0,
            None,
            Some(0),
        )),
        case(band(
            lengths(s(1, [2, 1, 16]), [[small, small], [large, large]]),
            (large - small) as isize,
            None,
            Some(0),
        )),
        case(band(
            lengths(s(1, [1, 1, 16]), [[large, large], [large, large]]),
            -(small as isize),
            None,
            Some(2),
        )),
        // Windows, in both directions, of self-attention and of cross-attention.
        case(band(
            lengths(s(2, [2, 2, 16]), both([large, large + 5])),
            0,
            Some(small / 2),
            Some(0),
        )),
        case(band(
            lengths(s(1, [3, 1, 16]), [[small, small], [large, large]]),
            7,
            Some(9),
            Some(small),
        )),
        case(band(lengths(s(1, [1, 1, 16]), [[large, large], [small, small]]), -3, Some(5), None)),
        // Documents, with and without a window, and queries of padding at the end.
        case(lengths(s(2, [2, 1, 16]), both([large, large + 2]))).with_documents(&[1, small, 17]),
        case(band(lengths(s(1, [2, 1, 16]), both([large, large])), 0, Some(20), Some(20)))
            .with_documents(&[small + 3, large - small - 3]),
        // Query heads that begin inside of a group, and key/value heads that no query reads.
        case(AttentionShape {
            group: 3,
            first_head: 2,
            ..lengths(s(1, [4, 3, 16]), both([small, small]))
        }),
    ]
}

/// Cases with everything that changes scores.
fn score_cases(dtype: DType, [small, large]: [usize; 2]) -> Vec<Case> {
    let s = |batch, heads| shape(batch, 1, heads, true);
    let layout = |s, len: usize| lengths(s, [[len, len + 1], [len, len + 1]]);
    let capped = |s| AttentionShape { soft_cap: Some(1.5), ..s };
    vec![
        Case::new(capped(layout(s(1, [2, 1, 16]), large)), dtype)
            .with_bias(small, small / 2)
            .with_sinks(),
        Case {
            wide: true,
            accumulate: true,
            ..Case::new(
                capped(band(layout(s(2, [2, 2, 16]), large), 0, Some(small), Some(3))),
                dtype,
            )
            .with_documents(&[small - 5, 3, 20])
            .with_bias(2 * large, large)
            .with_sinks()
        },
    ]
}

#[test]
fn tensor_cores_see_the_right_keys() {
    for (seed, case) in cases(DType::Bf16, [70, 150]).into_iter().enumerate() {
        check(&case, seed as u64);
    }
}

#[test]
fn other_kernels_see_the_right_keys() {
    for (seed, case) in cases(DType::F32, [19, 37]).into_iter().enumerate() {
        check(&case, seed as u64);
    }
}

#[test]
fn tensor_cores_change_scores() {
    for (seed, case) in score_cases(DType::Bf16, [70, 150]).into_iter().enumerate() {
        check(&case, seed as u64);
    }
}

#[test]
fn other_kernels_change_scores() {
    for dtype in [DType::F32, DType::Bf16] {
        for (seed, case) in score_cases(dtype, [19, 37]).into_iter().enumerate() {
            // Operands that are not aligned.
            assert_follows_the_formula(&case, &case.run(&device(seed as u64, 3)));
        }
    }
}

#[test]
fn values_may_have_another_width_than_keys() {
    let of_f32 = [[12, 5], [5, 12]].map(|dims| (DType::F32, dims));
    let of_bf16 = [[192, 128], [16, 64], [64, 128]].map(|dims| (DType::Bf16, dims));
    for (dtype, dims) in of_f32.into_iter().chain(of_bf16) {
        let s = shape(1, 70, [2, 1, dims[0]], true);
        let case = Case::new(AttentionShape { value_dim: dims[1], ..s }, dtype);
        check(&case, 1);
    }
}

/// Distances that no pair has, and blocks of a longer sequence that have some of the distances, or the first or last
/// alone.
#[test]
fn biases_are_clamped_to_their_distances() {
    // A single bias has no gradient but rounding errors, since it changes no weight.
    for (distances, zero) in [(2, 0), (3, 1), (200, 0), (200, 199)] {
        let case = Case::new(shape(1, 40, [2, 2, 4], false), DType::F32);
        check(&case.with_bias(distances, zero).with_sinks(), 2);
    }
    for offset in [-1000, -90, -20, 17, 90, 1000] {
        let s = band(shape(2, 40, [2, 2, 4], false), offset, None, None);
        let case = Case { accumulate: true, ..Case::new(s, DType::F32) };
        check(&case.with_bias(31, 12), 2);
    }
}

/// Blocks of a ring on tensor cores: keys before and after the queries, whose distances are not all in the table.
#[test]
fn tensor_cores_add_biases_of_other_blocks() {
    for (seed, offset) in [-150, -40, 70, 150].into_iter().enumerate() {
        let before = (offset == 70).then_some(100);
        let s = band(shape(1, 150, [2, 1, 64], false), offset, before, None);
        let case = Case { wide: true, accumulate: true, ..Case::new(s, DType::Bf16) };
        check(&case.with_bias(120, 50).with_sinks(), seed as u64);
    }
}

#[test]
fn no_keys_and_no_queries_have_results() {
    for dtype in [DType::F32, DType::Bf16] {
        for len in [[0, 20], [20, 0]] {
            let s = lengths(shape(2, 1, [2, 1, 16], false), len.map(|len| [len, len + 1]));
            for accumulate in [false, true] {
                let case = Case::new(s, dtype).with_bias(9, 4).with_sinks();
                check(&Case { accumulate, ..case }, 3);
            }
        }
    }
}

#[test]
fn rows_without_keys_are_zero() {
    let s = band(shape(1, 40, [1, 1, 16], true), -30, None, Some(0));
    for dtype in [DType::F32, DType::Bf16] {
        let [out, lse, ..] = Case::new(s, dtype).run(&device(1, 0));
        assert!(out[..30 * 16].iter().all(|x| *x == 0.0));
        assert!(lse[..30].iter().all(|x| *x == f32::NEG_INFINITY));
        let case = Case::new(s, dtype).with_sinks();
        let [out, lse, ..] = case.run(&device(1, 0));
        assert!(out[..30 * 16].iter().all(|x| *x == 0.0));
        let sink = case.sinks.as_ref().expect("has sinks")[0];
        assert!(lse[..30].iter().all(|x| *x == sink));
    }
}

#[test]
fn results_are_bitwise_equal_in_any_thread_order() {
    for dtype in [DType::F32, DType::Bf16] {
        let case = score_cases(dtype, [70, 150]).remove(1);
        let expected = case.run(&device(0, 0));
        for seed in 1..3 {
            let got = case.run(&device(seed, 0));
            for (i, name) in NAMES.iter().enumerate() {
                assert_same(name, &got[i], &expected[i]);
            }
        }
    }
}
