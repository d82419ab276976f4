//! Concatenation, splitting and reduction of rows on a simulated device.

use std::sync::Arc;

use meshwright::backend::{
    Backend, CachingAllocator, Category, DType, Element, ReduceOp, RowPart, Runs, StreamKind, View,
    ViewMut,
};
use meshwright::comm::{Blocks, CommError, RankComms, Site, launch};
use meshwright::layout::{AxisId, AxisSet};
use meshwright::mesh::MeshShape;
use meshwright_cuda::{CallKind, CudaBackend};
use meshwright_gpu_sim::{SimDevice, not_checked_on_gpu};

use crate::support::{Operand, Target, devices, values};

/// Parts of different widths, and the whole.
fn rows(rows: usize, widths: &[usize]) -> (Vec<Vec<f32>>, Vec<f32>) {
    let parts: Vec<Vec<f32>> = widths
        .iter()
        .enumerate()
        .map(|(index, width)| values(rows * width, index as u64 + 1))
        .collect();
    let row = |row: usize| {
        parts
            .iter()
            .zip(widths)
            .flat_map(move |(part, width)| &part[row * width..(row + 1) * width])
    };
    let whole = (0..rows).flat_map(row).copied().collect();
    (parts, whole)
}

fn part_of(view: View<'_>, rows: usize) -> RowPart {
    RowPart { address: view.address() as u64, bytes: view.byte_len() / rows }
}

#[test]
fn rows_are_put_together_and_taken_apart() {
    for side in devices() {
        let device = side.backend().device().unwrap();
        for (count, widths) in [
            (3, vec![5, 1, 0, 9]),
            (17, vec![8, 16, 4]),
            (1, vec![4, 4]),
            (2, vec![3; 40]),
            (5, vec![64]),
            (4, vec![]),
        ] {
            let (parts, whole) = rows(count, &widths);
            let put = |side: &Target| -> Vec<Operand> {
                parts.iter().map(|part| side.floats(DType::F32, part)).collect()
            };
            let sources = put(&side);
            let mut joined = side.blank(DType::F32, whole.len());
            let from: Vec<RowPart> =
                sources.iter().map(|part| part_of(part.view(), count)).collect();
            let to = joined.view_mut().address();
            // SAFETY: every part has `count` rows, the whole all of them, and one stream uses them.
            unsafe { device.join_rows(StreamKind::Compute, count, to, &from) };
            assert_eq!(joined.get::<f32>(), whole, "{count} rows of {widths:?}");

            let mut apart: Vec<Operand> =
                parts.iter().map(|part| side.blank(DType::F32, part.len())).collect();
            let to: Vec<RowPart> = apart.iter().map(|part| part_of(part.view(), count)).collect();
            let from = joined.view().address();
            // SAFETY: as above.
            unsafe { device.split_rows(StreamKind::Compute, count, from, &to) };
            for (apart, part) in apart.iter_mut().zip(&parts) {
                assert_eq!(&apart.get::<f32>(), part, "{count} rows of {widths:?}");
            }
        }
    }
}

#[test]
fn runs_are_combined_as_if_they_lay_together() {
    for side in devices() {
        let device = side.backend().device().unwrap();
        for dtype in [DType::F32, DType::Bf16] {
            for (runs, start) in [
                (Runs { count: 3, len: 5, distance: 11 }, 2),
                (Runs { count: 4, len: 16, distance: 32 }, 8),
                (Runs { count: 1, len: 7, distance: 7 }, 0),
                (Runs { count: 2, len: 0, distance: 4 }, 1),
            ] {
                let len = start + runs.count * runs.distance;
                for members in [1, 2, 18] {
                    let sources: Vec<Operand> = (0..members)
                        .map(|seed| side.floats(dtype, &values(len, seed + 1)))
                        .collect();
                    let addresses: Vec<*const u8> = sources
                        .iter()
                        .map(|source| source.view().slice(start..len).address())
                        .collect();
                    let mut out = side.blank(dtype, runs.count * runs.len);
                    let to = out.view_mut().address();
                    // SAFETY: the runs are inside the sources, and `out` is large enough.
                    unsafe {
                        device.combine_runs(
                            StreamKind::Compute,
                            ReduceOp::Sum,
                            dtype,
                            to,
                            &addresses,
                            &runs,
                        );
                    }
                    let sum = |at: usize| {
                        let at = start + at / runs.len * runs.distance + at % runs.len;
                        sources
                            .iter()
                            .map(|source| source.numbers()[at])
                            .reduce(|a, b| a + b)
                            .unwrap()
                    };
                    let expected: Vec<f32> = (0..runs.count * runs.len).map(sum).collect();
                    let expected = side.floats(dtype, &expected).numbers();
                    assert_eq!(out.numbers(), expected, "{runs:?} of {members} {dtype}");
                }
            }
        }
    }
}

/// Runs a collective of two ranks that share a device, over rows of 6 and 10 elements; returns the number of copies and
/// launches.
fn calls(
    body: impl Fn(&Arc<CachingAllocator>, &dyn Fn(View<'_>, ViewMut<'_>, &Blocks, bool)) + Sync,
) -> (usize, usize) {
    let device = SimDevice::new(9);
    let mesh = MeshShape::new([(AxisId::Tp, 2)]).unwrap();
    let work = |comms: RankComms| {
        let group = comms.group(AxisSet::of(AxisId::Tp));
        let backend = CudaBackend::new(Arc::new(device.driver()));
        let allocator = CachingAllocator::on(backend.device(), usize::MAX);
        body(&allocator, &|src, dst, blocks, gathers| {
            let site = Site::new("x");
            if gathers {
                group.all_gather(&site, src, dst, blocks).unwrap()
            } else {
                group.reduce_scatter(&site, src, dst, blocks).unwrap()
            }
        });
        Ok::<_, CommError>(())
    };
    launch(&mesh, work).unwrap();
    let log = device.log();
    let count = |kind| log.iter().filter(|entry| entry.kind == kind).count();
    (count(CallKind::Copy), count(CallKind::Launch))
}

#[test]
fn inner_dim_collectives_take_one_launch_per_rank() {
    if not_checked_on_gpu() {
        return;
    }
    let blocks = Blocks::even(37, 6, 2);
    let data = |allocator: &Arc<CachingAllocator>, len| {
        allocator.alloc(f32::DTYPE, len, Category::Activations)
    };
    let gather = calls(|allocator, run| {
        let (src, mut dst) = (data(allocator, blocks.owned(0)), data(allocator, blocks.total()));
        run(src.view(), dst.view_mut(), &blocks, true);
    });
    assert_eq!(gather, (0, 2));
    let scatter = calls(|allocator, run| {
        let (src, mut dst) = (data(allocator, blocks.total()), data(allocator, blocks.owned(0)));
        run(src.view(), dst.view_mut(), &blocks, false);
    });
    assert_eq!(scatter, (0, 2));
}
