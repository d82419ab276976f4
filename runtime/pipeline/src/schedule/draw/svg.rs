//! A schedule as an SVG picture that is readable in light and dark.

use std::fmt::Write;

use super::{WORKS, action_label};
use crate::schedule::{Schedule, Simulation, Work};

/// Height of a rank's row, in pixels.
const ROW: f64 = 34.0;
/// Width of the names of ranks.
const LEFT: f64 = 64.0;
/// Height of title and legend.
const TOP: f64 = 56.0;
const STYLE: &str = "\
    svg { color-scheme: light dark; --ink: #222; --idle: #e9e9ec } \
    @media (prefers-color-scheme: dark) { svg { --ink: #e6e6e6; --idle: #3a3a40 } } \
    text { font: 12px sans-serif; fill: var(--ink) } .title { font-size: 14px } .box { fill: #111; font-size: 11px } \
    .idle { fill: var(--idle) } .F { fill: #6ea8fe } .B { fill: #75c78f } .I { fill: #a3dba0 } .W { fill: #f2b880 } \
    .later { stroke: #111; stroke-width: 1.6 }";

/// Draws a row of boxes per rank, under a title.
///
/// Computations of a rank's second and later stages have a border.
pub fn draw_svg(schedule: &Schedule, simulation: &Simulation, title: &str) -> String {
    let ranks = schedule.ranks.len();
    let has_chunks = schedule.stages() > ranks;
    let spans = || simulation.spans.iter().flatten().filter(|span| span.end > span.start);
    let shortest = spans().map(|span| span.end - span.start).fold(f64::INFINITY, f64::min);
    let longest_label = spans().map(|span| action_label(span.compute, has_chunks).len()).max();
    let scale = (8.0 + 6.5 * longest_label.unwrap_or(1) as f64) / shortest;
    let x = |time: f64| LEFT + time * scale;
    let width = (x(simulation.makespan()) + 12.0).max(620.0);
    let height = TOP + ROW * ranks as f64 + 12.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" role=\"img\">\n<title>{0}</title>\n<style>{STYLE}</style>\n\
         <text class=\"title\" x=\"8\" y=\"20\">{0}</text>\n",
        escaped(title)
    );
    let mut draw = |line: std::fmt::Arguments| writeln!(out, "{line}").expect("a string grows");
    let mut left = 8.0;
    let used = |work: Work| spans().any(|span| span.compute.work == work);
    for (work, name) in WORKS.into_iter().filter(|(work, _)| used(*work)) {
        let class = work.letter();
        draw(format_args!(
            "<rect class=\"{class}\" x=\"{left:.0}\" y=\"32\" width=\"12\" height=\"12\"/>\
             <text x=\"{:.0}\" y=\"42\">{name}</text>",
            left + 17.0
        ));
        left += 34.0 + 6.6 * name.len() as f64;
    }
    for (rank, spans) in simulation.spans.iter().enumerate() {
        let top = TOP + ROW * rank as f64;
        draw(format_args!(
            "<text x=\"8\" y=\"{:.0}\">rank {rank}</text>\
             <rect class=\"idle\" x=\"{LEFT}\" y=\"{top:.0}\" width=\"{:.1}\" height=\"{:.0}\"/>",
            top + 19.0,
            simulation.makespan() * scale,
            ROW - 6.0
        ));
        let first_stage = schedule.placement.iter().position(|own| *own == rank);
        for span in spans.iter().filter(|span| span.end > span.start) {
            let is_later = Some(span.compute.stage) != first_stage;
            let class = span.compute.work.letter();
            let border = if is_later { " later" } else { "" };
            let width = (span.end - span.start) * scale - 1.0;
            draw(format_args!(
                "<rect class=\"{class}{border}\" x=\"{:.1}\" y=\"{top:.0}\" width=\"{width:.1}\" height=\"{:.0}\"/>\
                 <text class=\"box\" x=\"{:.1}\" y=\"{:.0}\">{}</text>",
                x(span.start),
                ROW - 6.0,
                x(span.start) + 3.0,
                top + 19.0,
                action_label(span.compute, has_chunks)
            ));
        }
    }
    out + "</svg>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
