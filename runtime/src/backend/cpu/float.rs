//! The element types of kernels: loads widen to f32, arithmetic is in f32, stores round.

use half::bf16;

use super::simd::dispatch;
use crate::backend::Element;

/// An element type that kernels compute on.
pub(super) trait Float: Element {
    /// Whether elements need no conversion.
    const IS_F32: bool;

    /// Positive zero.
    const ZERO: Self;

    /// The same value in f32.
    fn widen(self) -> f32;

    /// The nearest value of this type, ties to even; NaN stays NaN.
    fn narrow(x: f32) -> Self;

    /// The nearest bf16, ties to even.
    fn round(self) -> bf16;

    /// The slice itself, if its elements are f32 already.
    fn in_place(slice: &[Self]) -> Option<&[f32]>;

    /// As [`in_place`](Self::in_place), exclusive.
    fn in_place_mut(slice: &mut [Self]) -> Option<&mut [f32]>;
}

impl Float for f32 {
    const IS_F32: bool = true;
    const ZERO: Self = 0.0;

    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }

    #[inline(always)]
    fn narrow(x: f32) -> Self {
        x
    }

    #[inline(always)]
    fn round(self) -> bf16 {
        bf16::narrow(self)
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
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    // Without a branch, so that loops vectorise. The processor's own conversion would flush subnormal numbers.
    #[inline(always)]
    fn narrow(x: f32) -> Self {
        let bits = x.to_bits();
        // Half of the last place, less one if that place is even: what carries into the place rounds it up.
        let nearest = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
        // A NaN keeps its upper bits and gets the quiet one, or it might become an infinity.
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
            $crate::backend::DType::F32 => {
                type $T = f32;
                by_float!(@ [$($rest => $U),*] $body)
            }
            $crate::backend::DType::Bf16 => {
                type $T = half::bf16;
                by_float!(@ [$($rest => $U),*] $body)
            }
            $crate::backend::DType::U32 => panic!("kernels compute on f32 and bf16, not on u32"),
        }
    };
}
pub(super) use by_float;

/// Writes `src` in another element type; both have one length.
#[inline(always)]
pub(super) fn convert<T: Float, U: Float>(src: &[T], dst: &mut [U]) {
    let src = &src[..dst.len()];
    // Zipped, not indexed: a check of every index would keep the loop from being vectorised.
    for (dst, src) in dst.iter_mut().zip(src) {
        *dst = U::narrow(src.widen());
    }
}

dispatch! {
    /// [`convert`] for callers that are not compiled for each instruction set themselves.
    pub(super) fn cast<const FMA: bool, T: Float, U: Float>(src: &[T], dst: &mut [U]) {
        convert(src, dst);
    }
}

/// Where f32 results that end up in `out` are worked out: in `out` itself if it is f32, else in `scratch`.
///
/// What lies in scratch is then rounded by [`store`]. Plain functions and no closure, which might be compiled apart
/// from the instruction set of its caller.
#[inline(always)]
pub(super) fn workplace<'a, T: Float>(out: &'a mut [T], scratch: &'a mut [f32]) -> &'a mut [f32] {
    let len = out.len();
    match T::in_place_mut(out) {
        Some(out) => out,
        None => &mut scratch[..len],
    }
}

/// The elements of scratch that [`workplace`] needs for `len` elements.
pub(super) fn workplace_len<T: Float>(len: usize) -> usize {
    if T::IS_F32 { 0 } else { len }
}

/// Rounds what was worked out in scratch into `out`; nothing where that was in `out` itself.
#[inline(always)]
pub(super) fn store<T: Float>(scratch: &[f32], out: &mut [T]) {
    if !T::IS_F32 {
        convert(scratch, out);
    }
}
