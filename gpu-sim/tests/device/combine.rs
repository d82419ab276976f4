//! Reductions over the contributions of ranks on a simulated device.

use half::bf16;
use meshwright::backend::{DType, ReduceOp, StreamKind};

use crate::support::{FLOATS, Operand, Target, assert_same, devices, values};

const OPS: [ReduceOp; 2] = [ReduceOp::Sum, ReduceOp::Max];

/// Sums in f32, in the order of contributions, rounded once.
fn expected(op: ReduceOp, dtype: DType, contributions: &[Vec<f32>]) -> Vec<f32> {
    let round = |x: f32| match dtype {
        DType::Bf16 => bf16::from_f32(x).to_f32(),
        _ => x,
    };
    let combine = |a: f32, b: f32| match op {
        ReduceOp::Sum => a + b,
        ReduceOp::Max if a.is_nan() || b.is_nan() => f32::NAN,
        ReduceOp::Max => a.max(b),
    };
    let at = |i: usize| contributions.iter().map(move |x| round(x[i])).reduce(combine);
    (0..contributions[0].len()).map(|i| round(at(i).expect("contributions"))).collect()
}

/// Reduces into a separate output, or into the contribution `into`.
fn combined(
    side: &Target,
    op: ReduceOp,
    dtype: DType,
    contributions: &[Vec<f32>],
    into: Option<usize>,
) -> Vec<f32> {
    let len = contributions[0].len();
    let mut srcs: Vec<Operand> = contributions.iter().map(|x| side.floats(dtype, x)).collect();
    let mut other = side.blank(dtype, len);
    let dst = into.map_or(&mut other, |into| &mut srcs[into]).view_mut().address();
    let addresses: Vec<*const u8> = srcs.iter().map(|src| src.view().address()).collect();
    let device = side.backend().device().expect("a device");
    // SAFETY: all operands have `len` elements of the dtype, and one stream uses them.
    unsafe { device.combine(StreamKind::Compute, op, dtype, dst, &addresses, len) };
    into.map_or(&other, |into| &srcs[into]).numbers()
}

#[test]
fn contributions_are_reduced_in_order() {
    for device in devices() {
        for (op, dtype) in OPS.into_iter().flat_map(|op| FLOATS.map(|dtype| (op, dtype))) {
            for (count, len) in [(1, 5), (2, 0), (2, 1000), (3, 67), (16, 33), (17, 40), (40, 9)] {
                let contributions: Vec<Vec<f32>> = (0..count).map(|i| values(len, i + 1)).collect();
                let expected = expected(op, dtype, &contributions);
                for into in [None, Some(0), Some(count as usize - 1)] {
                    let got = combined(&device, op, dtype, &contributions, into);
                    assert_same(&format!("{op:?} of {count} {dtype}"), &got, &expected);
                }
            }
        }
    }
}

#[test]
fn nan_of_any_contribution_stays() {
    for device in devices() {
        for (op, dtype) in OPS.into_iter().flat_map(|op| FLOATS.map(|dtype| (op, dtype))) {
            for with_nan in 0..3 {
                let mut contributions = vec![vec![1.0; 20]; 3];
                contributions[with_nan][7] = f32::NAN;
                let got = combined(&device, op, dtype, &contributions, None);
                let nans: Vec<usize> = (0..20).filter(|i| got[*i].is_nan()).collect();
                assert_eq!(nans, [7], "{op:?} with NaN in {with_nan}");
            }
        }
    }
}
