//! LongRoPE: factors of every pair, which were found by a search.

use super::ranges::{check_attention_factor, check_divisor, check_factor, check_positions};

/// Parameters of LongRoPE (Ding et al., "LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens", 2024), as
/// Phi-3 and Phi-4-mini have them: the frequency of a pair is divided by its factor.
#[derive(Debug, Clone, PartialEq)]
pub struct LongRopeScaling {
    /// `short_factor`: the divisors in sequences of up to `original_positions`, one for each rotated pair. They are
    /// from 0.001 to a million.
    pub short: Vec<f64>,
    /// `long_factor`: the divisors in longer sequences, for all of their positions.
    pub long: Vec<f64>,
    /// `original_max_position_embeddings`: the sequence length before the extension, at least 2.
    pub original_positions: usize,
    /// `factor`: how many times longer sequences may be than the original length, from 1 to a million.
    pub factor: f64,
    /// `attention_factor`: factor of cosines and sines, whose square scales attention scores; by default
    /// `sqrt(1 + ln(factor) / ln(original_positions))`. From 0.001 to 1000.
    pub attention_factor: Option<f64>,
}

impl LongRopeScaling {
    /// Returns the divisors of the frequencies in sequences of `seq` positions.
    pub(super) fn divisors(&self, seq: usize) -> &[f64] {
        if seq > self.original_positions { &self.long } else { &self.short }
    }

    /// Returns the factor of cosines and sines.
    pub(super) fn magnitude(&self) -> f64 {
        let of_lengths = || (1.0 + self.factor.ln() / (self.original_positions as f64).ln()).sqrt();
        self.attention_factor.unwrap_or_else(of_lengths)
    }

    /// Checks the numbers, for `rotary_dim` rotated elements.
    ///
    /// # Errors
    /// The first number that is out of range, by its name in `config.json`.
    pub(super) fn check_parameters(&self, rotary_dim: usize) -> Result<(), String> {
        check_factor(self.factor)?;
        check_positions("original_max_position_embeddings", self.original_positions)?;
        if self.original_positions == 1 {
            return Err("original_max_position_embeddings must be at least 2, not 1".into());
        }
        if let Some(factor) = self.attention_factor {
            check_attention_factor(factor)?;
        }
        for (name, divisors) in [("short_factor", &self.short), ("long_factor", &self.long)] {
            if divisors.len() != rotary_dim / 2 {
                return Err(format!(
                    "{name} has {} numbers, but a head has {} rotated pairs",
                    divisors.len(),
                    rotary_dim / 2
                ));
            }
            for (pair, divisor) in divisors.iter().enumerate() {
                check_divisor(&format!("{name}[{pair}]"), *divisor)?;
            }
        }
        Ok(())
    }
}
