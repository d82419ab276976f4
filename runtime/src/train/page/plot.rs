//! Plots with two axes.

use super::svg::{Drawing, WIDTH};

const HEIGHT: f64 = 320.0;
const LEFT: f64 = 86.0;
const RIGHT: f64 = WIDTH - 20.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = HEIGHT - 48.0;
/// Most intervals of a linear axis.
const INTERVALS: f64 = 6.0;

/// Ends of a logarithmic axis with several lines for each power of ten.
const DENSE: f64 = 300.0;

/// An axis of a plot.
pub struct PlotAxis {
    pub label: &'static str,
    pub from: f64,
    pub to: f64,
    pub is_log: bool,
    /// The text of a number.
    pub text: fn(f64) -> String,
}

/// A plot.
pub struct Plot {
    pub drawing: Drawing,
    x: PlotAxis,
    y: PlotAxis,
}

impl PlotAxis {
    /// Returns the fraction of the axis at which a number is.
    fn fraction(&self, value: f64) -> f64 {
        let of = |value: f64| if self.is_log { value.max(f64::MIN_POSITIVE).ln() } else { value };
        (of(value) - of(self.from)) / (of(self.to) - of(self.from))
    }

    /// Returns the numbers with a line: powers of ten, or 1, 2 or 5 times one, or multiples of that.
    fn ticks(&self) -> Vec<f64> {
        if self.is_log {
            let decades = self.from.log10().floor() as i32..=self.to.log10().floor() as i32;
            let is_short = self.to < DENSE * self.from;
            let factors = if is_short { &[1.0, 2.0, 5.0][..] } else { &[1.0] };
            let ticks =
                decades.flat_map(|decade| factors.iter().map(move |x| x * 10.0_f64.powi(decade)));
            return ticks.filter(|tick| (self.from..=self.to).contains(tick)).collect();
        }
        let least = (self.to - self.from) / INTERVALS;
        let power = 10.0_f64.powf(least.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
        let step = steps.into_iter().find(|step| *step >= least).unwrap_or(least);
        let first = (self.from / step).ceil();
        (0..)
            .map(|tick| (first + f64::from(tick)) * step)
            .take_while(|tick| *tick <= self.to)
            .collect()
    }
}

impl Plot {
    /// Begins a plot with its grid.
    pub fn new(title: &str, description: &str, x: PlotAxis, y: PlotAxis) -> Plot {
        let mut drawing = Drawing::new(title, description, HEIGHT);
        for tick in x.ticks() {
            let at = LEFT + x.fraction(tick) * (RIGHT - LEFT);
            drawing.line([at, TOP], [at, BOTTOM], "grid");
            drawing.text([at, BOTTOM + 18.0], "m", &(x.text)(tick));
        }
        for tick in y.ticks() {
            let at = BOTTOM - y.fraction(tick) * (BOTTOM - TOP);
            drawing.line([LEFT, at], [RIGHT, at], "grid");
            drawing.text([LEFT - 8.0, at + 4.0], "e", &(y.text)(tick));
        }
        drawing.text([(LEFT + RIGHT) / 2.0, HEIGHT - 8.0], "m soft", x.label);
        drawing.text([LEFT + 6.0, TOP + 12.0], "soft", y.label);
        Plot { drawing, x, y }
    }

    /// Returns the place of a point; points outside are on the border.
    pub fn place(&self, x: f64, y: f64) -> [f64; 2] {
        let [x, y] = [self.x.fraction(x), self.y.fraction(y)].map(|part| part.clamp(0.0, 1.0));
        [LEFT + x * (RIGHT - LEFT), BOTTOM - y * (BOTTOM - TOP)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_ticks() {
        let axis =
            |from, to, is_log| PlotAxis { label: "", from, to, is_log, text: |x| x.to_string() };
        assert_eq!(axis(0.0, 80.0, false).ticks(), [0.0, 20.0, 40.0, 60.0, 80.0]);
        assert_eq!(axis(-0.3, 1.0, false).ticks(), [-0.0, 0.5, 1.0]);
        assert_eq!(axis(0.5, 300.0, true).ticks(), [1.0, 10.0, 100.0]);
        assert_eq!(axis(0.9, 8.0, true).ticks(), [1.0, 2.0, 5.0]);
        assert!((axis(1.0, 100.0, true).fraction(10.0) - 0.5).abs() < 1e-12);
    }
}
