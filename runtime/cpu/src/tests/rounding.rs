//! Conversions between f32 and bf16, of every bf16 value.

use half::bf16;

use crate::float::Float;

/// Every bf16 value, its neighbors in f32, and the f32 values at and around the middle to the next bf16 value.
fn telling_values() -> Vec<f32> {
    let upper = (0..=u16::MAX).map(|upper| u32::from(upper) << 16);
    let lower = [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff];
    upper.flat_map(|upper| lower.map(|lower| f32::from_bits(upper | lower))).collect()
}

#[test]
fn rounding_is_to_nearest_even_and_keeps_nan() {
    for x in telling_values() {
        let (got, expected) = (<bf16 as Float>::narrow_from_f32(x), bf16::from_f32(x));
        assert_eq!(got.to_bits(), expected.to_bits(), "{x:e} ({:#x})", x.to_bits());
    }
    // Stated independently of the library: ties go to the even neighbor, the largest f32 to infinity.
    let narrow = |bits: u32| <bf16 as Float>::narrow_from_f32(f32::from_bits(bits)).to_bits();
    assert_eq!([narrow(0x3f80_8000), narrow(0x3f81_8000)], [0x3f80, 0x3f82]);
    assert_eq!([narrow(0x7f7f_ffff), narrow(0xff7f_ffff)], [0x7f80, 0xff80]);
    assert_eq!([narrow(0x7f80_0001), narrow(0xff80_0001)], [0x7fc0, 0xffc0]);
    assert_eq!([narrow(0x0000_8000), narrow(0x0000_8001)], [0x0000, 0x0001]);
}

#[test]
fn widening_is_exact() {
    for bits in 0..=u16::MAX {
        let x = bf16::from_bits(bits);
        let wide = x.widen_to_f32();
        assert_eq!(wide.to_bits(), u32::from(bits) << 16);
    }
}
