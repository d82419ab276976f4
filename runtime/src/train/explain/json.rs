//! `--explain json`.

use serde_json::{Map, Value, json};

use crate::backend::Category;
use crate::layout::AxisId;
use crate::mesh::MeshShape;
use meshwright_core::__internal::{Pass, RunningAction};
use meshwright_sim::Context;

use super::explanation::{ExplainedPosition, Explanation};
use super::kernels::KernelRow;
use super::peak::{BufferGroup, StepPeak};
use super::rows::{CollectiveRow, PASSES};

/// Returns the content of the text as one document. FLOPs and bytes of rows are sums over their layers.
pub fn json_of(explanation: &Explanation) -> Value {
    let Explanation { mesh, positions, local_sgd, model_flops, memory, memory_over_time } =
        explanation;
    let planned = Category::ALL.map(|category| memory.peak_of(category));
    json!({
        "mesh": mesh.to_string(),
        "ranks": mesh.world_size(),
        "local_steps": local_sgd.map(|local| local.steps),
        "fragments": local_sgd.map(|local| local.fragments),
        "flops": {
            "busiest_rank": explanation.flops_of_busiest_rank(),
            "all_ranks": explanation.flops_of_all_ranks(|_| true),
            "recomputed": explanation.recomputed_flops(),
            "model": model_flops,
        },
        "memory_over_time": memory_over_time,
        "memory_plan": { "total": memory.total(), "categories": by_category(&planned) },
        "positions": positions.iter().map(|position| of_position(position, mesh)).collect::<Vec<_>>(),
    })
}

fn of_position(position: &ExplainedPosition, mesh: &MeshShape) -> Value {
    let ExplainedPosition { rank, collectives, kernels, peak, .. } = position;
    json!({
        "rank": rank,
        "collectives": collectives.iter().map(|row| of_call(row, mesh)).collect::<Vec<_>>(),
        "computation": kernels.iter().map(of_kernels).collect::<Vec<_>>(),
        "memory_peak": of_peak(peak),
    })
}

fn of_call(row: &CollectiveRow, mesh: &MeshShape) -> Value {
    let axes = mesh.axes_in_use(row.axes).iter().map(AxisId::name);
    json!({
        "field": row.layers.to_string(),
        "layers": row.layers.count(),
        "operation": row.op,
        "axes": axes.collect::<Vec<_>>(),
        "calls": row.all_calls(),
        "bytes": by_pass(row.all_bytes()),
        "overlaps_with": row.overlapped(),
        "line": row.line(),
    })
}

fn of_kernels(row: &KernelRow) -> Value {
    let work = row.all_work();
    json!({
        "field": row.layers.to_string(),
        "layers": row.layers.count(),
        "function": row.function,
        "kernels": work.kernels,
        "flops": by_pass(work.flops),
        "bytes": by_pass(work.bytes),
        "kept_bytes": work.kept,
    })
}

/// Returns the moment at which the memory of a step peaks, and the buffers in use then.
pub fn of_peak(peak: &StepPeak) -> Value {
    let moment = peak.context.as_ref().map(|Context { pass, action, layer, function }| {
        let action = action.map(|RunningAction { work, stage, micro_batch }| {
            json!({ "work": work, "stage": stage, "micro_batch": micro_batch })
        });
        json!({ "pass": pass_name(*pass), "layer": **layer, "function": function, "action": action })
    });
    json!({
        "bytes": peak.bytes,
        "categories": by_category(&peak.by_category),
        "moment": moment,
        "buffers": peak.groups.iter().map(of_buffers).collect::<Vec<_>>(),
    })
}

fn of_buffers(group: &BufferGroup) -> Value {
    json!({
        "category": group.category.name(),
        "field": group.layers.to_string(),
        "function": group.function,
        "bytes": group.bytes,
        "buffers": group.buffers,
    })
}

fn by_pass(numbers: [u64; PASSES.len()]) -> Value {
    let entries = PASSES.into_iter().zip(numbers);
    Value::Object(entries.map(|(pass, n)| (pass_name(pass).to_owned(), n.into())).collect())
}

fn by_category(numbers: &[u64; Category::ALL.len()]) -> Value {
    let entries = Category::ALL.into_iter().zip(numbers);
    let named = entries.map(|(category, n)| (category.name().to_owned(), Value::from(*n)));
    Value::Object(named.collect::<Map<_, _>>())
}

pub const fn pass_name(pass: Pass) -> &'static str {
    match pass {
        Pass::Forward => "forward",
        Pass::Recomputation => "recomputed",
        Pass::Backward => "backward",
        Pass::Update => "update",
    }
}
