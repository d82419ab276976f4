//! Parameters of a rotary position embedding.

use super::RopeScaling;

/// Least base: with smaller ones, neighboring positions are many rotations apart.
const LEAST_THETA: f64 = 0.001;

/// The parameters that determine the angle of each position: `rope_parameters` of a `config.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeParameters {
    /// `rope_theta`: base of the wavelengths, at least 0.001.
    pub theta: f64,
    /// `partial_rotary_factor`: the fraction of a head's elements that rotate, the first ones, rounded down; the others
    /// pass through. In (0, 1].
    pub partial_rotary_factor: f64,
    /// `rope_type` and its numbers.
    pub scaling: RopeScaling,
}

impl Default for RopeParameters {
    /// A base of 10,000, whole heads, and no scaling.
    fn default() -> RopeParameters {
        RopeParameters::with_theta(10_000.0)
    }
}

impl RopeParameters {
    /// Creates the parameters of a base, for whole heads without scaling.
    pub fn with_theta(theta: f64) -> RopeParameters {
        RopeParameters { theta, partial_rotary_factor: 1.0, scaling: RopeScaling::Default }
    }

    /// Returns the number of elements of a head of `head_dim` that rotate.
    ///
    /// # Errors
    /// Numbers that are out of range or do not fit the head, by their names in `config.json`.
    pub fn rotary_dim(&self, head_dim: usize) -> Result<usize, String> {
        let RopeParameters { theta, partial_rotary_factor: part, ref scaling } = *self;
        if !(theta > 0.0 && theta.is_finite()) {
            return Err(format!("rope_theta must be above 0, not {theta}"));
        }
        if theta < LEAST_THETA {
            return Err(format!("rope_theta must be at least {LEAST_THETA}, not {theta:?}"));
        }
        if !(part > 0.0 && part <= 1.0) {
            return Err(format!("partial_rotary_factor must be above 0 and at most 1, not {part}"));
        }
        let rotary_dim = (head_dim as f64 * part) as usize;
        if rotary_dim == 0 || !rotary_dim.is_multiple_of(2) {
            return Err(format!(
                "partial_rotary_factor {part} of a head of {head_dim} elements rotates {rotary_dim} of them; rotary \
                 embedding needs pairs of elements"
            ));
        }
        scaling.check_parameters(theta, rotary_dim)?;
        Ok(rotary_dim)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Llama3Scaling, LongRopeScaling, YarnScaling};
    use super::*;

