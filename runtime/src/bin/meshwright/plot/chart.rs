//! Curves over steps, or other numbers, as SVG, one panel below the other.

use std::fmt::Write;

use super::axis::ChartAxis;

/// Pixels of the drawing.
const WIDTH: f64 = 820.0;
const PANEL: f64 = 340.0;
/// Distances of a panel's axes from its edges.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const ABOVE: f64 = 26.0;
const BELOW: f64 = 46.0;
/// Height of a line of the legend.
const LINE: f64 = 18.0;

/// Most points of a curve that are drawn as circles too.
const MAX_POINTS: usize = 200;

/// Attributes of a text that ends at its position, and of one around it.
const END: &str = "text-anchor='end'";
const MIDDLE: &str = "text-anchor='middle'";

/// Colors of runs. The first seven differ for color-blind readers too (Okabe and Ito).
const COLORS: [&str; 9] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#999999",
    "#7a4a1d",
];

/// A metric of a run.
pub struct Curve {
    /// Number of the run, from which its color follows.
    pub run: usize,
    pub label: String,
    /// Steps, or numbers along another [`Abscissa`], with their values. One without a value interrupts the curve.
    pub points: Vec<(u64, Option<f64>)>,
    /// True if each value is drawn as a point.
    pub has_points: bool,
}

/// The axis below a panel.
#[derive(Debug, Clone, Copy)]
pub struct Abscissa {
    pub label: &'static str,
    pub is_log: bool,
}

/// The axis of steps.
pub const STEPS: Abscissa = Abscissa { label: "step", is_log: false };

/// The curves that share their axes.
pub struct Panel<'a> {
    /// Name of the metric, the title.
    pub metric: &'a str,
    pub across: Abscissa,
    pub curves: Vec<Curve>,
}

