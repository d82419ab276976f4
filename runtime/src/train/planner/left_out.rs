//! Candidates that a search leaves out, by reason.

use std::fmt;

use serde::Serialize;

use crate::train::config::Problem;

/// Numbers of candidates that are left out, by reason. A mesh whose degrees are refused counts once.
#[derive(Debug, Clone, Default, Serialize)]
pub struct LeftOut {
    /// Settings that a run refuses.
    pub refused: usize,
    /// The batch does not divide into parts of up to 16 sequences.
    pub batch: usize,
    /// The state of the parameters does not fit.
    pub state: usize,
    /// State and kept activations do not fit.
    pub activations: usize,
    /// Slower than twice the best estimate.
    pub slow: usize,
    /// Estimated not to be among the best, and not simulated.
    pub behind: usize,
    /// The fewest parts into which the batch does not divide.
    #[serde(skip)]
    pub parts: Option<usize>,
    /// Problems of all refused settings.
    #[serde(skip)]
    pub common: Option<Vec<Problem>>,
    /// The first refusal by the model.
    #[serde(skip)]
    pub first: Option<String>,
}

impl LeftOut {
    /// Counts refused settings.
    pub fn refuse(&mut self, problems: Vec<Problem>) {
        self.refused += 1;
        self.common = Some(match self.common.take() {
            None => problems,
            Some(before) => before.into_iter().filter(|one| problems.contains(one)).collect(),
        });
    }

    /// Counts a mesh into whose `parts` the batch does not divide.
    pub fn refuse_batch(&mut self, parts: usize) {
        self.batch += 1;
        self.parts = Some(self.parts.map_or(parts, |fewest| fewest.min(parts)));
    }

    /// Counts `count` candidates that the model refuses.
    pub fn refuse_model(&mut self, count: usize, reason: String) {
        self.refused += count;
        self.first.get_or_insert(reason);
    }

    pub fn total(&self) -> usize {
        self.refused + self.batch + self.state + self.activations + self.slow + self.behind
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reasons = [
            (self.refused, "refused by the settings or the model"),
            (self.batch, "by the batch"),
            (self.state, "state alone does not fit"),
            (self.activations, "activations do not fit"),
            (self.slow, "slower than twice the best"),
            (self.behind, "estimated behind the best"),
        ];
        let reasons = reasons.into_iter().filter(|(count, _)| *count > 0);
        let text: Vec<String> = reasons.map(|(count, why)| format!("{count} {why}")).collect();
        if text.is_empty() { f.write_str("none") } else { f.write_str(&text.join(", ")) }
    }
}
