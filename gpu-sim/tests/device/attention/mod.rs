//! Attention on a simulated device, or on a GPU by the project's own kernels or by cuDNN.

mod barriers;
pub mod case;
mod changed;
mod dispatch;
mod masks;
mod parts;
mod random_cases;
mod reference;

use meshwright::backend::DType;
use meshwright_gpu_sim::{drivers, not_checked};

use crate::support::{assert_close, assert_same, device, host};
use case::{Case, NAMES, Results, shape};

/// Errors of each result, relative to its largest value: in f32 errors of summation, as on a CPU; in bf16 also the
/// rounding of results, weights and score gradients.
const F32: [f64; 7] = [1e-6; 7];
const BF16: [f64; 7] = [4e-3, 2e-6, 1e-2, 1e-2, 6e-3, 1e-2, 1e-2];
/// Tolerances like [`BF16`] for cuDNN, whose exponentials and logarithms of `lse` are less accurate.
const BF16_CUDNN: [f64; 7] = [4e-3, 1e-4, 1e-2, 1e-2, 6e-3, 1e-2, 1e-2];

/// Returns whether the device under test computes aligned bf16 attention by cuDNN.
fn runs_cudnn() -> bool {
    drivers(0, 1)[0].attention().is_some()
}

#[track_caller]
fn assert_follows_the_formula(case: &Case, got: &Results) {
    let most = match case.dtype {
        DType::F32 => F32,
        _ if runs_cudnn() => BF16_CUDNN,
        _ => BF16,
    };
    for ((name, error), most) in NAMES.iter().zip(case.errors(got)).zip(most) {
        assert!(error <= most, "{name} of {} {:?}: error {error:e}", case.dtype, case.s);
    }
}

/// Full, partial and single tiles; grouped heads; head dims of every tile size, and partial ones.
#[test]
fn tensor_cores_follow_the_formula() {
    for (number, s) in [
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
    .into_iter()
    .enumerate()
    {
        let case = Case::new(s, DType::Bf16);
        // Aligned to 16 bytes, at the start of memory and at an offset.
        assert_follows_the_formula(&case, &case.run(&device(number as u64, number % 2 * 8)));
    }
}

#[test]
fn other_kernels_follow_the_formula() {
    for dtype in [DType::F32, DType::Bf16] {
        for (skew, s) in [
            shape(1, 1, [1, 1, 1], true),
            shape(2, 17, [2, 1, 8], true),
            shape(1, 40, [4, 2, 18], true),
            shape(1, 50, [3, 3, 33], false),
            shape(1, 64, [2, 2, 64], false),
            shape(1, 20, [1, 1, 256], true),
        ]
        .into_iter()
        .enumerate()
        {
            let case = Case::new(s, dtype);
            assert_follows_the_formula(&case, &case.run(&device(7, 2 * skew + 1)));
        }
    }
}

#[test]
fn results_are_those_of_the_host() {
    for causal in [true, false] {
        let s = shape(2, 90, [4, 2, 32], causal);
        for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::Bf16, 2e-2)] {
            let case = Case::new(s, dtype);
            let (got, expected) = (case.run(&device(3, 0)), case.run(&host()));
            for (i, name) in NAMES.iter().enumerate() {
                let largest = expected[i].iter().fold(0.0, |max: f32, x| max.max(x.abs()));
                assert_close(name, &got[i], &expected[i], 0.0, tolerance * largest);
            }
        }
    }
}

#[test]
fn results_are_bitwise_equal_in_any_thread_order() {
    for dtype in [DType::F32, DType::Bf16] {
        let case = Case::new(shape(1, 150, [2, 1, 32], true), dtype);
        let expected = case.run(&device(0, 0));
        for seed in 1..4 {
            let got = case.run(&device(seed, 0));
            for (i, name) in NAMES.iter().enumerate() {
                assert_same(name, &got[i], &expected[i]);
            }
        }
    }
}

#[test]
fn nan_reaches_only_rows_that_attend_to_it() {
    for dtype in [DType::F32, DType::Bf16] {
        let mut case = Case::new(shape(1, 200, [1, 1, 16], true), dtype);
        case.k[70 * 16] = f32::NAN;
        let [out, lse, ..] = case.run(&device(5, 0));
        for (i, row) in out.chunks_exact(16).enumerate() {
            assert!(row.iter().all(|x| x.is_nan() == (i >= 70)), "{dtype} row {i}");
            assert_eq!(lse[i].is_nan(), i >= 70, "{dtype} row {i}");
        }
    }
}

#[test]
fn large_scores_stay_finite() {
    for dtype in [DType::F32, DType::Bf16] {
        let mut case = Case::new(shape(1, 100, [1, 1, 16], true), dtype);
        case.q.iter_mut().for_each(|x| *x *= 256.0);
        let results = case.run(&device(5, 0));
        assert!(results.iter().flatten().all(|x| x.is_finite()), "{dtype}");
    }
}

#[test]
fn nothing_is_done_for_no_positions() {
    for s in [shape(0, 5, [2, 1, 64], true), shape(3, 0, [2, 1, 64], true)] {
        let case = Case::new(s, DType::Bf16);
        assert!(case.run(&device(1, 0)).iter().all(Vec::is_empty));
    }
}

#[test]
fn operations_are_counted() {
    if runs_cudnn() {
        return not_checked("cuDNN computes fewer products");
    }
    for (causal, pairs) in [(true, 100 * 101 / 2), (false, 100 * 100)] {
        let case = Case::new(shape(2, 100, [2, 1, 16], causal), DType::Bf16);
        let device = device(1, 0);
        case.run(&device);
        assert_eq!(device.backend().flops(), (4 + 14) * pairs * 16 * 2 * 2);
    }
    let case = Case::new(shape(1, 10, [1, 1, 144], false), DType::Bf16);
    let device = device(1, 0);
    case.run(&device);
    assert_eq!(device.backend().flops(), (4 + 16) * 10 * 10 * 144);
}
