//! The element types of kernels: loads widen to f32, arithmetic is in f32, stores round.

use half::bf16;

use super::simd::dispatch;
use meshwright_backend::Element;

/// An element type that kernels compute on.
pub(super) trait Float: Element {
    /// True if elements need no conversion.
    const IS_F32: bool;

    /// Positive zero.
    const ZERO: Self;

    /// Returns the value in f32.
    fn widen_to_f32(self) -> f32;

    /// Returns the nearest value of this type, ties to even; NaN stays NaN.
    fn narrow_from_f32(x: f32) -> Self;

    /// Returns the nearest bf16, ties to even.
    fn round(self) -> bf16;

    /// Returns the slice itself if its elements are f32.
    fn in_place(slice: &[Self]) -> Option<&[f32]>;

    /// Returns the exclusive slice itself if its elements are f32.
    fn in_place_mut(slice: &mut [Self]) -> Option<&mut [f32]>;
}

impl Float for f32 {
    const IS_F32: bool = true;
    const ZERO: Self = 0.0;

    #[inline(always)]
    fn widen_to_f32(self) -> f32 {
        self
    }

    #[inline(always)]
    fn narrow_from_f32(x: f32) -> Self {
        x
    }

    #[inline(always)]
    fn round(self) -> bf16 {
        bf16::narrow_from_f32(self)
    }

    #[inline(always)]
    fn in_place(slice: &[Self]) -> Option<&[f32]> {
        Some(slice)
    }

    #[inline(always)]
    fn in_place_mut(slice: &mut [Self]) -> Option<&mut [f32]> {
        Some(slice)
    }
}

impl Float for bf16 {
    const IS_F32: bool = false;
    const ZERO: Self = bf16::ZERO;

    #[inline(always)]
    fn widen_to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    // Branch-free, so that loops vectorize. The CPU's conversion instruction would flush subnormal numbers.
    #[inline(always)]
    fn narrow_from_f32(x: f32) -> Self {
        let bits = x.to_bits();
        // Adds half a unit in the last place, minus one if the last bit is even; the carry rounds up.
        let nearest = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
        // A NaN keeps its upper bits and becomes quiet; otherwise it could become an infinity.
        let quiet = bits | 0x0040_0000;
        let bits = if x.is_nan() { quiet } else { nearest };
        bf16::from_bits((bits >> 16) as u16)
    }

    #[inline(always)]
    fn round(self) -> bf16 {
        self
    }

    #[inline(always)]
    fn in_place(_: &[Self]) -> Option<&[f32]> {
        None
    }

    #[inline(always)]
    fn in_place_mut(_: &mut [Self]) -> Option<&mut [f32]> {
        None
    }
}

/// Evaluates an expression with `T` as the type of a floating-point dtype.
macro_rules! by_float {
    ($($dtype:expr => $T:ident),+; $body:expr) => {
        by_float!(@ [$($dtype => $T),+] $body)
    };
    (@ [] $body:expr) => {
        $body
    };
    (@ [$dtype:expr => $T:ident $(, $rest:expr => $U:ident)*] $body:expr) => {
        match $dtype {
            meshwright_backend::DType::F32 => {
                type $T = f32;
                by_float!(@ [$($rest => $U),*] $body)
            }
            meshwright_backend::DType::Bf16 => {
                type $T = half::bf16;
                by_float!(@ [$($rest => $U),*] $body)
            }
            meshwright_backend::DType::U32 | meshwright_backend::DType::F64 => {
                panic!("kernels compute on f32 and bf16 only")
            }
        }
    };
}
pub(super) use by_float;

/// Converts `src` to another element type; both have the same length.
#[inline(always)]
pub(super) fn convert<T: Float, U: Float>(src: &[T], dst: &mut [U]) {
    let src = &src[..dst.len()];
    // Zipped, not indexed: bounds checks would prevent vectorization.
    for (dst, src) in dst.iter_mut().zip(src) {
        *dst = U::narrow_from_f32(src.widen_to_f32());
    }
}

dispatch! {
    /// Converts like [`convert`], for callers that are not compiled for each instruction set.
    pub(super) fn cast_slice<const FMA: bool, T: Float, U: Float>(src: &[T], dst: &mut [U]) {
        convert(src, dst);
    }
}

/// Returns the slice for the f32 results of `out`: `out` itself if it is f32, else `scratch`, from which
/// [`store_rounded`] rounds them.
///
/// These are functions, not closures, which might not be compiled for the instruction set of the caller.
#[inline(always)]
pub(super) fn workplace<'a, T: Float>(out: &'a mut [T], scratch: &'a mut [f32]) -> &'a mut [f32] {
    let len = out.len();
    match T::in_place_mut(out) {
        Some(out) => out,
        None => &mut scratch[..len],
    }
}

/// Returns the number of scratch elements that [`workplace`] needs for `len` elements.
pub(super) fn workplace_len<T: Float>(len: usize) -> usize {
    if T::IS_F32 { 0 } else { len }
}

/// Rounds results in scratch into `out`; does nothing if they were computed in `out`.
#[inline(always)]
pub(super) fn store_rounded<T: Float>(scratch: &[f32], out: &mut [T]) {
    if !T::IS_F32 {
        convert(scratch, out);
    }
}
