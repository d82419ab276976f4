//! The evaluations of a run, as checkpoints hold them.

use serde::{Deserialize, Serialize};

use crate::data::DataPosition;

/// The evaluations of a run so far, from which a resumed run goes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvaluationRecord {
    /// The rows that are evaluated.
    pub data: DataPosition,
    /// Completed steps at the last evaluation.
    pub step: u64,
    /// The lowest loss; `None` if none was finite.
    pub best: Option<BestLoss>,
    /// Evaluations since that of the lowest loss.
    pub without_improvement: u64,
    /// True if the checkpoint is saved for the lowest loss only: it is removed when a later one has a lower loss.
    #[serde(default)]
    pub is_only_best: bool,
}

/// The lowest loss of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BestLoss {
    /// Completed steps.
    pub step: u64,
    /// Mean loss over the targets, in nats.
    #[serde(serialize_with = "as_text", deserialize_with = "of_text")]
    pub loss: f64,
}

/// Writes a number as text, which keeps every bit.
fn as_text<S: serde::Serializer>(number: &f64, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(number)
}

fn of_text<'de, D: serde::Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
}

impl EvaluationRecord {
    /// Returns true if this record is of the same rows as `now`.
    pub fn is_of(&self, now: &DataPosition) -> bool {
        let rows = |of: &DataPosition| (of.samples, of.seq, of.documents);
        rows(&self.data) == rows(now) && self.data.other_data(now).is_none()
    }

    /// Adds the loss of the evaluation after `step` steps. Returns true if it is the lowest one.
    pub fn add(&mut self, step: u64, loss: f64) -> bool {
        self.step = step;
        let is_best = loss.is_finite() && self.best.is_none_or(|best| loss < best.loss);
        if is_best {
            self.best = Some(BestLoss { step, loss });
            self.without_improvement = 0;
        } else {
            self.without_improvement += 1;
        }
        is_best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_loss_is_kept_in_all_bits() {
        let data = DataPosition::without_data(8, 0);
        let mut record = EvaluationRecord {
            data: data.clone(),
            step: 0,
            best: None,
            without_improvement: 0,
            is_only_best: false,
        };
        let losses = [f64::NAN, 2.0, 2.0, f64::INFINITY, 0.1 + 0.2, f64::NAN];
        let found: Vec<_> = (1..).zip(losses).map(|(step, loss)| record.add(step, loss)).collect();
        assert_eq!(found, [false, true, false, false, true, false]);
        assert_eq!((record.step, record.without_improvement), (6, 1));
        let text = serde_json::to_string(&record).unwrap();
        let read: EvaluationRecord = serde_json::from_str(&text).unwrap();
        assert_eq!(read, record);
        assert_eq!(read.best.unwrap().loss.to_bits(), (0.1f64 + 0.2).to_bits());
        assert!(read.is_of(&data) && !read.is_of(&DataPosition { samples: 9, ..data }));
    }
}
