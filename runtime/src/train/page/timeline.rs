//! The timeline of a step: its computations by position along `pp`, or the lanes of a rank.

use std::fmt::Write;

use crate::train::simulate::{Seconds, TimelineRow, TimelineSegment};

use super::document::legend;
use super::svg::{Drawing, WIDTH};

/// Most segments that have a box with a title each; more are drawn as one path for each row and kind.
const MOST_BOXES: usize = 500;
/// Units of a path in a unit of the drawing.
const FINE: f64 = 10.0;
const RIGHT: f64 = WIDTH - 12.0;
const TOP: f64 = 6.0;
/// Width of a letter of a label.
const LETTER: f64 = 6.0;
/// Kinds of segments: their color and name.
const KINDS: [(&str, &str, &str); 7] = [
    ("F", "k0", "F: forward"),
    ("B", "k1", "B: backward"),
    ("I", "k9", "I: backward for the input"),
    ("W", "k3", "W: backward for weights"),
    ("recomputed", "k2", "recomputation"),
    ("update", "k8", "update"),
    ("communication", "k5", "communication"),
];

/// Returns the drawing of a step of `seconds`.
pub fn timeline_section(rows: &[TimelineRow], seconds: f64, is_pipeline: bool) -> String {
    let segments = || rows.iter().flat_map(|row| &row.segments);
    // Positions begin one after the other, so the last one may end after the time of a step.
    let end = segments().map(|segment| segment.end).fold(seconds, f64::max);
    let count = segments().count();
    let longest = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let left = if is_pipeline { 40.0 } else { (6.6 * longest as f64 + 12.0).min(260.0) };
    let height = if rows.len() > 16 { (380.0 / rows.len() as f64).max(6.0) } else { 24.0 };
    let (title, subject) = if is_pipeline {
        ("Pipeline", "positions along pp")
    } else {
        ("Timeline", "lanes of the rank")
    };
    let description =
        format!("{count} computations and calls on {} {subject}, in {}", rows.len(), Seconds(end));
    let mut drawing = Drawing::new(title, &description, TOP + height * rows.len() as f64 + 34.0);
    let x = |time: f64| left + time / end * (RIGHT - left);
    for (idx, row) in rows.iter().enumerate() {
        let top = TOP + height * idx as f64;
        if height > 10.0 || idx % 4 == 0 {
            drawing.text([left - 8.0, top + height / 2.0 + 4.0], "e", &row.name);
        }
        drawing.rect([left, top, RIGHT - left, height - 2.0], "k7", "");
        if count > MOST_BOXES {
            draw_paths(&mut drawing, row, [left, top + height / 2.0 - 1.0, height - 2.0], |time| {
                ((x(time) - left) * FINE).round()
            });
            continue;
        }
        for segment in &row.segments {
            let TimelineSegment { start, end, is_later, label, .. } = segment;
            let class = format!("{}{}", color(segment.kind), if *is_later { " later" } else { "" });
            let width = (x(*end) - x(*start)).max(0.4);
            let label = label.as_ref().map_or(segment.kind.to_owned(), ToString::to_string);
            let title = format!("{label}: {} from {}", Seconds(end - start), Seconds(*start));
            let gap = if width > 3.0 { 0.5 } else { 0.0 };
            drawing.rect([x(*start), top, width - gap, height - 2.0], &class, &title);
            if is_pipeline && width > LETTER * label.len() as f64 {
                drawing.text([x(*start) + 3.0, top + height / 2.0 + 3.0], "in", &label);
            }
        }
    }
    let bottom = TOP + height * rows.len() as f64 + 18.0;
    drawing.text([left, bottom], "soft", "0");
    drawing.text([RIGHT, bottom], "e soft", &Seconds(end).to_string());
    let used = KINDS.iter().filter(|(kind, ..)| segments().any(|segment| segment.kind == *kind));
    let waits = if is_pipeline { "waiting, or done" } else { "nothing" };
    let entries = used.map(|(_, color, name)| (*color, *name)).chain([("k7", waits)]);
    let later = if segments().any(|segment| segment.is_later) {
        "<p class=\"soft\">Darker computations are of a rank's second and later stages.</p>\n"
    } else {
        ""
    };
    drawing.finish() + &legend(entries) + later
}

fn color(kind: &str) -> &'static str {
    KINDS.iter().find(|(known, ..)| *known == kind).map_or("k4", |(_, color, _)| color)
}

/// Draws a row as one path for each kind, in whole units.
fn draw_paths(
    drawing: &mut Drawing,
    row: &TimelineRow,
    [left, middle, height]: [f64; 3],
    place: impl Fn(f64) -> f64,
) {
    let mut kinds: Vec<(&str, bool)> =
        row.segments.iter().map(|segment| (segment.kind, segment.is_later)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for (kind, is_later) in kinds {
        let own = row.segments.iter();
        let own = own.filter(|segment| (segment.kind, segment.is_later) == (kind, is_later));
        // Segments without a visible gap are one.
        let mut spans: Vec<[f64; 2]> = Vec::new();
        for [start, end] in own.map(|segment| [segment.start, segment.end].map(&place)) {
            match spans.last_mut() {
                Some(last) if start <= last[1] => last[1] = last[1].max(end),
                _ => spans.push([start, end.max(start + 1.0)]),
            }
        }
        let (mut points, mut at) = ("M0 0".to_owned(), 0.0);
        for [start, end] in spans {
            let _ = write!(points, "m{} 0h{}", start - at, end - start);
            at = end;
        }
        let class = format!("run {}{}", color(kind), if is_later { " later" } else { "" });
        let scale = 1.0 / FINE;
        let attributes = format!(
            "transform=\"translate({left} {middle}) scale({scale} 1)\" stroke-width=\"{height}\""
        );
        drawing.path(&class, &points, &attributes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of the drawing does not follow from the number of segments.
    #[test]
    fn long_timelines_are_paths() {
        let segments = (0..40_000).map(|idx| {
            let (start, kind) = (f64::from(idx), if idx % 2 == 0 { "F" } else { "B" });
            TimelineSegment { start, end: start + 0.9, kind, is_later: false, label: None }
        });
        let mut row = TimelineRow { name: "0".to_owned(), segments: segments.collect() };
        let html = timeline_section(std::slice::from_ref(&row), 1.0, true);
        assert!(html.len() < 200_000 && !html.contains("waiting: "), "{}", html.len());
        assert_eq!(html.matches("<path").count(), 2);
        row.segments.truncate(3);
        let html = timeline_section(&[row], 3.5, true);
        assert!(html.contains("<title>B: 900.0 ms from 1.00 s</title>"), "{html}");
    }
}
