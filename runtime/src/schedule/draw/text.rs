//! A schedule as text, for terminals.

use super::action_label;
use crate::schedule::{Schedule, Simulation};

/// Draws a row per rank; a computation fills its time with its label, then `-`, and idle time is `.`.
///
/// The width of a unit of time is that which the shortest computation needs for its label.
pub fn draw_text(schedule: &Schedule, simulation: &Simulation) -> String {
    let has_chunks = schedule.stages() > schedule.ranks.len();
    let spans = || simulation.spans.iter().flatten().filter(|span| span.end > span.start);
    // Columns per unit of time, so that each label and a separator fit.
    let needed = spans().map(|span| {
        let len = action_label(span.compute, has_chunks).len() + 1;
        len as f64 / (span.end - span.start)
    });
    let scale = needed.fold(0.0, f64::max);
    let column = |time: f64| (time * scale).round() as usize;
    let names = (0..schedule.ranks.len()).map(|rank| format!("rank {rank} "));
    let names: Vec<String> = names.collect();
    let widest = names.iter().map(String::len).max().unwrap_or_default();
    let mut text = String::new();
    for (name, spans) in names.iter().zip(&simulation.spans) {
        let mut row = vec!['.'; column(simulation.makespan())];
        for span in spans {
            let cells = &mut row[column(span.start)..column(span.end)];
            cells.fill('-');
            if let Some(last) = cells.last_mut() {
                *last = ' ';
            }
            for (cell, letter) in
                cells.iter_mut().zip(action_label(span.compute, has_chunks).chars())
            {
                *cell = letter;
            }
        }
        text += &format!("{name:<widest$}{}\n", row.into_iter().collect::<String>().trim_end());
    }
    text
}
