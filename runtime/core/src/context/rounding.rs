//! Rounding noise: results of operations that differ in their last bits, as another order of summation makes them.
//!
//! A run with noise, compared with one without, shows how far the numbers of a program depend on rounding.

use meshwright_backend::{Buffer, DType};

use super::rank::Rank;

/// Largest change of a result, in units of its last place. Sums of a few thousand terms in another order differ by
/// less.
const UNITS: i32 = 16;

impl Rank {
    /// Changes the last bits of the results of all operations from now on, by amounts that follow from each number and
    /// `key`: a recomputed result is changed alike.
    #[doc(hidden)]
    pub fn add_rounding_noise(&self, key: u32) {
        self.grad_mode().noise_key.set(Some(key));
    }

    /// Changes the last bits of an operation's result, if [noise](Self::add_rounding_noise) is on and the result is in
    /// the memory of the host.
    pub(crate) fn round_with_noise(&self, result: &mut Buffer) {
        let Some(key) = self.grad_mode().noise_key.get() else { return };
        if result.dtype() != DType::F32 || self.allocator().device().is_some() {
            return;
        }
        for number in result.view_mut().into_typed::<f32>() {
            *number = changed(*number, key);
        }
    }
}

/// Changes the last bits of `number`. Zeros, and numbers at the ends of the range, stay as they are.
fn changed(number: f32, key: u32) -> f32 {
    let exponent = number.to_bits() >> 23 & 0xff;
    if !(2..253).contains(&exponent) {
        return number;
    }
    let mut hash = (number.to_bits() ^ key).wrapping_mul(0x9e37_79b9);
    hash = (hash ^ hash >> 15).wrapping_mul(0x85eb_ca6b);
    let change = (hash >> 16) as i32 % (2 * UNITS + 1) - UNITS;
    f32::from_bits(number.to_bits().wrapping_add_signed(change))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_small_centered_and_repeatable() {
        let numbers: Vec<f32> = (1..20_000).map(|n| (n as f32 * 0.37).sin() * n as f32).collect();
        let relative = |number: f32| f64::from((changed(number, 7) - number) / number);
        let largest = numbers.iter().map(|number| relative(*number).abs()).fold(0.0, f64::max);
        let mean = numbers.iter().map(|number| relative(*number)).sum::<f64>() / 2e4;
        assert!((1e-6..2.1e-6).contains(&largest) && mean.abs() < 3e-8, "{largest:e}, {mean:e}");
        assert!(numbers.iter().any(|number| changed(*number, 7) != changed(*number, 8)));
        for extreme in [0.0, -0.0, f32::INFINITY, f32::MAX, f32::MIN_POSITIVE, 1e-42] {
            assert_eq!(changed(extreme, 7).to_bits(), extreme.to_bits());
        }
        assert!(changed(f32::NAN, 7).is_nan());
    }
}
