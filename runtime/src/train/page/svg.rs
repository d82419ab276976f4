//! Drawings as SVG.

use std::fmt::Write;

use super::document::escaped;

/// Width of a drawing, in its own units; a page scales it.
pub const WIDTH: f64 = 960.0;

/// A drawing in the making.
pub struct Drawing {
    head: String,
    body: String,
}

impl Drawing {
    /// Begins a drawing with a text alternative: a title, and a description.
    pub fn new(title: &str, description: &str, height: f64) -> Drawing {
        let (title, description) = (escaped(title), escaped(description));
        let height = number(height);
        let head = format!(
            "<div class=\"wide\"><svg viewBox=\"0 0 {WIDTH} {height}\" \
             role=\"img\" aria-label=\"{title}: {description}\">\n<title>{title}</title>\n"
        );
        Drawing { head, body: String::new() }
    }

    /// Adds a rectangle: left, top, width and height.
    pub fn rect(&mut self, [x, y, width, height]: [f64; 4], class: &str, title: &str) {
        let [x, y, width, height] = [x, y, width, height].map(number);
        let rect = format!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\""
        );
        self.shape(&rect, "rect", title);
    }

    /// Adds a circle.
    pub fn circle(&mut self, [x, y, radius]: [f64; 3], class: &str, title: &str) {
        let [x, y, radius] = [x, y, radius].map(number);
        self.shape(
            &format!("<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"{radius}\""),
            "circle",
            title,
        );
    }

    /// Adds a path, with more attributes.
    pub fn path(&mut self, class: &str, points: &str, attributes: &str) {
        let _ = writeln!(self.body, "<path class=\"{class}\" d=\"{points}\" {attributes}/>");
    }

    /// Adds a line.
    pub fn line(&mut self, from: [f64; 2], to: [f64; 2], class: &str) {
        self.path(class, &polyline(&[from, to]), "");
    }

    /// Adds text on a baseline; the class sets its anchor.
    pub fn text(&mut self, [x, y]: [f64; 2], class: &str, text: &str) {
        let ([x, y], text) = ([x, y].map(number), escaped(text));
        let _ = writeln!(self.body, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{text}</text>");
    }

    /// Returns the drawing.
    pub fn finish(self) -> String {
        self.head + &self.body + "</svg></div>\n"
    }

    fn shape(&mut self, start: &str, tag: &str, title: &str) {
        let _ = match title {
            "" => writeln!(self.body, "{start}/>"),
            _ => writeln!(self.body, "{start}><title>{}</title></{tag}>", escaped(title)),
        };
    }
}

/// Returns the points of a path of straight lines.
pub fn polyline(points: &[[f64; 2]]) -> String {
    let points = points.iter().map(|[x, y]| format!("{} {}", number(*x), number(*y)));
    format!("M{}", points.collect::<Vec<_>>().join("L"))
}

/// Returns a coordinate with one digit after the point at most.
pub fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}
