//! The numbers of an evaluation on validation data.

use std::fmt;

/// An evaluation of the model on the validation data.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Evaluation {
    /// Steps that were done before it.
    pub step: u64,
    /// Mean loss over all targets that count, in nats. Auxiliary losses are not in it.
    pub loss: f64,
    /// Number of these targets, over all ranks.
    pub targets: u64,
    /// The loss in bits for each byte of the text, if the tokenizer is known.
    pub bits_per_byte: Option<f64>,
    /// True if no evaluation before had as low a loss.
    pub is_best: bool,
    /// Duration on this rank, which is in no step's.
    pub seconds: f64,
}

impl Evaluation {
    /// Returns the exponential of the loss.
    pub fn perplexity(&self) -> f64 {
        self.loss.exp()
    }
}

/// Prints `eval loss 1.3863  perplexity 4.000  2.000 bits per byte  lowest so far`.
impl fmt::Display for Evaluation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "eval loss {:.4}  perplexity {:.3}", self.loss, self.perplexity())?;
        if let Some(bits) = self.bits_per_byte {
            write!(f, "  {bits:.3} bits per byte")?;
        }
        f.write_str(if self.is_best { "  lowest so far" } else { "" })
    }
}
