//! The page of `--explain`.

use serde_json::Value;

use crate::mesh::MeshShape;
use crate::train::explain::{
    CollectiveRow, ExplainedPosition, Explanation, KernelRow, bytes_cell, bytes_text, flops_cell,
    flops_text, json_of,
};

use super::document::{PageDocument, paragraph, table};
use super::key_numbers::{KeyNumber, key_numbers};
use super::memory::memory_section;

/// Most bytes of the document of a page.
const MOST_DATA: usize = 210_000;

/// Returns the page of an explained step; `about` describes the run in lines.
pub fn page_of_explanation(about: &str, explanation: &Explanation) -> String {
    let Explanation { mesh, positions, model_flops, memory, memory_over_time, .. } = explanation;
    let fullest = explanation.fullest();
    let mut page = PageDocument::new(&format!("A training step on {mesh}"), about);
    let number = |place: &str, name, value, note: &str| {
        let (place, note) = (place.to_owned(), note.to_owned());
        KeyNumber { place, name, value, note, is_bad: false }
    };
    let recomputed = flops_text(explanation.recomputed_flops());
    let of_all = flops_text(explanation.flops_of_all_ranks(|_| true));
    page.add(&key_numbers(&[
        number("/ranks", "ranks", mesh.world_size().to_string(), "of the mesh"),
        number(
            "/flops/model",
            "FLOPs of the model",
            flops_text(*model_flops),
            "of a step, as MFU counts",
        ),
        number("/flops/all_ranks", "FLOPs of all ranks", of_all, "of matmuls and attention"),
        number("/flops/recomputed", "recomputed FLOPs", recomputed, "of all ranks"),
        number(
            "/memory_plan/total",
            "memory",
            bytes_text(memory.total()),
            "at least, of the fullest rank",
        ),
    ]));
    if positions.len() > 1 {
        page.section("Positions along pp", &positions_table(positions));
    }
    let rank = format!("On rank {}, at the position with the highest peak.", fullest.rank);
    let work = paragraph(&rank) + &kernels_table(&fullest.kernels);
    page.section("Computation and kept memory by layer", &work);
    let calls = paragraph(&rank) + &collectives_table(&fullest.collectives, mesh);
    page.section("Communication", &calls);
    let time =
        ("kernels launched before", (|kernels| format!("{kernels:.0}")) as fn(f64) -> String);
    let memory = memory_section((memory_over_time, &fullest.peak), positions.len() > 1, None, time);
    page.section("Memory over the step", &memory);
    let about = "A dry run has the kernels, calls and buffers of a step in their order, and no times: --simulate adds \
                 them.";
    page.section("How far to trust this", &paragraph(about));
    let mut data = json_of(explanation);
    if data.to_string().len() > MOST_DATA {
        let left_out = format!(
            "all but {}, as they are long; --explain json has them",
            memory_over_time.position
        );
        data["positions_left_out"] = left_out.into();
        data["positions"] = Value::Array(vec![data["positions"][memory_over_time.position].take()]);
    }
    page.finish(&data)
}

fn positions_table(positions: &[ExplainedPosition]) -> String {
    let rows = positions.iter().enumerate().map(|(position, explained)| {
        let ExplainedPosition { rank, log, collectives, peak, .. } = explained;
        let sent: u64 = collectives.iter().flat_map(CollectiveRow::all_bytes).sum();
        [
            position.to_string(),
            peak.moment(),
            rank.to_string(),
            flops_text(log.flops(|_| true) as f64),
            bytes_text(sent),
            bytes_text(peak.bytes),
        ]
    });
    table(["position", "memory peaks", "rank", "FLOPs", "sent", "peak"], 2, rows)
}

fn kernels_table(rows: &[KernelRow]) -> String {
    let rows = rows.iter().map(|row| {
        let work = row.all_work();
        let ([forward, recomputed, backward, _], bytes) = (work.flops.map(flops_cell), work.bytes);
        [
            row.layers_text(),
            row.function.to_owned(),
            work.kernels.to_string(),
            forward,
            recomputed,
            backward,
            bytes_cell(bytes.iter().sum()),
            bytes_cell(work.kept),
        ]
    });
    let head = [
        "layers",
        "function",
        "kernels",
        "forward FLOPs",
        "recomputed",
        "backward",
        "bytes moved",
        "kept bytes",
    ];
    table(head, 2, rows)
}

fn collectives_table(rows: &[CollectiveRow], mesh: &MeshShape) -> String {
    if rows.is_empty() {
        return paragraph("None: no rank communicates.");
    }
    let rows = rows.iter().map(|row| {
        let [forward, recomputed, backward, update] = row.all_bytes().map(bytes_cell);
        let overlapped = match row.overlapped() {
            None => String::new(),
            Some(fields) if fields.is_empty() => "(asynchronous)".to_owned(),
            Some(fields) => fields.join(", "),
        };
        [
            row.layers.to_string(),
            row.op.to_owned(),
            mesh.axes_in_use(row.axes).to_string(),
            overlapped,
            row.all_calls().to_string(),
            forward,
            recomputed,
            backward,
            update,
        ]
    });
    let head = [
        "field",
        "operation",
        "axes",
        "overlaps with",
        "calls",
        "forward",
        "recomputed",
        "backward",
        "update",
    ];
    table(head, 4, rows)
}
