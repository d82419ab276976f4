//! Axes: their ranges, ticks and labels.

/// A range of values along pixels.
pub struct ChartAxis {
    low: f64,
    high: f64,
    is_log: bool,
    /// Pixels of both ends.
    pixels: [f64; 2],
}

impl ChartAxis {
    /// Creates an axis from the lowest to the highest value, or of some width if they are equal.
    pub fn new(values: [f64; 2], is_log: bool, pixels: [f64; 2]) -> ChartAxis {
        let scaled = |value: f64| if is_log { value.log10() } else { value };
        let [mut low, mut high] = values.map(scaled);
        // Less is lost in the rounding of the values.
        let least = 1e-9 * low.abs().max(high.abs()).max(1e-300);
        if high - low < least {
            let margin = if low == 0.0 || is_log { 1.0 } else { 0.1 * low.abs() };
            (low, high) = (low - margin, high + margin);
        }
        ChartAxis { low, high, is_log, pixels }
    }

    /// Adds a margin to both ends, so that no curve is on the border.
    pub fn with_margin(self) -> ChartAxis {
        let margin = 0.04 * (self.high - self.low);
        ChartAxis { low: self.low - margin, high: self.high + margin, ..self }
    }

    pub fn pixel(&self, value: f64) -> f64 {
        let value = if self.is_log { value.log10() } else { value };
        let [first, last] = self.pixels;
        let share = (value - self.low) / (self.high - self.low);
        first + share * (last - first)
    }

    /// Returns about `count` ticks with their labels.
    pub fn ticks(&self, count: f64) -> Vec<(f64, String)> {
        let width = (self.high - self.low) / count;
        if self.is_log && self.high - self.low >= 2.0 {
            let ticks = multiples(self.low, self.high, width.ceil());
            return ticks.into_iter().map(|power| own_label(10f64.powf(power))).collect();
        }
        if self.is_log && self.high - self.low >= 1.0 {
            let decades = self.low.floor() as i32..=self.high.ceil() as i32;
            let all = decades.flat_map(|power| [1.0, 2.0, 5.0].map(|n| n * 10f64.powi(power)));
            let inside = all.filter(|tick| (self.low..=self.high).contains(&tick.log10()));
            return inside.map(own_label).collect();
        }
        if self.is_log {
            let [low, high] = [self.low, self.high].map(|power| 10f64.powf(power));
            return ChartAxis { low, high, is_log: false, ..*self }.ticks(count);
        }
        let power = 10f64.powf(width.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * power).into_iter().find(|step| *step >= width);
        labels(&multiples(self.low, self.high, step.unwrap_or(width)), step.unwrap_or(width))
    }
}

/// Returns the multiples of `step` from `low` to `high`.
fn multiples(low: f64, high: f64, step: f64) -> Vec<f64> {
    let first = (low / step).ceil();
    let count = ((high / step).floor() - first).clamp(0.0, 100.0) as u32;
    (0..=count).map(|n| (first + f64::from(n)) * step).filter(|tick| *tick <= high).collect()
}

/// Returns a tick of a logarithmic scale, with a label of its own.
fn own_label(tick: f64) -> (f64, String) {
    match tick {
        0.01.. => labels(&[tick], tick).remove(0),
        _ => (tick, format!("{tick:.0e}")),
    }
}

/// Returns ticks with labels that have the decimals of `step`, and one unit: thousands as `k`, and so on.
fn labels(ticks: &[f64], step: f64) -> Vec<(f64, String)> {
    let largest = ticks.iter().fold(0.0, |largest: f64, tick| largest.max(tick.abs()));
    let thousands = match largest {
        0.01..10_000.0 | 0.0 => 0,
        _ => (largest.log10() + 1e-9).div_euclid(3.0) as i32,
    };
    let unit = match thousands {
        0 => String::new(),
        1 => "k".to_owned(),
        2 => "M".to_owned(),
        3 => "G".to_owned(),
        4 => "T".to_owned(),
        n => format!("e{}", 3 * n),
    };
    let scale = 10f64.powi(3 * thousands);
    let decimals = (-(step / scale).log10() - 1e-9).ceil().clamp(0.0, 9.0) as usize;
    let label = |tick: f64| match tick {
        0.0 => "0".to_owned(),
        tick => format!("{:.decimals$}{unit}", tick / scale),
    };
    ticks.iter().map(|tick| (*tick, label(*tick))).collect()
}
