//! The peak FLOP/s that `mfu` and `hfu` refer to.

use std::fmt;
use std::thread::sleep;
use std::time::Duration;

/// Measurements of a peak, with pauses for other work on the machine to end.
const MEASUREMENTS: usize = 3;
const PAUSE: Duration = Duration::from_millis(30);

/// Peak FLOP/s of all ranks together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PeakFlops {
    /// FLOP/s.
    pub flops: f64,
    /// True if the data sheet of the devices states them; otherwise they are the most that was measured in this run.
    pub is_of_data_sheet: bool,
}

impl PeakFlops {
    /// Returns the largest of several measurements: other work on the machine only makes them slower.
    pub(super) fn measured(mut measure: impl FnMut() -> f64) -> PeakFlops {
        let flops = (0..MEASUREMENTS)
            .map(|number| {
                sleep(if number == 0 { Duration::ZERO } else { PAUSE });
                measure()
            })
            .fold(0.0, f64::max);
        PeakFlops { flops, is_of_data_sheet: false }
    }

    /// Returns the fractions of the peak that a step of `seconds` has used: for the `model`, and with its `recomputed`
    /// FLOPs. A step that was faster than what was measured before raises the peak.
    pub(super) fn utilization(&mut self, model: f64, recomputed: f64, seconds: f64) -> [f64; 2] {
        let rates = [model, model + recomputed].map(|flops| flops / seconds);
        if !self.is_of_data_sheet && rates[1].is_finite() {
            self.flops = self.flops.max(rates[1]);
        }
        rates.map(|rate| rate / self.flops)
    }
}

impl fmt::Display for PeakFlops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scaled, unit) = match self.flops {
            flops if flops >= 1e15 => (flops / 1e15, "PFLOP/s"),
            flops if flops >= 1e12 => (flops / 1e12, "TFLOP/s"),
            flops => (flops / 1e9, "GFLOP/s"),
        };
        let source = if self.is_of_data_sheet {
            "by the data sheet"
        } else {
            "the most that this run has measured on this machine"
        };
        write!(f, "{scaled:.1} {unit}, {source}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_step_exceeds_a_peak_that_was_measured_on_a_busy_machine() {
        let mut rates = [40e9, 100e9, 70e9].into_iter();
        let mut peak = PeakFlops::measured(|| rates.next().unwrap());
        assert_eq!(peak.flops, 100e9);
        assert_eq!(peak.utilization(50e9, 25e9, 1.0), [0.5, 0.75]);
        assert_eq!(peak.utilization(150e9, 50e9, 1.0), [0.75, 1.0]);
        // The step before has shown what the machine can do.
        assert_eq!(peak.utilization(50e9, 0.0, 1.0), [0.25, 0.25]);
        // A clock that stood still shows nothing.
        assert_eq!(peak.utilization(1.0, 0.0, 0.0)[0], f64::INFINITY);
        assert_eq!(peak.flops, 200e9);
        let text = "200.0 GFLOP/s, the most that this run has measured on this machine";
        assert_eq!(peak.to_string(), text);
    }

    #[test]
    fn the_peak_of_a_data_sheet_stays() {
        let mut peak = PeakFlops { flops: 989e12, is_of_data_sheet: true };
        assert_eq!(peak.utilization(494.5e12, 0.0, 1.0), [0.5, 0.5]);
        peak.utilization(2e15, 0.0, 1.0);
        assert_eq!(peak.to_string(), "989.0 TFLOP/s, by the data sheet");
    }
}
