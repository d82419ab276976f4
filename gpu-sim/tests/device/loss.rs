//! Launches of the cross-entropy kernels.

use std::sync::Arc;

use meshwright::backend::DType;
use meshwright::backend::ops::loss::CrossEntropyArgs;
use meshwright_cuda::DeviceProperties;
use meshwright_gpu_sim::{Entry, SimDevice, h100, not_checked_on_gpu};

use crate::support::{Target, device_with, scaled, values};

/// Returns the gradients of logits; some rows have no target among the columns.
fn cross_entropy(target: &Target, dtype: DType, [rows, cols]: [usize; 2]) -> Vec<f32> {
    let mut logits = target.floats(dtype, &scaled(rows * cols, 1, 20.0));
    let targets: Vec<u32> = (0..rows as u32).map(|i| i * 31 % (cols as u32 + 20)).collect();
    let [mut max, mut sum, mut found] = [(); 3].map(|()| target.blank(DType::F32, rows));
    target.backend().cross_entropy(CrossEntropyArgs {
        cols,
        logits: logits.view_mut(),
        targets: target.put(&targets).view(),
        first_col: 10,
        row_scale: target.put(&values(rows, 5)).view(),
        max: max.view_mut(),
        sum_exp: sum.view_mut(),
        target_logit: found.view_mut(),
    });
    logits.numbers()
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
        cross_entropy(&device_with(Arc::new(device.driver()), 0), dtype, [2, cols]);
        let log = device.log();
        let launches: Vec<_> = log.iter().filter_map(Entry::launch).collect();
        let [(kernel, grid)] = launches[..] else { panic!("{launches:?}") };
        assert_eq!((kernel, grid.threads), expected);
    }
}

/// More rows than blocks, with any alignment.
#[test]
fn a_block_keeps_one_row_after_the_other() {
    if not_checked_on_gpu() {
        return;
    }
    let results = [(227 << 10, "cross_entropy_kept_bf16", 2080), (4096, "cross_entropy_bf16", 0)]
        .map(|(shared_memory, expected, bytes)| {
            let properties = DeviceProperties { multiprocessors: 1, shared_memory, ..h100() };
            let device = SimDevice::with(7, properties);
            let results =
                cross_entropy(&device_with(Arc::new(device.driver()), 0), DType::Bf16, [70, 1025]);
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
