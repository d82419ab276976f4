//! Tensors of a folder that follow from others: compared with what they follow from, rather than left out unseen.

use rayon::prelude::*;

use crate::checkpoint::tensors::TensorFile;
use crate::checkpoint::{CheckpointError, TensorBox};
use meshwright_core::rotary::{RopeParameters, RopeScaling, RotaryFrequencies};

/// Elements that are compared at a time.
const CHUNK: usize = 1 << 20;

/// Largest number of a mask whose exponential is 0 in f32, so that masked positions have no weight.
const MASKED: f32 = -104.0;

/// A tensor that follows from others, and that folders may store too.
#[derive(Debug, Clone, PartialEq)]
pub enum DerivedTensor {
    /// The weight of a head that is tied to this tensor.
    TiedTo(&'static str),
    /// This tensor under another name.
    CopyOf(&'static str),
    /// The causal mask of an attention: ones up to the diagonal, zeros after it.
    CausalMask,
    /// The score of a masked position.
    MaskedScore,
    /// Rotary frequencies of heads of a width.
    RotaryFrequencies(RopeParameters, usize),
}

impl DerivedTensor {
    /// Compares the numbers of a stored tensor with those that it follows from, except for a tied head.
    ///
    /// # Errors
    /// The difference, as the end of a sentence about the tensor.
    pub(super) fn check(&self, shape: &[usize], values: &[f32]) -> Result<(), String> {
        let (is_same, reason) = match self {
            DerivedTensor::TiedTo(_) | DerivedTensor::CopyOf(_) => return Ok(()),
            DerivedTensor::CausalMask => (
                is_causal_mask(shape, values),
                "is not the mask of a causal attention, the only one that is supported",
            ),
            DerivedTensor::MaskedScore => (
                values.iter().all(|score| *score <= MASKED),
                "does not mask: masked positions would keep a weight, which is not supported",
            ),
            DerivedTensor::RotaryFrequencies(rope, head_dim) => (
                are_frequencies(rope, *head_dim, values),
                "holds other rotary frequencies than those of config.json; correct the rotary settings there, or \
                 remove the tensor",
            ),
        };
        if is_same { Ok(()) } else { Err(reason.to_owned()) }
    }
}

fn is_causal_mask(shape: &[usize], values: &[f32]) -> bool {
    let Some([rows, columns]) = shape.last_chunk::<2>() else { return false };
    let is_right = |(index, value): (usize, &f32)| {
        let is_visible = index % columns <= index / columns % rows;
        *value == if is_visible { 1.0 } else { 0.0 }
    };
    rows == columns && values.iter().enumerate().all(is_right)
}

/// Compares frequencies, which folders may store in half precision, and before they are scaled.
fn are_frequencies(rope: &RopeParameters, head_dim: usize, values: &[f32]) -> bool {
    // The rounding of bf16, and the smallest number of f16.
    let is_close = |(found, expected): (&f32, &f64)| {
        (f64::from(*found) - expected).abs() <= expected / 256.0 + 6e-8
    };
    let unscaled = RopeParameters { scaling: RopeScaling::Default, ..rope.clone() };
    [rope, &unscaled].into_iter().any(|rope| {
        // Of the shortest sequence, for which dynamic frequencies are those that the model was made with.
        let Ok(expected) = RotaryFrequencies::new(rope, head_dim, 1) else { return false };
        let expected = expected.per_position;
        values.len() == expected.len() && values.iter().zip(&expected).all(is_close)
    })
}

/// Returns true if two tensors have the same shape and numbers.
pub(super) fn are_equal(
    (one, one_name): (&TensorFile, &str),
    (other, other_name): (&TensorFile, &str),
) -> Result<bool, CheckpointError> {
    let (Some(shape), Some(other_shape)) = (one.shape(one_name), other.shape(other_name)) else {
        return Ok(false);
    };
    if shape != other_shape {
        return Ok(false);
    }
    let whole = TensorBox::whole(shape);
    let is_equal = |part: TensorBox| -> Result<bool, CheckpointError> {
        let [mut left, mut right] = [(); 2].map(|()| vec![0.0; part.len()]);
        one.copy_common(one_name, &whole, &mut left, &part)?;
        other.copy_common(other_name, &whole, &mut right, &part)?;
        Ok(left == right)
    };
    let starts: Vec<usize> = (0..whole.len()).step_by(CHUNK).collect();
    let parts = starts
        .into_par_iter()
        .flat_map_iter(|start| TensorBox::of_run(shape, start..(start + CHUNK).min(whole.len())));
    parts.map(is_equal).try_reduce(|| true, |left, right| Ok(left && right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_lower_triangles() {
        let mask = |values: &[f32]| DerivedTensor::CausalMask.check(&[1, 1, 2, 2], values);
        assert!(mask(&[1.0, 0.0, 1.0, 1.0]).is_ok());
        for other in [[1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 1.0], [1.0, 0.0, 1.0, 2.0]] {
            assert!(mask(&other).is_err(), "{other:?}");
        }
        assert!(DerivedTensor::CausalMask.check(&[4], &[1.0; 4]).is_err());
        assert!(DerivedTensor::MaskedScore.check(&[], &[-1e4]).is_ok());
        assert!(DerivedTensor::MaskedScore.check(&[], &[-1.0]).is_err());
        assert!(DerivedTensor::MaskedScore.check(&[], &[f32::NAN]).is_err());
    }

    #[test]
    fn rounded_frequencies_are_recognized() {
        let rope = RopeParameters::with_theta(5e5);
        let derived = DerivedTensor::RotaryFrequencies(rope, 128);
        let exact =
            |theta: f64| (0..64).map(move |pair| theta.powf(-2.0 * f64::from(pair) / 128.0) as f32);
        let check = |values: Vec<f32>| derived.check(&[64], &values);
        assert!(check(exact(5e5).collect()).is_ok());
        assert!(check(exact(5e5).map(|x| half::f16::from_f32(x).to_f32()).collect()).is_ok());
        assert!(check(exact(5e5).map(|x| half::bf16::from_f32(x).to_f32()).collect()).is_ok());
        let text = check(exact(1e4).collect()).unwrap_err();
        assert!(text.starts_with("holds other rotary frequencies than those of"), "{text}");
        assert!(check(vec![1.0]).is_err());
        assert!(check(vec![0.0; 64]).is_err());
    }
}
