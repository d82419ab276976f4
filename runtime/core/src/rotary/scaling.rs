//! RoPE scaling: changes of rotary frequencies that extend a trained model to longer sequences.

use std::sync::Arc;

use super::LongRopeScaling;
use super::ranges::{
    check_above_zero, check_attention_factor, check_between, check_factor, check_positions,
};

/// Scaling of rotary frequencies. Names and numbers follow Hugging Face's `modeling_rope_utils`.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum RopeScaling {
    /// `default`: not at all (Su et al., 2021).
    #[default]
    Default,
    /// `linear`: all frequencies are divided by the factor, as if positions were (position interpolation, Chen et al.,
    /// "Extending Context Window of Large Language Models via Positional Interpolation", 2023).
    Linear {
        /// Factor from 1 to a million.
        factor: f64,
    },
    /// `dynamic`: the base grows with the length of the sequence, once that exceeds `trained_positions`, so that high
    /// frequencies change least (dynamic NTK; Peng et al., "YaRN", 2023, appendix).
    Dynamic {
        /// Factor from 1 to a million.
        factor: f64,
        /// `max_position_embeddings`: up to this length nothing is scaled.
        trained_positions: usize,
    },
    /// `yarn`: high frequencies stay, low ones are divided by the factor.
    Yarn(YarnScaling),
    /// `llama3`: as Llama 3.1 was trained.
    Llama3(Llama3Scaling),
    /// `longrope`: every pair has factors, those of short sequences and those of long ones.
    LongRope(Arc<LongRopeScaling>),
}

/// Parameters of YaRN (Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", 2023).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct YarnScaling {
    /// Factor from 1 to a million.
    pub factor: f64,
    /// `original_max_position_embeddings`: the sequence length before the extension.
    pub original_positions: usize,
    /// `attention_factor`: factor of cosines and sines, whose square scales attention scores; by default
    /// `0.1 ln(factor) + 1`, or the value that follows from the two scales below. From 0.001 to 1000.
    pub attention_factor: Option<f64>,
    /// `beta_fast`: pairs with at least this many rotations in the original length keep their frequency; by default 32.
    pub beta_fast: f64,
    /// `beta_slow`: pairs with at most this many rotations are interpolated; by default 1.
    pub beta_slow: f64,
    /// `mscale` of DeepSeek: with `mscale_all_dim`, the attention factor is
    /// `(0.1 mscale ln(factor) + 1) / (0.1 mscale_all_dim ln(factor) + 1)`. Both are from 0 to 100.
    pub mscale: Option<f64>,
    /// `mscale_all_dim` of DeepSeek.
    pub mscale_all_dim: Option<f64>,
    /// `truncate`: the ends of the ramp between the two betas are rounded outwards to whole pairs; by default true.
    pub truncate: bool,
}

/// Parameters of the scaling of Llama 3.1 (Meta, `apply_scaling` of the reference code).
///
/// Pairs whose wavelength is below `original_positions / high_freq_factor` keep their frequency, those above
/// `original_positions / low_freq_factor` are divided by `factor`, and those between are interpolated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Llama3Scaling {
    /// Factor from 1 to a million.
    pub factor: f64,
    /// `low_freq_factor`, above 0.
    pub low_freq_factor: f64,
    /// `high_freq_factor`, above `low_freq_factor`.
    pub high_freq_factor: f64,
    /// `original_max_position_embeddings`: the sequence length before the extension.
    pub original_positions: usize,
}

impl RopeScaling {
    /// Returns the name of the scaling in `config.json`.
    pub fn name(&self) -> &'static str {
        match self {
            RopeScaling::Default => "default",
            RopeScaling::Linear { .. } => "linear",
            RopeScaling::Dynamic { .. } => "dynamic",
            RopeScaling::Yarn(_) => "yarn",
            RopeScaling::Llama3(_) => "llama3",
            RopeScaling::LongRope(_) => "longrope",
        }
    }

    /// Checks the numbers, for a base of `theta` and `rotary_dim` rotated elements.
    ///
    /// # Errors
    /// The first number that is out of range, by its name in `config.json`.
    pub(super) fn check_parameters(&self, theta: f64, rotary_dim: usize) -> Result<(), String> {
        match self {
            RopeScaling::Default => Ok(()),
            RopeScaling::Linear { factor } => check_factor(*factor),
            &RopeScaling::Dynamic { factor, trained_positions } => {
                check_factor(factor)?;
                check_positions("max_position_embeddings", trained_positions)?;
                if rotary_dim <= 2 {
                    return Err(format!(
                        "dynamic scaling changes the base by a power of {rotary_dim} / ({rotary_dim} - 2), so more \
                         than 2 elements of a head must rotate"
                    ));
                }
                Ok(())
            }
            RopeScaling::Yarn(yarn) => yarn.check_parameters(theta),
            RopeScaling::Llama3(llama3) => llama3.check_parameters(),
            RopeScaling::LongRope(scaling) => scaling.check_parameters(rotary_dim),
        }
    }
}

impl YarnScaling {
    /// Creates the scaling of the paper: betas of 32 and 1, and the attention factor that follows from `factor`.
    pub fn new(factor: f64, original_positions: usize) -> YarnScaling {
        YarnScaling {
            factor,
            original_positions,
            attention_factor: None,
            beta_fast: 32.0,
            beta_slow: 1.0,
            mscale: None,
            mscale_all_dim: None,
            truncate: true,
        }
    }

    fn check_parameters(&self, theta: f64) -> Result<(), String> {
        check_factor(self.factor)?;
        check_positions("original_max_position_embeddings", self.original_positions)?;
        for (name, number) in [("beta_fast", self.beta_fast), ("beta_slow", self.beta_slow)] {
            check_above_zero(name, number)?;
        }
        if self.beta_fast < self.beta_slow {
            return Err(format!(
                "beta_fast is {}, below the beta_slow of {}",
                self.beta_fast, self.beta_slow
            ));
        }
        if let Some(factor) = self.attention_factor {
            check_attention_factor(factor)?;
        }
        for (name, scale) in [("mscale", self.mscale), ("mscale_all_dim", self.mscale_all_dim)] {
            if let Some(scale) = scale {
                check_between(name, scale, (0.0, 100.0))?;
            }
        }
        if theta <= 1.0 {
            return Err(format!("yarn needs a rope_theta above 1, not {theta}"));
        }
        Ok(())
    }
}

impl Llama3Scaling {
    fn check_parameters(&self) -> Result<(), String> {
        check_factor(self.factor)?;
        check_positions("original_max_position_embeddings", self.original_positions)?;
        let (low, high) = (self.low_freq_factor, self.high_freq_factor);
        check_above_zero("low_freq_factor", low)?;
        check_above_zero("high_freq_factor", high)?;
        if low >= high {
            return Err(format!(
                "low_freq_factor is {low}, not below the high_freq_factor of {high}"
            ));
        }
        Ok(())
    }
}