/// Draws panels, each of which has a curve with a value.
pub fn draw_svg(panels: &[Panel<'_>], is_log: bool) -> String {
    let legends: Vec<f64> = panels.iter().map(|panel| LINE * panel.curves.len() as f64).collect();
    let height = PANEL * panels.len() as f64 + legends.iter().sum::<f64>();
    // A background of its own, for viewers with a dark one.
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    let mut top = 0.0;
    for (panel, legend) in panels.iter().zip(legends) {
        draw_panel(&mut svg, panel, top, legend, is_log);
        top += PANEL + legend;
    }
    svg + "</svg>\n"
}

fn draw_panel(svg: &mut String, panel: &Panel<'_>, top: f64, legend: f64, is_log: bool) {
    let [upper, lower] = [top + ABOVE + legend, top + legend + PANEL - BELOW];
    let right = WIDTH - RIGHT;
    let points = || panel.curves.iter().flat_map(|curve| &curve.points);
    let [first, last] = range(points().map(|(step, _)| *step as f64));
    let values = range(points().filter_map(|(_, value)| *value));
    let Abscissa { label, is_log: is_log_across } = panel.across;
    let is_one = first >= last && !is_log_across;
    let [first, last] = if is_one { [first - 1.0, last + 1.0] } else { [first, last] };
    let across = ChartAxis::new([first, last], is_log_across, [LEFT, right]);
    let up = ChartAxis::new(values, is_log, [lower, upper]).with_margin();
    let unit = unit_of(panel.metric).map(|unit| format!(" ({unit})")).unwrap_or_default();
    text(svg, LEFT, top + 18.0, "font-weight='bold'", &format!("{}{unit}", panel.metric));
    for (tick, label) in up.ticks(6.0) {
        let y = up.pixel(tick);
        line(svg, [LEFT, y, right, y], "#e2e2e2");
        text(svg, LEFT - 6.0, y + 4.0, END, &label);
    }
    // At most one for each step.
    let n_ticks = if is_log_across { 8.0 } else { (last - first).min(8.0) };
    for (tick, label) in across.ticks(n_ticks) {
        let x = across.pixel(tick);
        line(svg, [x, lower, x, lower + 4.0], "#888");
        text(svg, x, lower + 17.0, MIDDLE, &label);
    }
    line(svg, [LEFT, lower, right, lower], "#888");
    line(svg, [LEFT, upper, LEFT, lower], "#888");
    text(svg, (LEFT + right) / 2.0, lower + 36.0, MIDDLE, label);
    let has_points = panel.curves.iter().any(|curve| curve.has_points);
    for (place, curve) in panel.curves.iter().enumerate() {
        let color = COLORS[curve.run % COLORS.len()];
        // Lighter than the validation loss among it.
        let opacity = if has_points && !curve.has_points { "0.5" } else { "1" };
        let _ = writeln!(svg, "<g opacity=\"{opacity}\">");
        draw_curve(svg, curve, &across, &up, color);
        let y = top + 26.0 + LINE * (place as f64 + 0.5);
        let _ = writeln!(svg, "<path d=\"M{LEFT} {y}h24\" stroke=\"{color}\" stroke-width=\"2\"/>");
        if curve.has_points {
            circle(svg, LEFT + 12.0, y, color);
        }
        let _ = writeln!(svg, "</g>");
        text(svg, LEFT + 32.0, y + 4.0, "", &curve.label);
    }
}

/// Draws a curve as a path for each part without a gap. A part of one step is a point.
fn draw_curve(svg: &mut String, curve: &Curve, across: &ChartAxis, up: &ChartAxis, color: &str) {
    let parts = curve.points.split(|(_, value)| value.is_none());
    for part in parts.filter(|part| !part.is_empty()) {
        let pixels = part
            .iter()
            .filter_map(|(step, value)| Some((across.pixel(*step as f64), up.pixel((*value)?))));
        let pixels = thin_out(pixels);
        if let [(x, y)] = pixels[..] {
            circle(svg, x, y, color);
            continue;
        }
        let dashes = if curve.has_points { " stroke-dasharray=\"4 3\"" } else { "" };
        let mut path = String::new();
        for (x, y) in &pixels {
            let command = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{command}{x:.1} {y:.1}");
        }
        let _ = writeln!(
            svg,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.4\" \
             stroke-linejoin=\"round\"{dashes}/>"
        );
        if curve.has_points && pixels.len() <= MAX_POINTS {
            pixels.iter().for_each(|(x, y)| circle(svg, *x, *y, color));
        }
    }
}

/// Keeps at most four points of each column of pixels: the first, the highest, the lowest and the last.
fn thin_out(pixels: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut kept: Vec<(f64, f64)> = Vec::new();
    let mut column: Vec<(f64, f64)> = Vec::new();
    for point in pixels {
        if column.first().is_some_and(|first| first.0.floor() != point.0.floor()) {
            kept.append(&mut column);
        }
        column.push(point);
        // The extremes so far are the two in the middle.
        if let [first, low, high, last, new] = column[..] {
            let by_height = |a: &(f64, f64), b: &(f64, f64)| a.1.total_cmp(&b.1);
            let middle = [low, high, last];
            let lowest = middle.into_iter().min_by(by_height).unwrap_or(low);
            let highest = middle.into_iter().max_by(by_height).unwrap_or(high);
            let [second, third] =
                if lowest.0 <= highest.0 { [lowest, highest] } else { [highest, lowest] };
            column = vec![first, second, third, new];
        }
    }
    kept.append(&mut column);
    kept
}

/// Returns the lowest and the highest of some values.
fn range(values: impl Iterator<Item = f64>) -> [f64; 2] {
    values.fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], value| {
        [low.min(value), high.max(value)]
    })
}

/// Returns the unit of a metric, if it has one.
fn unit_of(metric: &str) -> Option<&'static str> {
    let (key, _) = metric.split_once('/').unwrap_or((metric, ""));
    match key {
        "loss" | "eval_loss" | "aux_loss" => Some("nats"),
        "step_ms" | "save_ms" => Some("ms"),
        "tokens_per_s" => Some("tokens/s"),
        "time" => Some("s since 1970"),
        "peak_flops" => Some("FLOP/s"),
        "peak_bytes" | "comm_bytes" | "save_bytes" => Some("bytes"),
        "eval_bits_per_byte" => Some("bits"),
        _ => None,
    }
}

fn line(svg: &mut String, [x1, y1, x2, y2]: [f64; 4], color: &str) {
    let _ = writeln!(svg, "<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" stroke=\"{color}\"/>");
}

fn circle(svg: &mut String, x: f64, y: f64, color: &str) {
    let _ = writeln!(
        svg,
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{color}\" stroke=\"#fff\"/>"
    );
}

fn text(svg: &mut String, x: f64, y: f64, attributes: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    // XML has no control characters.
    let text = text.replace(char::is_control, "?");
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {attributes}>{text}</text>");
}
