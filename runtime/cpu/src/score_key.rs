//! Order of the scores of experts.

/// Returns a key that is larger for larger scores, the largest for NaN, and among equal scores larger for lower
/// columns.
pub(super) fn score_key(x: f32, col: u32) -> u64 {
    // Both zeros have the same bits after the addition.
    let bits = (x + 0.0).to_bits();
    let ordered = match x {
        x if x.is_nan() => 0xffff_fffe,
        _ if bits & 0x8000_0000 != 0 => !bits,
        _ => bits | 0x8000_0000,
    };
    u64::from(ordered) << 32 | u64::from(u32::MAX - col)
}