    #[test]
    fn rotary_dim_is_rounded_down_and_even() {
        let part = |partial_rotary_factor, head_dim| {
            RopeParameters { partial_rotary_factor, ..RopeParameters::default() }
                .rotary_dim(head_dim)
        };
        assert_eq!(part(1.0, 64), Ok(64));
        assert_eq!(part(0.25, 64), Ok(16));
        assert_eq!(part(0.4, 80), Ok(32));
        assert_eq!(part(0.3, 7), Ok(2));
        for (factor, head_dim) in [(1.0, 7), (0.5, 6), (0.1, 8)] {
            let text = part(factor, head_dim).unwrap_err();
            assert!(text.ends_with("rotary embedding needs pairs of elements"), "{text}");
        }
        for factor in [0.0, -0.5, 1.5, f64::NAN, f64::INFINITY] {
            let text = part(factor, 64).unwrap_err();
            assert!(
                text.starts_with("partial_rotary_factor must be above 0 and at most 1"),
                "{text}"
            );
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused_by_name() {
        let yarn = |change: fn(&mut YarnScaling)| {
            let mut yarn = YarnScaling::new(4.0, 64);
            change(&mut yarn);
            RopeScaling::Yarn(yarn)
        };
        let llama3 = |factor, low_freq_factor, high_freq_factor, original_positions| {
            let scaling =
                Llama3Scaling { factor, low_freq_factor, high_freq_factor, original_positions };
            RopeScaling::Llama3(scaling)
        };
        let long_rope = |last: f64, factor: f64| {
            let long = [vec![1.0; 31], vec![last]].concat();
            RopeScaling::LongRope(Arc::new(LongRopeScaling {
                short: vec![1.0; 32],
                long,
                original_positions: 64,
                factor,
                attention_factor: None,
            }))
        };
        for (scaling, expected) in [
            (RopeScaling::Linear { factor: 0.5 }, "factor must be a number of at least 1, not 0.5"),
            (RopeScaling::Linear { factor: f64::NAN }, "factor must be a number of at least 1"),
            (RopeScaling::Dynamic { factor: 0.0, trained_positions: 8 }, "factor must be a number"),
            (
                RopeScaling::Dynamic { factor: 2.0, trained_positions: 0 },
                "max_position_embeddings must be at least 1",
            ),
            (yarn(|yarn| yarn.factor = f64::INFINITY), "factor must be a number of at least 1"),
            (yarn(|yarn| yarn.beta_fast = 0.0), "beta_fast must be a number above 0"),
            (yarn(|yarn| yarn.beta_slow = 33.0), "beta_fast is 32, below the beta_slow of 33"),
            (yarn(|yarn| yarn.attention_factor = Some(0.0)), "attention_factor must be a number"),
            (yarn(|yarn| yarn.attention_factor = Some(1e30)), "attention_factor must be a number"),
            (
                yarn(|yarn| yarn.mscale = Some(-1.0)),
                "mscale must be a number from 0 to 100, not -1.0",
            ),
            (
                yarn(|yarn| yarn.mscale_all_dim = Some(1e9)),
                "mscale_all_dim must be a number from 0",
            ),
            (yarn(|yarn| yarn.factor = 1e19), "factor must be at most 1000000, not 1e19"),
            (
                RopeScaling::Dynamic { factor: 1e19, trained_positions: 8 },
                "factor must be at most 1000000, not 1e19",
            ),
            (
                long_rope(1e300, 4.0),
                "long_factor[31] must be a number from 0.001 to 1000000, not 1e300",
            ),
            (long_rope(1e-300, 4.0), "long_factor[31] must be a number from 0.001"),
            (long_rope(1.0, 1e7), "factor must be at most 1000000, not 10000000.0"),
            (yarn(|yarn| yarn.original_positions = 0), "original_max_position_embeddings must be"),
            (llama3(0.0, 1.0, 4.0, 8192), "factor must be a number of at least 1, not 0"),
            (llama3(8.0, 4.0, 4.0, 8192), "low_freq_factor is 4, not below the high_freq_factor"),
            (llama3(8.0, 0.0, 4.0, 8192), "low_freq_factor must be a number above 0"),
            (llama3(8.0, 1.0, 4.0, 0), "original_max_position_embeddings must be at least 1"),
        ] {
            let parameters = RopeParameters { scaling, ..RopeParameters::default() };
            let text = parameters.rotary_dim(64).unwrap_err();
            assert!(text.starts_with(expected), "{parameters:?}: {text}");
        }
        let scaling = RopeScaling::Dynamic { factor: 2.0, trained_positions: 8 };
        let text =
            RopeParameters { scaling, ..RopeParameters::default() }.rotary_dim(2).unwrap_err();
        assert!(text.contains("more than 2 elements"), "{text}");
        let low_base = RopeParameters { theta: 1.0, scaling: yarn(|_| ()), ..Default::default() };
        assert_eq!(low_base.rotary_dim(64).unwrap_err(), "yarn needs a rope_theta above 1, not 1");
        for theta in [0.0, -1.0, f64::NAN] {
            let text = RopeParameters::with_theta(theta).rotary_dim(64).unwrap_err();
            assert!(text.starts_with("rope_theta must be above 0"), "{text}");
        }
        let text = RopeParameters::with_theta(1e-300).rotary_dim(64).unwrap_err();
        assert_eq!(text, "rope_theta must be at least 0.001, not 1e-300");
    }
}
