//! Copies, conversions and arithmetic on a simulated device.

use meshwright::backend::{BlockCopy, DType};

use crate::support::{FLOATS, Side, assert_same, on_both, values};

const LENS: [usize; 6] = [0, 1, 7, 64, 1000, 5003];

/// Numbers of many magnitudes, NaN and infinities.
fn mixed(len: usize, seed: u64) -> Vec<f32> {
    let special =
        [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 1e-40, 3.4e38, 1.0 + 1.0 / 256.0];
    let mut values = values(len, seed);
    for (i, value) in values.iter_mut().enumerate() {
        match i % 11 {
            0 => *value = special[i / 11 % special.len()],
            1 => *value *= 1e20,
            _ => {}
        }
    }
    values
}

#[test]
fn updates_are_those_of_the_host_to_the_bit() {
    for (to, from) in FLOATS.into_iter().flat_map(|to| FLOATS.map(|from| (to, from))) {
        for len in LENS {
            let update = |side: &Side| {
                let src = side.floats(from, &mixed(len, 1));
                let [mut cast, mut sum, mut mean] =
                    [3, 4, 5].map(|seed| side.floats(to, &mixed(len, seed)));
                side.backend().cast(src.view(), cast.view_mut());
                side.backend().add_assign(sum.view_mut(), src.view());
                side.backend().lerp(mean.view_mut(), src.view(), 0.3);
                [cast, sum, mean].map(|operand| operand.numbers())
            };
            on_both(update, |got, expected| {
                for (i, what) in ["cast", "add_assign", "lerp"].into_iter().enumerate() {
                    let what = format!("{what} of {len} from {from} to {to}");
                    assert_same(&what, &got[i], &expected[i]);
                }
            });
        }
    }
}

#[test]
fn operands_need_not_be_aligned_alike() {
    for (to, from) in FLOATS.into_iter().flat_map(|to| FLOATS.map(|from| (to, from))) {
        let add = |side: &Side| {
            let src = side.floats(from, &values(1001, 1));
            let mut dst = side.floats(to, &values(1000, 2));
            side.backend().add_assign(dst.view_mut(), src.view().slice(1..1001));
            dst.numbers()
        };
        on_both(add, |got, expected| assert_same(&format!("{from} to {to}"), got, expected));
    }
}

#[test]
fn fill_and_scale_are_bitwise_those_of_the_cpu() {
    for dtype in FLOATS {
        for len in LENS {
            for value in [0.0, -0.0, 1.7, f32::NAN] {
                let change = |side: &Side| {
                    let mut filled = side.blank(dtype, len);
                    let mut scaled = side.floats(dtype, &mixed(len, 1));
                    side.backend().fill(filled.view_mut(), value);
                    side.backend().scale(scaled.view_mut(), value);
                    [filled, scaled].map(|operand| operand.numbers())
                };
                on_both(change, |got, expected| {
                    assert_same(&format!("fill {len} {dtype}"), &got[0], &expected[0]);
                    assert_same(&format!("scale {len} {dtype}"), &got[1], &expected[1]);
                });
            }
        }
    }
}

#[test]
fn runs_are_copied_wherever_they_lie() {
    // Blocks, length, start and stride of the source, start and stride of the destination.
    let cases = [
        [0, 4, 0, 4, 0, 4],
        [3, 0, 0, 4, 0, 4],
        [1, 100, 7, 0, 3, 0],
        [5, 8, 0, 8, 0, 8],
        [5, 8, 16, 24, 8, 8],
        [5, 4, 4, 12, 0, 8],
        [5, 6, 2, 10, 4, 6],
        [7, 3, 1, 5, 2, 9],
        [40, 64, 0, 192, 64, 128],
        // One run to many destinations.
        [4, 16, 32, 0, 0, 16],
    ];
    for [blocks, len, src_start, src_stride, dst_start, dst_stride] in cases {
        for dtype in [DType::F32, DType::Bf16, DType::U32] {
            let copy = |side: &Side| {
                let (src, dst) = (values(8000, 1), values(6000, 2));
                let operand = |values: &[f32]| match dtype {
                    DType::U32 => side.put(&values.iter().map(|x| x.to_bits()).collect::<Vec<_>>()),
                    _ => side.floats(dtype, values),
                };
                let (src, mut dst) = (operand(&src), operand(&dst));
                side.backend().copy_blocks(
                    &BlockCopy { blocks, len, src_start, src_stride, dst_start, dst_stride },
                    src.view(),
                    dst.view_mut(),
                );
                match dtype {
                    DType::U32 => dst.get::<u32>().into_iter().map(f32::from_bits).collect(),
                    _ => dst.numbers(),
                }
            };
            on_both(copy, |got, expected| {
                assert_same(&format!("{blocks} runs of {len}, {dtype}"), got, expected);
            });
        }
    }
}
