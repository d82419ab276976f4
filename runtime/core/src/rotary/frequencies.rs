//! Rotary frequencies of the pairs of a head.

use std::f64::consts::PI;

use super::{Llama3Scaling, RopeParameters, RopeScaling, YarnScaling};

/// The angles of a rotary position embedding: pair `i` is rotated by `position * per_position[i]`.
#[derive(Debug, Clone, PartialEq)]
pub struct RotaryFrequencies {
    /// Radians per position of each rotated pair.
    pub per_position: Vec<f64>,
    /// Factor of cosines and sines: 1, except for YaRN and LongRoPE.
    pub magnitude: f64,
}

impl RotaryFrequencies {
    /// Computes the frequencies of heads of `head_dim` elements in sequences of `seq` positions, which matter for
    /// dynamic scaling and LongRoPE only.
    ///
    /// # Errors
    /// As [`RopeParameters::rotary_dim`].
    pub fn new(
        parameters: &RopeParameters,
        head_dim: usize,
        seq: usize,
    ) -> Result<RotaryFrequencies, String> {
        let dim = parameters.rotary_dim(head_dim)?;
        let theta = parameters.theta;
        let (per_position, magnitude) = match &parameters.scaling {
            RopeScaling::Default => (unscaled(theta, dim), 1.0),
            RopeScaling::Linear { factor } => {
                (unscaled(theta, dim).into_iter().map(|of_pair| of_pair / factor).collect(), 1.0)
            }
            &RopeScaling::Dynamic { factor, trained_positions } => {
                (unscaled(dynamic_theta(theta, dim, factor, seq, trained_positions), dim), 1.0)
            }
            RopeScaling::Yarn(yarn) => (yarn.scale(theta, dim), yarn.magnitude()),
            RopeScaling::Llama3(llama3) => (
                unscaled(theta, dim).into_iter().map(|of_pair| llama3.scale(of_pair)).collect(),
                1.0,
            ),
            RopeScaling::LongRope(scaling) => {
                let divided = unscaled(theta, dim).into_iter().zip(scaling.divisors(seq));
                (divided.map(|(of_pair, divisor)| of_pair / divisor).collect(), scaling.magnitude())
            }
        };
        Ok(RotaryFrequencies { per_position, magnitude })
    }
}

/// Computes `theta^(-2i / dim)` for each pair `i`.
fn unscaled(theta: f64, dim: usize) -> Vec<f64> {
    (0..dim / 2).map(|i| theta.powf(-2.0 * i as f64 / dim as f64)).collect()
}

/// Computes the base of dynamic NTK scaling, with which the lowest frequency is interpolated, and the highest stays.
fn dynamic_theta(theta: f64, dim: usize, factor: f64, seq: usize, trained: usize) -> f64 {
    let (seq, trained, dim) = (seq.max(trained) as f64, trained as f64, dim as f64);
    theta * (factor * seq / trained - (factor - 1.0)).powf(dim / (dim - 2.0))
}

impl Llama3Scaling {
    /// Scales the frequency of a pair by its wavelength.
    fn scale(&self, frequency: f64) -> f64 {
        let Llama3Scaling { factor, low_freq_factor, high_freq_factor, original_positions } = *self;
        let wavelength = 2.0 * PI / frequency;
        let rotations = original_positions as f64 / wavelength;
        if rotations > high_freq_factor {
            frequency
        } else if rotations < low_freq_factor {
            frequency / factor
        } else {
            let kept = (rotations - low_freq_factor) / (high_freq_factor - low_freq_factor);
            (1.0 - kept) * frequency / factor + kept * frequency
        }
    }
}

impl YarnScaling {
    /// Computes the frequency of each pair: between an unscaled and an interpolated embedding's, by a ramp over pairs.
    fn scale(&self, theta: f64, dim: usize) -> Vec<f64> {
        let (start, end) = self.yarn_ramp(theta, dim);
        let scale_pair = |(i, frequency): (usize, f64)| {
            let interpolated = ((i as f64 - start) / (end - start)).clamp(0.0, 1.0);
            let kept = 1.0 - interpolated;
            frequency / self.factor * (1.0 - kept) + frequency * kept
        };
        unscaled(theta, dim).into_iter().enumerate().map(scale_pair).collect()
    }

    /// Returns the last pair that is not interpolated and the first one that is interpolated fully.
    fn yarn_ramp(&self, theta: f64, dim: usize) -> (f64, f64) {
        let pair_of = |rotations: f64| {
            let wavelengths = self.original_positions as f64 / (rotations * 2.0 * PI);
            dim as f64 * wavelengths.ln() / (2.0 * theta.ln())
        };
        let (mut start, mut end) = (pair_of(self.beta_fast), pair_of(self.beta_slow));
        if self.truncate {
            (start, end) = (start.floor(), end.ceil());
        }
        (start, end) = (start.max(0.0), end.min(dim as f64 - 1.0));
        // A ramp of no length is a step.
        (start, if start == end { end + 0.001 } else { end })
    }

