//! A schedule as text, for terminals.

use super::action_label;
use crate::schedule::{Schedule, Simulation};

/// Most columns of all rows together: times that differ by orders of magnitude would need any number of them.
const MAX_COLUMNS: usize = 1 << 22;

/// Draws a row per rank; a computation fills its time with its label, then `-`, and idle time is `.`.
///
/// The width of a unit of time is that which the shortest computation needs for its label. If that takes more than 2^22
/// columns in all rows, the drawing is scaled down to them, and labels are cut.
pub fn draw_text(schedule: &Schedule, simulation: &Simulation) -> String {
    let has_chunks = schedule.stages() > schedule.ranks.len();
    let spans = || simulation.spans.iter().flatten().filter(|span| span.end > span.start);
    // Columns per unit of time, so that each label and a separator fit.
    let needed = spans().map(|span| {
        let len = action_label(span.compute, has_chunks).len() + 1;
        len as f64 / (span.end - span.start)
    });
    let most = MAX_COLUMNS / schedule.ranks.len().max(1);
    let scale = needed.fold(0.0, f64::max).min(most as f64 / simulation.makespan());
    // Infinite times too stay inside the row.
    let column = |time: f64| ((time * scale).round() as usize).min(most);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Costs, ScheduleKind, lower_schedule, simulate};

    fn drawing(costs: [f64; 4]) -> String {
        let [forward, input, weight, message] = costs;
        let schedule = ScheduleKind::GPipe.generate(2, 1, 2).unwrap();
        let costs = Costs { forward, input, weight, message };
        let simulation = simulate(&lower_schedule(&schedule, 1), costs).unwrap();
        draw_text(&schedule, &simulation)
    }

    #[test]
    fn labels_fit_the_shortest_computation() {
        let expected = "rank 0 F0 F1 .........B0--- B1---\nrank 1 ...F0 F1 B0--- B1--- ......\n";
        assert_eq!(drawing([1.0, 1.0, 1.0, 0.0]), expected);
    }

    #[test]
    fn costs_of_any_size_have_a_drawing() {
        for costs in [
            [1e-6, 1e3, 1.0, 0.0],
            [1e-9, 1e9, 1.0, 0.0],
            [1e308; 4],
            [5e-324; 4],
            [5e-324, 1e308, 0.0, 0.0],
        ] {
            let text = drawing(costs);
            assert_eq!(text.lines().count(), 2, "{costs:?}");
            assert!(text.len() <= MAX_COLUMNS + 64, "{costs:?}: {} bytes", text.len());
        }
    }
}
