//! The gradient noise scale: the batch size at which noise and gradient are equally large.
//!
//! McCandlish, Kaplan, Amodei and others, *An Empirical Model of Large-Batch Training* (2018), appendix A.1. The
//! squared norm of the gradient of a batch of `b` sequences is on average `G + N / b`, with the squared norm `G` of the
//! true gradient and the sum `N` of the variances of its elements for a batch of one. Two batch sizes determine both:
//! the batch of a step, and one of its parts, a micro-batch of a data rank. Their quotient is the *simple noise scale*,
//! `N / G`, in sequences.

use crate::layout::AxisSet;
use crate::train::config::Config;

/// Weight of the steps before in the running means, from which the quotient is taken: that of single steps is biased.
const DECAY: f64 = 0.95;

/// Running means over the steps of a run.
pub struct NoiseScale {
    /// Sequences of a step.
    batch: f64,
    /// Parts of a batch: micro-batches of all data ranks.
    parts: f64,
    gradient: f64,
    noise: f64,
}

impl NoiseScale {
    /// Creates the means of a run, if it has `--noise-scale`.
    pub fn of_run(config: &Config) -> Option<NoiseScale> {
        let parts = config.mesh.degree_of(AxisSet::DATA) * config.micro_batches;
        config.noise_scale.then(|| NoiseScale::new(config.batch, parts))
    }

    fn new(batch: usize, parts: usize) -> NoiseScale {
        let (batch, parts) = (batch as f64, parts as f64);
        NoiseScale { batch, parts, gradient: 0.0, noise: 0.0 }
    }

    /// Adds the squared norms of a step: the mean of those of parts, and that of the whole batch. Returns the noise
    /// scale by the steps so far, in sequences. `None` if the gradient is lost in the noise, and after a step whose
    /// norms are not finite, which the means leave out.
    pub fn after_step(&mut self, [part, whole]: [f64; 2]) -> Option<f64> {
        if !part.is_finite() || !whole.is_finite() {
            return None;
        }
        let others = self.parts - 1.0;
        let gradient = (self.parts * whole - part) / others;
        // In a batch of this size.
        let noise = (part - whole) / others;
        let add = |mean: &mut f64, value| *mean = DECAY * *mean + (1.0 - DECAY) * value;
        add(&mut self.gradient, gradient);
        add(&mut self.noise, noise);
        // The weights of both means are the same.
        let scale = self.batch * self.noise / self.gradient;
        let is_known = self.gradient > 0.0 && scale.is_finite();
        is_known.then_some(scale.max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Means of the squared norms at 2 and at 8 sequences, of a gradient with the squared norm 3 and the noise 40.
    #[test]
    fn expected_norms_give_the_noise_scale() {
        let mut noise = NoiseScale::new(8, 4);
        for _ in 0..3 {
            let scale = noise.after_step([3.0 + 40.0 / 2.0, 3.0 + 40.0 / 8.0]).unwrap();
            assert!((scale - 40.0 / 3.0).abs() < 1e-9, "{scale}");
        }
        // A step that diverged changes nothing.
        assert_eq!(noise.after_step([f64::NAN, 1.0]), None);
        let scale = noise.after_step([3.0 + 40.0 / 2.0, 3.0 + 40.0 / 8.0]).unwrap();
        assert!((scale - 40.0 / 3.0).abs() < 1e-9, "{scale}");
        // Equal norms have no noise, and a part like any other has no gradient.
        assert_eq!(NoiseScale::new(8, 4).after_step([3.0, 3.0]), Some(0.0));
        assert_eq!(NoiseScale::new(8, 4).after_step([4.0, 1.0]), None);
        assert_eq!(NoiseScale::new(8, 4).after_step([f64::INFINITY, 1.0]), None);
    }

    /// The means of steps are divided, not the steps.
    #[test]
    fn means_are_taken_before_the_quotient() {
        let mut noise = NoiseScale::new(4, 2);
        noise.after_step([5.0, 3.0]);
        let scale = noise.after_step([9.0, 6.0]).unwrap();
        // Gradients 1 and 3, noises 2 and 3.
        let mean = |first: f64, second: f64| DECAY * first + second;
        let expected = 4.0 * mean(2.0, 3.0) / mean(1.0, 3.0);
        assert!((scale - expected).abs() < 1e-9, "{scale} {expected}");
    }
}
