//! Memory over a step, and the buffers at its peak.

use crate::backend::{Bytes, Category};
use crate::train::explain::{MemoryOverTime, StepPeak, bytes_text};

use super::document::{legend, paragraph, table};
use super::plot::{Plot, PlotAxis};
use super::svg::polyline;

/// Buffers that are listed.
const LISTED: usize = 8;
const COLORS: [&str; Category::ALL.len()] = ["k0", "k5", "k3", "k1", "k2", "k4", "k7"];

/// Returns the drawing of memory over the time of a step, with the memory of a GPU if it is known, and the largest
/// buffers at the peak.
pub fn memory_section(
    (memory, peak): (&MemoryOverTime, &StepPeak),
    is_pipeline: bool,
    limit: Option<f64>,
    (time_label, time_text): (&'static str, fn(f64) -> String),
) -> String {
    let MemoryOverTime { position, at, bytes } = memory;
    let totals = memory.totals();
    let most = peak.bytes as f64;
    let shown = limit.filter(|limit| *limit < 4.0 * most);
    let moment = peak.moment();
    let summary = format!(
        "The fullest rank{} needs at most {} together, {moment}. The memory plan adds the peaks of the categories, \
         which need not be at one moment.",
        if is_pipeline { format!(", at position {position} along pp,") } else { String::new() },
        bytes_text(peak.bytes)
    );
    let end = at.last().map_or(1.0, |last| last + at[0]);
    let x = PlotAxis { label: time_label, from: 0.0, to: end, is_log: false, text: time_text };
    let to = 1.08 * shown.map_or(most, |limit| limit.max(most));
    let text = |bytes| Bytes(bytes).to_string();
    let y = PlotAxis { label: "memory of the rank", from: 0.0, to, is_log: false, text };
    let mut plot = Plot::new("Memory over the step", &summary, x, y);
    let mut below = vec![0.0; at.len()];
    let mut entries = Vec::new();
    for (category, color) in Category::ALL.into_iter().zip(COLORS) {
        let Some(bytes) = bytes.get(category.name()) else { continue };
        let above: Vec<f64> = below.iter().zip(bytes).map(|(sum, b)| sum + *b as f64).collect();
        let edge = |sums: &[f64]| -> Vec<[f64; 2]> {
            let inner = at.iter().zip(sums).map(|(at, sum)| plot.place(*at, *sum));
            let first = sums.first().map(|sum| plot.place(0.0, *sum));
            let last = sums.last().map(|sum| plot.place(end, *sum));
            first.into_iter().chain(inner).chain(last).collect()
        };
        let mut outline = edge(&above);
        outline.extend(edge(&below).into_iter().rev());
        plot.drawing.path(color, &polyline(&outline), "");
        entries.push((color, category.name()));
        below = above;
    }
    if let Some(limit) = shown {
        let [left, y] = plot.place(0.0, limit);
        plot.drawing.line([left, y], plot.place(end, limit), "mark");
        let name = format!("{} of a GPU", Bytes(limit));
        plot.drawing.text([plot.place(end, limit)[0] - 6.0, y - 5.0], "e", &name);
    }
    let fullest = totals.iter().enumerate().rev().max_by_key(|(_, bytes)| **bytes);
    if let Some((part, bytes)) = fullest {
        let [x, y] = plot.place(at[part], *bytes as f64);
        plot.drawing.circle([x, y, 4.0], "peak", &format!("{}, {moment}", bytes_text(*bytes)));
    }
    let buffers = peak.groups.iter().take(LISTED).map(|group| {
        [
            group.category.name().to_owned(),
            group.layers.to_string(),
            group.function.to_owned(),
            group.buffers.to_string(),
            bytes_text(group.bytes),
        ]
    });
    let head = ["at the peak", "layers", "function", "buffers", "bytes"];
    paragraph(&summary) + &plot.drawing.finish() + &legend(entries) + &table(head, 3, buffers)
}
