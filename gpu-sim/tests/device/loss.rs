//! Parts of the cross-entropy on a simulated device.

use std::sync::Arc;

use meshwright::backend::DType;
use meshwright::backend::ops::loss::{
    CrossEntropyArgs, CrossEntropyGradArgs, ExpSumArgs, MaxExpSumArgs,
};
use meshwright_cuda::DeviceProperties;
use meshwright_gpu_sim::{Entry, SimDevice, h100, not_checked_on_gpu};

use crate::support::{
    FLOATS, Side, assert_close, assert_same, device_with, devices, epsilon, on_both, values,
};

/// Rows and columns: for warps, and for blocks of several sizes.
const SIZES: [(usize, usize); 7] =
    [(0, 5), (1, 1), (9, 7), (3, 64), (10, 1003), (3, 1025), (2, 9001)];

/// First column of this shard.
const FIRST: usize = 10;

struct Case {
    logits: Vec<f32>,
    /// Targets before, inside and after the columns.
    targets: Vec<u32>,
    scale: Vec<f32>,
    cols: usize,
}

impl Case {
    fn new(rows: usize, cols: usize) -> Case {
        Case {
            logits: values(rows * cols, 1).into_iter().map(|x| 20.0 * x).collect(),
            targets: (0..rows as u32).map(|i| i * 31 % (cols as u32 + 20)).collect(),
            scale: values(rows, 5),
            cols,
        }
    }
}

/// Returns the maxima, sums, target logits and gradients.
fn pieces(side: &Side, dtype: DType, case: &Case) -> [Vec<f32>; 4] {
    let (backend, cols, rows) = (side.backend(), case.cols, case.targets.len());
    let mut logits = side.floats(dtype, &case.logits);
    let (targets, scale) = (side.put(&case.targets), side.put(&case.scale));
    let [mut max, mut sum, mut target] = [(); 3].map(|()| side.blank(DType::F32, rows));
    backend.row_max(cols, logits.view(), max.view_mut());
    backend.exp_sum(ExpSumArgs {
        cols,
        logits: logits.view(),
        max: max.view(),
        targets: targets.view(),
        first_col: FIRST,
        sum_exp: sum.view_mut(),
        target_logit: target.view_mut(),
    });
    backend.cross_entropy_grad(CrossEntropyGradArgs {
        cols,
        logits: logits.view_mut(),
        max: max.view(),
        sum_exp: sum.view(),
        targets: targets.view(),
        first_col: FIRST,
        row_scale: scale.view(),
    });
    [max, sum, target, logits].map(|operand| operand.numbers())
}

fn assert_pieces_agree(what: &str, dtype: DType, got: &[Vec<f32>; 4], expected: &[Vec<f32>; 4]) {
    assert_same(&format!("{what}: max"), &got[0], &expected[0]);
    assert_close(&format!("{what}: sum"), &got[1], &expected[1], 1e-6, 0.0);
    assert_same(&format!("{what}: target"), &got[2], &expected[2]);
    // At the target, 1 is subtracted from the probability: the error is that of numbers below 1.
    let tolerance = epsilon(dtype).max(2e-6);
    assert_close(&format!("{what}: gradient"), &got[3], &expected[3], tolerance, 1e-6);
}

#[test]
fn pieces_are_those_of_the_host() {
    for dtype in FLOATS {
        for (rows, cols) in SIZES {
            let case = Case::new(rows, cols);
            on_both(
                |side| pieces(side, dtype, &case),
                |got, expected| {
                    assert_pieces_agree(&format!("{dtype} {rows}x{cols}"), dtype, got, expected);
                },
            );
        }
    }
}

#[test]
fn nan_and_infinities_propagate_as_on_the_cpu() {
    for cols in [131, 1500] {
        for special in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for position in [0, 3, 63, 130] {
                let mut case = Case::new(4, cols);
                case.logits[position] = special;
                // A row of only such values, and an ignored row.
                case.logits[2 * cols..4 * cols].fill(special);
                case.scale[3] = 0.0;
                on_both(
                    |side| pieces(side, DType::F32, &case),
                    |got, expected| {
                        let what = format!("{special} at {position} of {cols}");
                        assert_pieces_agree(&what, DType::F32, got, expected);
                        assert!(got[3][3 * cols..].iter().all(|g| *g == 0.0));
                    },
                );
            }
        }
    }
}

/// Returns the maxima, sums and target logits.
fn in_one_pass(side: &Side, dtype: DType, case: &Case) -> [Vec<f32>; 3] {
    let logits = side.floats(dtype, &case.logits);
    let targets = side.put(&case.targets);
    let [mut max, mut sum, mut target] =
        [(); 3].map(|()| side.blank(DType::F32, case.targets.len()));
    side.backend().max_exp_sum(MaxExpSumArgs {
        cols: case.cols,
        logits: logits.view(),
        targets: targets.view(),
        first_col: FIRST,
        max: max.view_mut(),
        sum_exp: sum.view_mut(),
        target_logit: target.view_mut(),
    });
    [max, sum, target].map(|operand| operand.get())
}

/// Increasing logits, so that the maximum changes constantly; padding; only padding; NaN; infinity.
fn with_special_rows(mut case: Case) -> Case {
    let cols = case.cols;
    for (row, logits) in case.logits.chunks_exact_mut(cols).enumerate() {
        match row {
            1 => logits.iter_mut().enumerate().for_each(|(i, x)| *x = i as f32 / 9.0),
            2 => logits[..cols / 2].fill(f32::NEG_INFINITY),
            3 => logits.fill(f32::NEG_INFINITY),
            4 => logits[cols / 3] = f32::NAN,
            5 => logits[cols / 3] = f32::INFINITY,
            _ => {}
        }
    }
    case
}

