//! Numbers that are made up for the operands of a check, independent of the values of a model.
//!
//! Parameters that begin as zeros, gates that are closed at first, and samples of about one scale hide what a function
//! does.

use crate::promise::CallCheck;

/// The numbers of the operands of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Draw {
    /// The operands of the call.
    Real,
    /// Numbers in the range of the call's operand; between -1 and 1 if all of these are about equal.
    InRange,
    /// Positive numbers up to 1.
    Positive,
    /// Numbers between -16 and 16.
    Large,
}

impl Draw {
    const ALL: [Draw; 4] = [Draw::Real, Draw::InRange, Draw::Positive, Draw::Large];

    /// Returns the draws of a check: all of them, or one after another in repeated checks. Kernels of a device are not
    /// given numbers beyond their range, since they may use them as indices.
    pub(super) fn of_check(check: CallCheck, has_device: bool) -> Vec<Draw> {
        let draws = if has_device { &Draw::ALL[..2] } else { &Draw::ALL[..] };
        match check {
            CallCheck::Full => draws.to_vec(),
            CallCheck::Repeated(number) => vec![draws[number % draws.len()]],
            CallCheck::Unchecked => Vec::new(),
        }
    }

    /// Describes the operands, for messages.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Draw::Real => "",
            Draw::InRange => ", of made-up operands in the range of these",
            Draw::Positive => ", of made-up operands between 0 and 1",
            Draw::Large => ", of made-up operands between -16 and 16",
        }
    }
}

/// The numbers that are drawn for an operand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Numbers {
    low: f32,
    high: f32,
    /// True for indices and masks, whose whole numbers have a meaning.
    are_whole: bool,
    /// The scale of the second half of the elements.
    second_half: f32,
}

impl Numbers {
    /// Returns the numbers of a draw for an operand whose values are `real`.
    pub(super) fn of_operand(draw: Draw, real: &[f32]) -> Numbers {
        let finite = || real.iter().copied().filter(|x| x.is_finite());
        let (low, high) = finite()
            .fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
        let magnitude = low.abs().max(high.abs());
        let is_constant = high - low <= 1e-3 * magnitude || magnitude < 1e-3;
        let varies = !is_constant && low <= high;
        let (low, high, second_half) = match draw {
            Draw::InRange if varies && finite().all(|x| x.fract() == 0.0) => {
                return Numbers { low, high, are_whole: true, second_half: 1.0 };
            }
            Draw::Positive => (2.0f32.powi(-10), 1.0, 2.0f32.powi(-4)),
            Draw::Large => (-16.0, 16.0, 2.0f32.powi(-12)),
            Draw::Real | Draw::InRange if varies => (low, high, 0.25),
            Draw::Real | Draw::InRange => (-1.0, 1.0, 0.25),
        };
        Numbers { low, high, are_whole: false, second_half }
    }

    /// Returns element `index` of operand number `operand`. Elements of the second half lie nearer to zero, so that a
    /// scale that a function takes of all elements differs from the scale of this half.
    pub(super) fn number(self, operand: usize, index: usize, in_second_half: bool) -> f32 {
        let Numbers { low, high, are_whole, second_half } = self;
        let number = low + (high - low) * uniform(operand + 1, index);
        if are_whole {
            return number.round();
        }
        let center = 0.0f32.clamp(low, high);
        if in_second_half { center + (number - center) * second_half } else { number }
    }
}

/// Returns element `index` of the gradient of the output in calls that are compared: numbers between -1 and 1 without a
/// pattern.
pub(super) fn number_of_gradient(index: usize) -> f32 {
    2.0 * uniform(0, index) - 1.0
}

/// Returns number `index` of a sequence of numbers between 0 and 1 without a pattern.
fn uniform(sequence: usize, index: usize) -> f32 {
    let key = (sequence as u32).wrapping_mul(0x9e37_79b9) ^ index as u32;
    // The finalizer of MurmurHash3.
    let hash = (key ^ (key >> 16)).wrapping_mul(0x85eb_ca6b);
    let hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    ((hash ^ (hash >> 16)) >> 8) as f32 / (1 << 24) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_range_of_the_operand() {
        let of = |draw, real: &[f32]| Numbers::of_operand(draw, real);
        let drawn = |numbers: Numbers| (0..100).map(move |i| numbers.number(1, i, i > 50));
        let cases: [(&[f32], [f32; 2]); 4] = [
            (&[0.0; 4], [-1.0, 1.0]),
            (&[1e-6; 4], [-1.0, 1.0]),
            (&[0.5, 2.5], [0.5, 2.5]),
            (&[0.0, 7.0, 3.0], [0.0, 7.0]),
        ];
        for (real, [low, high]) in cases {
            let found: Vec<f32> = drawn(of(Draw::InRange, real)).collect();
            assert!(found.iter().all(|x| (low..=high).contains(x)), "{real:?}: {found:?}");
            assert!(found[..50].iter().any(|x| *x > low + 0.8 * (high - low)), "{real:?}");
        }
        assert!(drawn(of(Draw::InRange, &[0.0, 7.0, 3.0])).all(|x| x.fract() == 0.0));
        assert!(drawn(of(Draw::Positive, &[-1.0, 0.3])).all(|x| x > 0.0));
        assert!(drawn(of(Draw::Large, &[-1.0, 0.3])).any(|x| x.abs() > 8.0));
    }
}
