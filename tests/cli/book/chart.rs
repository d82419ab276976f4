//! Charts of a drawing: stacked bars, and curves.

use super::drawing::{COLORS, Drawing};

/// A bar of parts, one for each color.
pub struct Bar {
    pub name: String,
    pub parts: Vec<f64>,
    /// Text behind the bar.
    pub note: String,
}

/// Draws bars below each other, from `top` on, whose longest one has the length `most`.
pub fn draw_bars(drawing: &mut Drawing, bars: &[Bar], [left, right, top]: [f64; 3], most: f64) {
    let scale = (right - left) / most;
    for (bar, row) in bars.iter().zip(0u32..) {
        let y = top + 30.0 * f64::from(row);
        drawing.text([left - 8.0, y + 15.0], "end", &bar.name);
        let mut x = left;
        for (part, color) in bar.parts.iter().zip(COLORS) {
            if *part > 0.0 {
                drawing.rect([x, y, part * scale, 21.0], color);
            }
            x += part * scale;
        }
        drawing.text([x + 8.0, y + 15.0], "note", &bar.note);
    }
}

/// An axis of a chart: the values of its ends, and their pixels.
pub struct Axis {
    pub ends: [f64; 2],
    pub pixels: [f64; 2],
    pub is_log: bool,
    /// Values with their labels.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    fn pixel(&self, value: f64) -> f64 {
        let scaled = |value: f64| if self.is_log { value.ln() } else { value };
        let [low, high] = self.ends.map(scaled);
        let [from, to] = self.pixels;
        from + (scaled(value) - low) / (high - low) * (to - from)
    }
}

/// Draws the axes of a chart with a title above, and its curves, one for each color.
pub fn draw_curves(
    drawing: &mut Drawing,
    title: &str,
    [x, y]: [&Axis; 2],
    curves: &[Vec<[f64; 2]>],
) {
    let ([left, right], [bottom, top]) = (x.pixels, y.pixels);
    drawing.text([left, top - 12.0], "bold", title);
    for (value, label) in &y.ticks {
        let at = y.pixel(*value);
        drawing.path(&[[left - 4.0, at], [left, at]], "line");
        drawing.text([left - 8.0, at + 4.0], "note end", label);
    }
    for (value, label) in &x.ticks {
        let at = x.pixel(*value);
        drawing.path(&[[at, bottom], [at, bottom + 4.0]], "line");
        drawing.text([at, bottom + 18.0], "note middle", label);
    }
    drawing.path(&[[left, top], [left, bottom], [right, bottom]], "line");
    for (curve, color) in curves.iter().zip(COLORS) {
        let points: Vec<[f64; 2]> =
            curve.iter().map(|[across, up]| [x.pixel(*across), y.pixel(*up)]).collect();
        drawing.path(&points, &format!("{color} curve"));
        for [across, up] in points.iter().filter(|_| points.len() < 20) {
            drawing.rect([across - 2.5, up - 2.5, 5.0, 5.0], color);
        }
    }
}