#[test]
fn one_pass_gives_what_two_give() {
    for device in devices() {
        for dtype in FLOATS {
            for (rows, cols) in SIZES {
                let case = with_special_rows(Case::new(rows, cols));
                let [max, sum, target, _] = pieces(&device, dtype, &case);
                let got = in_one_pass(&device, dtype, &case);
                assert_same("max", &got[0], &max);
                assert_close("sum", &got[1], &sum, 1e-6, 0.0);
                assert_same("target", &got[2], &target);
            }
        }
    }
}

/// Returns the maxima, sums, target logits and gradients of a single call.
fn in_one_call(side: &Side, dtype: DType, case: &Case) -> [Vec<f32>; 4] {
    let mut logits = side.floats(dtype, &case.logits);
    let [mut max, mut sum, mut target] =
        [(); 3].map(|()| side.blank(DType::F32, case.targets.len()));
    side.backend().cross_entropy(CrossEntropyArgs {
        cols: case.cols,
        logits: logits.view_mut(),
        targets: side.put(&case.targets).view(),
        first_col: FIRST,
        row_scale: side.put(&case.scale).view(),
        max: max.view_mut(),
        sum_exp: sum.view_mut(),
        target_logit: target.view_mut(),
    });
    [max, sum, target, logits].map(|operand| operand.numbers())
}

/// Returns the gradient for these statistics.
fn gradient(side: &Side, dtype: DType, case: &Case, max: &[f32], sum: &[f32]) -> Vec<f32> {
    let mut logits = side.floats(dtype, &case.logits);
    let [max, sum, scale] = [max, sum, &case.scale].map(|x| side.put(x));
    side.backend().cross_entropy_grad(CrossEntropyGradArgs {
        cols: case.cols,
        logits: logits.view_mut(),
        max: max.view(),
        sum_exp: sum.view(),
        targets: side.put(&case.targets).view(),
        first_col: FIRST,
        row_scale: scale.view(),
    });
    logits.numbers()
}

/// Rows processed by warps, by blocks that keep them in shared memory, and by blocks that cannot because they are too
/// long.
#[test]
fn fused_statistics_and_gradients_are_bitwise_equal() {
    for device in devices() {
        for dtype in FLOATS {
            for (rows, cols) in SIZES.into_iter().chain([(3, 61_003)]) {
                let mut case = with_special_rows(Case::new(rows, cols));
                if let Some(scale) = case.scale.last_mut() {
                    *scale = 0.0;
                }
                let got = in_one_call(&device, dtype, &case);
                let [max, sum, target] = in_one_pass(&device, dtype, &case);
                assert_same("max", &got[0], &max);
                assert_same("sum", &got[1], &sum);
                assert_same("target", &got[2], &target);
                let expected = gradient(&device, dtype, &case, &max, &sum);
                assert_same(&format!("{dtype} {rows}x{cols}"), &got[3], &expected);
            }
        }
    }
}

#[test]
fn fused_statistics_and_gradients_match_the_cpu() {
    for dtype in FLOATS {
        for (rows, cols) in SIZES {
            let case = Case::new(rows, cols);
            on_both(
                |side| in_one_call(side, dtype, &case),
                |got, expected| {
                    assert_pieces_agree(&format!("{dtype} {rows}x{cols}"), dtype, got, expected);
                },
            );
        }
    }
}

/// Two blocks of a multiprocessor keep rows in shared memory, for whose registers they have 512 threads, in either
/// dtype. A row that is too long is that of one block of 1024.
#[test]
fn kept_rows_have_blocks_of_512_threads() {
    if not_checked_on_gpu() {
        return;
    }
    for (dtype, cols, expected) in [
        (DType::F32, 9001, ("cross_entropy_kept_f32", 512)),
        (DType::Bf16, 18_002, ("cross_entropy_kept_bf16", 512)),
        (DType::F32, 30_001, ("cross_entropy_f32", 1024)),
    ] {
        let device = SimDevice::with(7, h100());
        in_one_call(&device_with(Arc::new(device.driver()), 0), dtype, &Case::new(2, cols));
        let log = device.log();
        let launches = log.iter().filter_map(Entry::launch);
        let launches: Vec<_> = launches.map(|(kernel, grid)| (kernel, grid.threads)).collect();
        assert_eq!(launches, [expected]);
    }
}

/// More rows than blocks, with any alignment.
#[test]
fn a_block_keeps_one_row_after_the_other() {
    if not_checked_on_gpu() {
        return;
    }
    let case = Case::new(70, 1025);
    let results = [(227 << 10, "cross_entropy_kept_bf16", 2080), (4096, "cross_entropy_bf16", 0)]
        .map(|(shared_memory, expected, bytes)| {
            let properties = DeviceProperties { multiprocessors: 1, shared_memory, ..h100() };
            let device = SimDevice::with(7, properties);
            let results =
                in_one_call(&device_with(Arc::new(device.driver()), 0), DType::Bf16, &case);
            // All of the work of one kernel.
            let log = device.log();
            let launches: Vec<_> = log.iter().filter_map(Entry::launch).collect();
            let [(kernel, grid)] = launches[..] else { panic!("{launches:?}") };
            assert_eq!((kernel, grid.shared), (expected, bytes));
            assert!(grid.blocks[0] < 70, "{grid:?}");
            results
        });
    assert_eq!(results[0], results[1]);
}
