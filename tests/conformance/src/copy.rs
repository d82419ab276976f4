//! Copies, casts and in-place arithmetic.

use half::bf16;
use meshwright_backend::{BlockCopy, DType};

use crate::values::{float_pairs, values};
use crate::{FLOATS, Target};

const LENS: [usize; 7] = [0, 1, 7, 17, 64, 1000, 5003];

/// Elements for several threads of a CPU.
const LARGE: [usize; 1] = [40_001];

/// Returns numbers of many magnitudes, NaN and infinities.
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

/// Casts, sums and averages are rounded as their definitions state, for each pair of dtypes.
pub fn updates(target: &Target) {
    for (to, from) in float_pairs() {
        for len in target.cases(&LENS, &LARGE) {
            let src = target.floats(from, &mixed(len, 1));
            let [mut cast, mut sum, mut mean] =
                [3, 4, 5].map(|seed| target.floats(to, &mixed(len, seed)));
            let [x, old_sum, old_mean] = [&src, &sum, &mean].map(|operand| operand.numbers());
            target.backend().cast(src.view(), cast.view_mut());
            target.backend().add_assign(sum.view_mut(), src.view());
            target.backend().lerp(mean.view_mut(), src.view(), 0.3);
            let what = |name| format!("{name} of {len} from {from}");
            let of_both = |old: &[f32], f: fn(f32, f32) -> f32| -> Vec<f32> {
                old.iter().zip(&x).map(|(old, x)| f(*old, *x)).collect()
            };
            target.check_exactly(&what("cast"), &cast, &x);
            target.check_exactly(&what("add_assign"), &sum, &of_both(&old_sum, |old, x| old + x));
            let averages = of_both(&old_mean, |old, x| old + 0.3 * (x - old));
            target.check_exactly(&what("lerp"), &mean, &averages);
        }
    }
}

/// The two operands of a sum may be aligned differently.
pub fn alignments(target: &Target) {
    for (to, from) in float_pairs() {
        let src = target.floats(from, &values(1001, 1));
        let mut dst = target.floats(to, &values(1000, 2));
        let expected: Vec<f32> =
            dst.numbers().iter().zip(&src.numbers()[1..]).map(|(dst, src)| dst + src).collect();
        target.backend().add_assign(dst.view_mut(), src.view().slice(1..1001));
        target.check_exactly(&format!("from {from}"), &dst, &expected);
    }
}

/// Every bf16 number is kept by casts; of f32 numbers around it the nearest is taken, ties to even, NaN to NaN.
pub fn casts(target: &Target) {
    let lower = [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff];
    // Some of all exponents where calls are slow.
    let step = target.cases(&[97], &[1]).into_iter().min().expect("a step");
    let upper = (0..=u16::MAX).step_by(step).map(|upper| u32::from(upper) << 16);
    let wide: Vec<f32> =
        upper.flat_map(|upper| lower.map(|lower| f32::from_bits(upper | lower))).collect();
    let [from, narrow_from] = [DType::F32, DType::Bf16].map(|dtype| target.floats(dtype, &wide));
    let [mut copied, mut widened] = [(); 2].map(|()| target.blank(DType::F32, wide.len()));
    let mut rounded = target.blank(DType::Bf16, wide.len());
    target.backend().cast(from.view(), rounded.view_mut());
    target.backend().cast(narrow_from.view(), widened.view_mut());
    target.backend().cast(from.view(), copied.view_mut());
    // Zeros have their sign, and NaN any bits.
    let bits = |x: &[f32]| -> Vec<u32> {
        x.iter().map(|x| if x.is_nan() { f32::NAN } else { *x }.to_bits()).collect()
    };
    let narrow: Vec<f32> = wide.iter().map(|x| bf16::from_f32(*x).to_f32()).collect();
    assert!(bits(&rounded.numbers()) == bits(&narrow));
    assert!(bits(&widened.numbers()) == bits(&narrow));
    assert!(bits(&copied.numbers()) == bits(&wide));
}

/// `fill` and `scale` are exact.
pub fn fill_and_scale(target: &Target) {
    for dtype in FLOATS {
        for len in target.cases(&LENS, &LARGE) {
            for value in [0.0, -0.0, 1.7, -2.0, f32::NAN] {
                let mut filled = target.blank(dtype, len);
                let mut scaled = target.floats(dtype, &mixed(len, 1));
                let expected: Vec<f32> = scaled.numbers().iter().map(|x| x * value).collect();
                target.backend().fill(filled.view_mut(), value);
                target.backend().scale(scaled.view_mut(), value);
                target.check_exactly(&format!("fill of {len}"), &filled, &vec![value; len]);
                target.check_exactly(&format!("scale of {len}"), &scaled, &expected);
            }
        }
    }
}

/// Runs are copied, and nothing else changes.
pub fn runs(target: &Target) {
    // Blocks, length, start and stride of the source, start and stride of the destination.
    let usual = [
        [0, 4, 0, 4, 0, 4],
        [3, 0, 0, 4, 0, 4],
        [1, 100, 7, 0, 3, 0],
        [1, 2, 1, 0, 2, 0],
        [5, 8, 0, 8, 0, 8],
        [5, 8, 16, 24, 8, 8],
        [5, 4, 4, 12, 0, 8],
        [5, 6, 2, 10, 4, 6],
        [7, 3, 1, 5, 2, 9],
        [40, 64, 0, 192, 64, 128],
        // One run to many destinations.
        [4, 16, 32, 0, 0, 16],
    ];
    let large = [[9999, 5, 2, 9, 1, 6]];
    for [blocks, len, src_start, src_stride, dst_start, dst_stride] in target.cases(&usual, &large)
    {
        let copy = BlockCopy { blocks, len, src_start, src_stride, dst_start, dst_stride };
        let end = |start, stride| start + blocks * stride + len + 3;
        let src: Vec<u32> = (0..end(src_start, src_stride) as u32).collect();
        let dst: Vec<u32> =
            (0..end(dst_start, dst_stride) as u32).map(|i| i + 0x4000_0000).collect();
        let mut expected = dst.clone();
        for block in 0..blocks {
            let (from, to) = (src_start + block * src_stride, dst_start + block * dst_stride);
            expected[to..to + len].copy_from_slice(&src[from..from + len]);
        }
        let what = format!("{copy:?}");
        let (from, mut to) = (target.put(&src), target.put(&dst));
        target.backend().copy_blocks(&copy, from.view(), to.view_mut());
        assert_eq!(to.get::<u32>(), expected, "{what}");
        // Any bits, also of NaN.
        let floats =
            |x: &[u32]| x.iter().map(|x| f32::from_bits(x.wrapping_mul(77))).collect::<Vec<_>>();
        let halves = |x: &[u32]| x.iter().map(|x| bf16::from_bits(*x as u16)).collect::<Vec<_>>();
        let (from, mut to) = (target.put(&floats(&src)), target.put(&floats(&dst)));
        target.backend().copy_blocks(&copy, from.view(), to.view_mut());
        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&to.get::<f32>()), bits(&floats(&expected)), "{what}");
        let (from, mut to) = (target.put(&halves(&src)), target.put(&halves(&dst)));
        target.backend().copy_blocks(&copy, from.view(), to.view_mut());
        let bits = |x: &[bf16]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&to.get::<bf16>()), bits(&halves(&expected)), "{what}");
    }
}
