//! Numbers of operands.

use half::bf16;
use meshwright_backend::DType;

/// Both float dtypes.
pub const FLOATS: [DType; 2] = [DType::F32, DType::Bf16];

/// Returns values in [-1, 1), different for every seed.
pub fn values(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Returns values in [-factor, factor), different for every seed.
pub fn scaled(len: usize, seed: u64, factor: f32) -> Vec<f32> {
    values(len, seed).into_iter().map(|x| factor * x).collect()
}

/// Returns integers below `end`.
pub(crate) fn numbers_below(end: u32, len: usize, seed: u64) -> Vec<u32> {
    values(len, seed).into_iter().map(|x| ((x + 1.0) / 2.0 * end as f32) as u32 % end).collect()
}

/// Returns the distance between 1 and the next number of a dtype.
pub fn epsilon(dtype: DType) -> f32 {
    match dtype {
        DType::Bf16 => 1.0 / 128.0,
        _ => f32::EPSILON,
    }
}

/// Returns the nearest number of a float dtype.
pub(crate) fn round(dtype: DType, x: f32) -> f32 {
    match dtype {
        DType::Bf16 => bf16::from_f32(x).to_f32(),
        _ => x,
    }
}

pub(crate) fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().copied().map(f64::from).collect()
}

/// Returns the pairs of both float dtypes.
pub(crate) fn float_pairs() -> impl Iterator<Item = (DType, DType)> {
    FLOATS.into_iter().flat_map(|from| FLOATS.map(|to| (from, to)))
}
