//! The result of a simulation as text.

use std::fmt;

use crate::backend::Bytes;
use crate::backend::Category;

use super::SimulatedRun;
use super::report::{LinkUse, WholeRun};

/// Smallest fraction of a step that is listed.
const LEAST_SHARE: f64 = 0.005;
/// Smallest fraction of the sent bytes that is listed: more than losses and norms.
const LEAST_TRAFFIC: f64 = 1e-5;

impl fmt::Display for SimulatedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SimulatedRun { cluster, gpu, gpus, mesh, .. } = self;
        writeln!(f, "simulated step of {mesh} on {gpus} {gpu} of {cluster}:")?;
        writeln!(
            f,
            "step    {} +-{:.0} %   {} tokens/s   MFU {} (causal {})   HFU {}",
            Seconds(self.step_s),
            100.0 * self.uncertainty,
            Scaled(self.tokens_per_s),
            Percent(self.mfu),
            Percent(self.mfu_causal),
            Percent(self.hfu),
        )?;
        if let Some(WholeRun { tokens, days, gpu_hours }) = self.run {
            writeln!(
                f,
                "run     {} tokens: {days:.1} days, {} GPU-hours without interruptions",
                Scaled(tokens),
                Scaled(gpu_hours)
            )?;
        }
        writeln!(f, "time    {}", self.shares())?;
        if !self.links.is_empty() {
            writeln!(f, "links   {}", self.links())?;
        }
        writeln!(f, "memory  {}", self.memory())
    }
}

impl SimulatedRun {
    /// Returns the shares of the step, the largest first.
    fn shares(&self) -> String {
        let mut shares: Vec<(&str, f64)> = self
            .time_s
            .iter()
            .map(|(name, seconds)| (&**name, seconds / self.step_s))
            .filter(|(_, share)| *share >= LEAST_SHARE)
            .collect();
        shares.sort_by(|a, b| b.1.total_cmp(&a.1));
        let text = |(name, share): &(&str, f64)| format!("{name} {}", Percent(*share));
        shares.iter().map(text).collect::<Vec<_>>().join(", ")
    }

    /// Returns the bytes that a GPU sends over each set of axes, with the levels of the network.
    fn links(&self) -> String {
        let all: f64 = self.links.iter().map(|link| link.sent_bytes).sum();
        let listed = self.links.iter().filter(|link| link.sent_bytes >= LEAST_TRAFFIC * all);
        let text = |LinkUse { axes, sent_bytes, levels }: &LinkUse| {
            format!("{axes} {} ({})", Bytes(*sent_bytes), levels.join(" + "))
        };
        listed.map(text).collect::<Vec<_>>().join(", ")
    }

    fn memory(&self) -> String {
        let [needed, available] =
            [self.memory_bytes, self.gpu_memory_bytes].map(|bytes| Bytes(bytes as f64));
        let parts = Category::ALL.into_iter().filter_map(|category| {
            let bytes = *self.memory_by_category.get(category.name())?;
            Some(format!("{} {}", category.name(), Bytes(bytes as f64)))
        });
        let parts = parts.collect::<Vec<_>>().join(", ");
        let verdict = if self.fits() { "" } else { "does not fit: " };
        format!("{verdict}{needed} of {available} on the fullest rank; peaks: {parts}")
    }
}

/// Seconds in a unit that suits them.
pub struct Seconds(pub f64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            seconds if seconds < 1.0 => write!(f, "{:.1} ms", seconds * 1e3),
            seconds => write!(f, "{seconds:.2} s"),
        }
    }
}

/// A number with a suffix: `2.6 M`.
pub struct Scaled(pub f64);

impl fmt::Display for Scaled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1e12, " T"), (1e9, " B"), (1e6, " M"), (1e3, " k")];
        match units.iter().find(|(scale, _)| self.0 >= *scale) {
            Some((scale, unit)) => {
                let number = self.0 / scale;
                // Three digits, or all before the point.
                let decimals = if number < 9.995 { 2 } else { usize::from(number < 99.95) };
                write!(f, "{number:.decimals$}{unit}")
            }
            None => write!(f, "{:.0}", self.0),
        }
    }
}

/// A fraction as a percentage.
pub struct Percent(pub f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} %", 100.0 * self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        for (number, text) in [
            (7.0, "7"),
            (999.0, "999"),
            (1234.0, "1.23 k"),
            (45_678.0, "45.7 k"),
            (456_789.0, "457 k"),
            (1e15, "1000 T"),
            (15.6e12, "15.6 T"),
        ] {
            assert_eq!(Scaled(number).to_string(), text);
        }
        assert_eq!(Seconds(0.08765).to_string(), "87.7 ms");
        assert_eq!(Seconds(6.504).to_string(), "6.50 s");
    }
}
