//! The calls of a step, and what the asynchronous ones overlap with.

use std::panic::Location;

use crate::layout::AxisSet;
use meshwright_core::__internal::Pass;
use meshwright_sim::{CommOpKind, ContextId, EventKind, StepLog};

use super::layer_field::LayerField;

/// A collective or message of one step.
#[derive(Debug, Clone)]
pub struct RecordedCall {
    /// Path of the field, or of a unit with a purpose: `blocks.1 (parameters)`.
    pub field: LayerField,
    /// Line of the call, if it is known.
    pub line: Option<&'static Location<'static>>,
    /// Name of the operation.
    pub op: &'static str,
    pub axes: AxisSet,
    pub pass: Pass,
    /// Bytes that the rank sends, as [`CommStats`](crate::comm::CommStats) counts them.
    pub bytes: u64,
    /// The parts of the model whose kernels run until the rank waits for an asynchronous call: `blocks.1`, `head`.
    /// `None` for a blocking call.
    pub overlapped: Option<Vec<LayerField>>,
}

/// Returns the calls of a step, in their order.
pub fn calls_of(log: &StepLog) -> Vec<RecordedCall> {
    let fields: Vec<LayerField> =
        log.sites.iter().map(|site| LayerField::new(&site.field)).collect();
    let mut calls = Vec::new();
    // Calls that the rank has not waited for, by number and index, with the contexts of the kernels since.
    let mut pending: Vec<(u32, usize, Vec<ContextId>)> = Vec::new();
    for event in log.events.iter() {
        match &event.kind {
            EventKind::Kernel(_) => {
                for (.., contexts) in &mut pending {
                    if !contexts.contains(&event.context) {
                        contexts.push(event.context);
                    }
                }
            }
            EventKind::Call(call) => {
                if call.is_asynchronous {
                    pending.push((call.number, calls.len(), Vec::new()));
                }
                calls.push(RecordedCall {
                    field: fields[call.site as usize].clone(),
                    line: log.sites[call.site as usize].line,
                    op: call.op.name(),
                    axes: call.axes,
                    pass: log.context(&event).pass,
                    bytes: if call.op == CommOpKind::Recv { 0 } else { call.bytes },
                    overlapped: call.is_asynchronous.then(Vec::new),
                });
            }
            EventKind::Await { number, of_previous_step: false } => {
                let place = pending.iter().position(|(pending, ..)| pending == number);
                if let Some((_, index, contexts)) = place.map(|place| pending.swap_remove(place)) {
                    let layers = contexts.iter().map(|id| &*log.contexts[id.0 as usize].layer);
                    calls[index].overlap_with(layers);
                }
            }
            EventKind::Await { .. } | EventKind::Alloc { .. } | EventKind::Free { .. } => {}
        }
    }
    // They are waited for in the next step.
    for (_, index, contexts) in pending {
        let layers = contexts.iter().map(|id| &*log.contexts[id.0 as usize].layer);
        calls[index].overlap_with(layers);
    }
    calls
}

impl RecordedCall {
    /// Adds layers to what the call overlaps with, except for its own.
    fn overlap_with<'a>(&mut self, layers: impl Iterator<Item = &'a str>) {
        let own = if matches!(self.op, "send" | "recv") { None } else { self.field.part() };
        let Some(overlapped) = &mut self.overlapped else { return };
        for layer in layers.filter(|layer| !layer.is_empty()) {
            let part = LayerField::new(layer);
            if own.as_ref() != Some(&part) && !overlapped.contains(&part) {
                overlapped.push(part);
            }
        }
    }
}
