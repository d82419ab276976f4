//! The numbers of past steps that a summary reports.

use std::collections::VecDeque;

use crate::train::Result;

use super::observer::{StepObserver, StepReport};

/// Number of steps whose rates are kept, so that a long run does not grow by them.
const KEPT_RATES: usize = 4096;

/// The numbers of the steps of a run. Rank 0 has one.
#[derive(Debug, Default)]
pub struct StepHistory {
    /// Loss of every step.
    pub losses: Vec<f64>,
    /// Gradient norm before clipping of every step.
    pub grad_norms: Vec<f64>,
    /// Tokens per second of the latest steps.
    rates: VecDeque<f64>,
}

impl StepHistory {
    fn add_step(&mut self, loss: f64, grad_norm: f64, rate: f64) {
        self.losses.push(loss);
        self.grad_norms.push(grad_norm);
        if self.rates.len() == KEPT_RATES {
            self.rates.pop_front();
        }
        self.rates.push_back(rate);
    }

    /// Returns the median of the rates of the latest steps, and 0 without a step.
    pub fn median_rate(&self) -> f64 {
        let mut rates: Vec<f64> = self.rates.iter().copied().collect();
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len() / 2).copied().unwrap_or(0.0)
    }
}

impl StepObserver for StepHistory {
    fn end(&mut self, report: &StepReport<'_>) -> Result<()> {
        self.add_step(report.loss, report.grad_norm, report.tokens_per_s());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_that_of_the_latest_steps() {
        let mut history = StepHistory::default();
        assert_eq!(history.median_rate(), 0.0);
        [3.0, 1.0, 2.0].into_iter().for_each(|rate| history.add_step(0.0, 0.0, rate));
        assert_eq!(history.median_rate(), 2.0);
        (0..KEPT_RATES).for_each(|_| history.add_step(0.0, 0.0, 7.0));
        assert_eq!((history.median_rate(), history.rates.len()), (7.0, KEPT_RATES));
        assert_eq!(history.losses.len(), KEPT_RATES + 3);
    }
}
