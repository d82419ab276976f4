//! Drawings of the book as SVG, in colors for light and dark themes.

use std::fmt::Write;

const STYLE: &str = r#"
    text { font-family: "Open Sans", "Helvetica Neue", Arial, sans-serif; font-size: 13px; fill: #24292f; }
    .note { font-size: 11.5px; fill: #57606a; }
    .bold { font-weight: 600; }
    .middle { text-anchor: middle; }
    .end { text-anchor: end; }
    .page { fill: #ffffff; stroke: #d0d7de; }
    .gray { fill: #eef1f4; stroke: #8c959f; }
    .blue { fill: #cfe3fb; stroke: #3577c1; }
    .orange { fill: #fbdcbb; stroke: #c0691c; }
    .green { fill: #cdebd2; stroke: #3c8a4f; }
    .purple { fill: #e3d6f7; stroke: #7f57be; }
    .line { fill: none; stroke: #8c959f; }
    .curve { fill: none; stroke-width: 2; }
    @media (prefers-color-scheme: dark) {
      text { fill: #d5dbe3; }
      .note { fill: #9aa4b0; }
      .page { fill: #161b25; stroke: #30384a; }
      .gray { fill: #2a3140; stroke: #76808e; }
      .blue { fill: #1f3f66; stroke: #6ba4e8; }
      .orange { fill: #5a3a17; stroke: #e09a52; }
      .green { fill: #1f4a2b; stroke: #6fbf83; }
      .purple { fill: #433063; stroke: #b191e6; }
      .line { stroke: #76808e; }
    }
"#;

/// Colors of bars, boxes and curves, as classes.
pub const COLORS: [&str; 5] = ["blue", "orange", "green", "purple", "gray"];

/// A drawing in the making.
pub struct Drawing {
    svg: String,
}

impl Drawing {
    /// Begins a drawing of a size in pixels.
    pub fn new(title: &str, [width, height]: [u32; 2]) -> Drawing {
        let (right, bottom) = (width - 1, height - 1);
        let svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} \
             {height}\" role=\"img\">\n  <title>{title}</title>\n  <style>{STYLE}  </style>\n  <rect x=\"0.5\" \
             y=\"0.5\" width=\"{right}\" height=\"{bottom}\" rx=\"8\" class=\"page\"/>\n"
        );
        Drawing { svg }
    }

    /// Adds a rectangle: left, top, width and height.
    pub fn rect(&mut self, [x, y, width, height]: [f64; 4], class: &str) {
        let _ = writeln!(
            self.svg,
            "  <rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"{class}\"/>"
        );
    }

    /// Adds text on a baseline.
    pub fn text(&mut self, [x, y]: [f64; 2], class: &str, text: &str) {
        let _ =
            writeln!(self.svg, "  <text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{text}</text>");
    }

    /// Adds straight lines from point to point.
    pub fn path(&mut self, points: &[[f64; 2]], class: &str) {
        let points = points.iter().map(|[x, y]| format!("{x:.1} {y:.1}"));
        let points = points.collect::<Vec<_>>().join(" L");
        let _ = writeln!(self.svg, "  <path d=\"M{points}\" class=\"{class}\"/>");
    }

    /// Adds a legend in one line: a swatch and a name for each color.
    pub fn legend(&mut self, [mut x, y]: [f64; 2], names: &[&str]) {
        for (name, color) in names.iter().zip(COLORS) {
            self.rect([x, y - 10.0, 12.0, 12.0], color);
            self.text([x + 18.0, y], "", name);
            x += 18.0 + 7.5 * name.len() as f64 + 16.0;
        }
    }

    pub fn finish(self) -> String {
        self.svg + "</svg>\n"
    }
}
