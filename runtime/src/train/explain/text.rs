//! `--explain` as text.

use std::fmt::Write;

use super::columns::{aligned, bytes_text, flops_text};
use super::explanation::Explanation;
use super::kernels::kernel_table;
use super::table::table_of;

/// Returns the tables of each position along `pp`, and sums over all ranks.
pub fn text_of(explanation: &Explanation) -> String {
    let mesh = &explanation.mesh;
    let mut text = String::new();
    for position in &explanation.positions {
        let place = format!("of a step on rank {} of {mesh}", position.rank);
        let _ = writeln!(text, "collectives {place}:");
        text += &table_of(&position.collectives, mesh);
        let _ = writeln!(text, "computation {place}:");
        text += &kernel_table(&position.kernels);
        let (bytes, moment) = (bytes_text(position.peak.bytes), position.peak.moment());
        let _ = writeln!(text, "memory {place}: at most {bytes}, {moment}:");
        text += &position.peak.largest_groups();
    }
    if let Some(local) = &explanation.local_sgd {
        let steps = match local.turn_steps() {
            1 => "each step".to_owned(),
            steps => format!("one in {steps} steps"),
        };
        let _ = match local.fragments {
            1 => writeln!(
                text,
                "the step ends with a synchronization of the replicas (outer gradient), which {steps} has"
            ),
            fragments => writeln!(
                text,
                "the step ends with the synchronizations of all {fragments} fragments (outer gradient); {steps} has \
                 one of them"
            ),
        };
    }
    text += "FLOPs of a step, of matmuls and attention:\n";
    let lines = [
        ("busiest rank", explanation.flops_of_busiest_rank() as f64),
        ("all ranks", explanation.flops_of_all_ranks(|_| true)),
        ("recomputed", explanation.recomputed_flops()),
        ("model", explanation.model_flops),
    ];
    text += &aligned(&lines.map(|(name, flops)| [name.to_owned(), flops_text(flops)]), 1..2);
    let _ = writeln!(text, "{}", explanation.memory.need_of("memory: each rank"));
    text
}
