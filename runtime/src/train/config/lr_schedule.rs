//! Learning-rate schedules, as pure functions of the step.

use std::f64::consts::PI;

use serde::Serialize;

/// The fraction of all steps that [`Decay::Wsd`] decays over: 20 % is enough to reach the loss of a cosine (Hägele et
/// al. 2024, arXiv 2405.18392, section 3).
const WSD_DECAY: f64 = 0.2;

/// The learning rate at every step of a run.
///
/// With peak `p`, minimum `m`, `w` warm-up steps and `n` steps in total, step `s` (from 0) has
///
/// - in warm-up, `s < w`: `p (s + 1) / w`, which reaches `p` at its last step and is never 0;
/// - after it, the rate of its [`Decay`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct LrSchedule {
    /// Decay after the warm-up.
    pub decay: Decay,
    /// Learning rate after the warm-up.
    pub peak: f64,
    /// Learning rate at the end of a decay.
    pub min: f64,
    /// Warm-up steps.
    pub warmup: u64,
    /// Steps in total.
    pub steps: u64,
}

/// Decay of the learning rate after the warm-up, in the symbols of [`LrSchedule`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Decay {
    /// `p`; the minimum is not used.
    Constant,
    /// `m + (p - m) (1 + cos(pi (s - w) / (n - w))) / 2`: SGDR without restarts (Loshchilov and Hutter 2017,
    /// arXiv 1608.03983, equation 5).
    Cosine,
    /// Warm-up, stable, decay: `p` until the last `d = ceil(n / 5)` steps (at most those after the warm-up), then
    /// `m + (p - m) (n - s) / (d + 1)`, which is linear and reaches `m` at the end of training (MiniCPM, arXiv
    /// 2404.06395, with the linear decay of arXiv 2405.18392).
    Wsd,
}

impl LrSchedule {
    /// Returns the learning rate of `step` (from 0). Steps past the end have the rate of the end.
    pub fn rate_at(&self, step: u64) -> f64 {
        if step < self.warmup {
            return self.peak * (step + 1) as f64 / self.warmup as f64;
        }
        let (step, steps) = (step.min(self.steps), self.steps);
        match self.decay {
            Decay::Constant => self.peak,
            Decay::Cosine => {
                let length = steps.saturating_sub(self.warmup).max(1);
                let done = step.saturating_sub(self.warmup) as f64 / length as f64;
                self.min + (self.peak - self.min) * 0.5 * (1.0 + (PI * done).cos())
            }
            Decay::Wsd => {
                let decay = (steps as f64 * WSD_DECAY).ceil() as u64;
                let decay = decay.min(steps.saturating_sub(self.warmup));
                let left = steps - step;
                let fraction = (left as f64 / (decay + 1) as f64).min(1.0);
                self.min + (self.peak - self.min) * fraction
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(decay: Decay) -> LrSchedule {
        LrSchedule { decay, peak: 1.0, min: 0.1, warmup: 10, steps: 110 }
    }

    fn assert_close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-12, "{a} is not {b}");
    }

    #[test]
    fn every_schedule_warms_up_linearly_to_its_peak() {
        for decay in [Decay::Constant, Decay::Cosine, Decay::Wsd] {
            assert_close(schedule(decay).rate_at(0), 0.1);
            assert_close(schedule(decay).rate_at(4), 0.5);
            assert_close(schedule(decay).rate_at(9), 1.0);
            assert_close(schedule(decay).rate_at(10), 1.0);
        }
    }

    #[test]
    fn after_warm_up_each_goes_its_own_way() {
        let [constant, cosine, wsd] = [Decay::Constant, Decay::Cosine, Decay::Wsd].map(schedule);
        assert_close(constant.rate_at(109), 1.0);
        assert_close(cosine.rate_at(60), 0.55);
        assert_close(cosine.rate_at(35), 0.1 + 0.45 * (1.0 + (PI / 4.0).cos()));
        assert_close(cosine.rate_at(110), 0.1);
        assert_close(wsd.rate_at(87), 1.0);
        assert_close(wsd.rate_at(88), 0.1 + 0.9 * 22.0 / 23.0);
        assert_close(wsd.rate_at(109), 0.1 + 0.9 / 23.0);
        assert_close(wsd.rate_at(110), 0.1);
    }

    #[test]
    fn decays_fall_from_peak_to_minimum() {
        for decay in [Decay::Constant, Decay::Cosine, Decay::Wsd] {
            for steps in 1..40 {
                for warmup in 0..=steps {
                    let lr = LrSchedule { decay, peak: 1.0, min: 0.25, warmup, steps };
                    let after: Vec<_> = (warmup..steps + 2).map(|step| lr.rate_at(step)).collect();
                    assert!(after.is_sorted_by(|a, b| a >= b), "{lr:?}: {after:?}");
                    assert!(after.iter().all(|lr| (0.25..=1.0).contains(lr)), "{lr:?}: {after:?}");
                }
            }
        }
    }
}