    /// Returns the factor of cosines and sines.
    fn magnitude(&self) -> f64 {
        let scale = |weight: f64| 0.1 * weight * self.factor.ln() + 1.0;
        match (self.attention_factor, self.mscale, self.mscale_all_dim) {
            (Some(factor), _, _) => factor,
            (None, Some(scale_of_rotated), Some(scale_of_all))
                if scale_of_rotated > 0.0 && scale_of_all > 0.0 =>
            {
                scale(scale_of_rotated) / scale(scale_of_all)
            }
            _ => scale(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frequencies(scaling: RopeScaling, seq: usize) -> RotaryFrequencies {
        let parameters = RopeParameters { scaling, ..RopeParameters::default() };
        RotaryFrequencies::new(&parameters, 8, seq).unwrap()
    }

    #[test]
    fn default_frequencies_are_powers_of_the_base() {
        let found = frequencies(RopeScaling::Default, 100);
        let expected = [1.0, 0.1, 0.01, 0.001];
        for (found, expected) in found.per_position.iter().zip(expected) {
            assert!((found / expected - 1.0).abs() < 1e-12, "{found}, not {expected}");
        }
        assert_eq!((found.per_position.len(), found.magnitude), (4, 1.0));
    }

    #[test]
    fn partial_heads_use_frequencies_of_the_rotated_part() {
        let parameters =
            RopeParameters { partial_rotary_factor: 0.25, ..RopeParameters::default() };
        let partial = RotaryFrequencies::new(&parameters, 32, 1).unwrap();
        assert_eq!(partial, frequencies(RopeScaling::Default, 1));
    }

    #[test]
    fn dynamic_scaling_begins_beyond_the_trained_length() {
        let scaling = RopeScaling::Dynamic { factor: 2.0, trained_positions: 64 };
        let unscaled = frequencies(RopeScaling::Default, 64);
        assert_eq!(frequencies(scaling.clone(), 1), unscaled);
        assert_eq!(frequencies(scaling.clone(), 64), unscaled);
        let longer = frequencies(scaling.clone(), 65);
        assert_eq!(longer.per_position[0], 1.0);
        assert!((1..4).all(|i| longer.per_position[i] < unscaled.per_position[i]));
        // Twice the length: the lowest frequency is that of positions divided by 2 * 2 - 1.
        let twice = frequencies(scaling, 128).per_position[3];
        assert!((twice * 3.0 / unscaled.per_position[3] - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_factor_of_one_changes_nothing() {
        let unscaled = frequencies(RopeScaling::Default, 10);
        let llama3 = Llama3Scaling {
            factor: 1.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_positions: 64,
        };
        for scaling in [
            RopeScaling::Linear { factor: 1.0 },
            RopeScaling::Yarn(YarnScaling::new(1.0, 64)),
            RopeScaling::Llama3(llama3),
        ] {
            let found = frequencies(scaling.clone(), 10);
            assert_eq!(found.magnitude, 1.0, "{scaling:?}");
            for (found, expected) in found.per_position.iter().zip(&unscaled.per_position) {
                assert!((found / expected - 1.0).abs() < 1e-15, "{scaling:?}");
            }
        }
    }

    #[test]
    fn yarn_interpolates_low_frequencies_only() {
        let yarn = |original_positions| {
            frequencies(RopeScaling::Yarn(YarnScaling::new(4.0, original_positions)), 1)
        };
        let unscaled = frequencies(RopeScaling::Default, 1).per_position;
        let found = yarn(1024);
        assert_eq!(found.per_position[0], unscaled[0]);
        assert_eq!(found.per_position[3], unscaled[3] / 4.0);
        assert!((found.magnitude - (0.1 * 4f64.ln() + 1.0)).abs() < 1e-15);
        let scales = YarnScaling {
            mscale: Some(1.0),
            mscale_all_dim: Some(0.5),
            ..YarnScaling::new(4.0, 64)
        };
        let expected = (0.1 * 4f64.ln() + 1.0) / (0.05 * 4f64.ln() + 1.0);
        assert_eq!(frequencies(RopeScaling::Yarn(scales), 1).magnitude, expected);
        let given = YarnScaling { attention_factor: Some(1.5), ..scales };
        assert_eq!(frequencies(RopeScaling::Yarn(given), 1).magnitude, 1.5);
        let one_scale = YarnScaling { mscale_all_dim: None, ..scales };
        assert_eq!(frequencies(RopeScaling::Yarn(one_scale), 1).magnitude, yarn(64).magnitude);
    }
}
