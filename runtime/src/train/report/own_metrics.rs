//! Metrics that a program adds to those of a step.

use std::cell::RefCell;

use crate::train::{Error, Result};

/// Keys of a line of the metrics file that are not a program's.
pub(super) const TRAINER_KEYS: [&str; 26] = [
    "step",
    "loss",
    "grad_norm",
    "noise_scale",
    "lr",
    "tokens",
    "epoch",
    "time",
    "step_ms",
    "tokens_per_s",
    "mfu",
    "hfu",
    "peak_flops",
    "peak_bytes",
    "comm_bytes",
    "bubble",
    "padding",
    "attention_balance",
    "goodput",
    "save_ms",
    "save_bytes",
    "save_failed",
    "skipped",
    "eval_loss",
    "eval_perplexity",
    "eval_bits_per_byte",
];

/// The beginnings of the keys of sources.
const SOURCE_PREFIXES: [&str; 2] = ["loss.", "epoch."];

/// Most bytes of a name.
const MAX_NAME: usize = 64;

/// The numbers that a program has added to a step, on one rank.
#[derive(Debug, Default)]
pub struct OwnMetrics {
    values: RefCell<Vec<(String, f64)>>,
}

impl OwnMetrics {
    /// Adds a number.
    ///
    /// # Errors
    /// A name that the step has already, or that is none.
    pub fn add(&self, name: &str, value: f64) -> Result<()> {
        let mut values = self.values.borrow_mut();
        let is_char = |char: char| char.is_ascii_alphanumeric() || "_-./".contains(char);
        let is_of_source = SOURCE_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        let problem = if TRAINER_KEYS.contains(&name) || is_of_source {
            "the trainer reports a metric of this name; use another one"
        } else if values.iter().any(|(known, _)| known == name) {
            "it was already added to this step; add each metric once, by one observer"
        } else if name.len() > MAX_NAME
            || !name.starts_with(|char: char| char.is_ascii_alphabetic())
            || !name.chars().all(is_char)
        {
            "a name begins with a letter, and has at most 64 letters, digits and the characters _ - . /"
        } else {
            values.push((name.to_owned(), value));
            return Ok(());
        };
        Err(Error::Input(format!("metric `{}`: {problem}", name.escape_debug())))
    }

    /// Returns all names and numbers, in the order in which they were added.
    pub fn to_vec(&self) -> Vec<(String, f64)> {
        self.values.borrow().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        let own = OwnMetrics::default();
        own.add("grad_noise", 0.5).unwrap();
        own.add("layer.0/norm-2", f64::NAN).unwrap();
        for (name, problem) in [
            ("loss", "the trainer reports a metric of this name"),
            ("eval_loss", "the trainer reports"),
            ("loss.web", "the trainer reports"),
            ("grad_noise", "it was already added to this step"),
            ("", "a name begins with a letter"),
            ("2x", "a name begins with a letter"),
            ("a b", "a name begins with a letter"),
            ("a\n", "metric `a\\n`: a name begins with a letter"),
            ("é", "a name begins with a letter"),
            (&"x".repeat(65), "a name begins with a letter"),
        ] {
            let text = own.add(name, 1.0).unwrap_err().to_string();
            assert!(text.contains(problem), "{text}");
        }
        assert_eq!(own.to_vec().len(), 2);
    }
}
