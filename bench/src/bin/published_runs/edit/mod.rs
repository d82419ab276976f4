//! Edits of a log: from the step of this project's program to that of other software with the same mesh.

mod attention;
mod communication;
mod kernels;

use std::sync::Arc;

use meshwright::sim::cluster::Gpu;
use meshwright::sim::{EventKind, EventList, StepEvent, StepLog};

use crate::profile::{Attention, Profile};
use crate::row::Mesh;
use crate::software::Software;

/// The software of a run, and the GPU on which it runs.
pub struct Edit<'a> {
    pub profile: &'a Profile,
    pub software: &'a Software,
    pub gpu: &'a Gpu,
    pub mesh: Mesh,
    pub is_fp8: bool,
    /// True if backward computes attention again.
    pub recomputes_core: bool,
    /// Bytes per second of a message between pipeline stages.
    pub message_bandwidth: f64,
}

impl Edit<'_> {
    /// Returns the log of the step of the software.
    pub fn apply(&self, log: &StepLog) -> Arc<StepLog> {
        let mut log = without_memory(log);
        if self.recomputes_core {
            attention::recompute(&mut log);
        }
        match self.profile.attention {
            Attention::Unfused => attention::unfuse(&mut log),
            Attention::Flash2 => attention::use_flash2(&mut log, self.gpu, self.software.flash2),
            Attention::Cudnn => {}
        }
        kernels::merge_projections(&mut log);
        if self.is_fp8 {
            kernels::cast_to_fp8(&mut log, self.software.fp8);
        }
        if !self.profile.fused {
            kernels::unfuse(&mut log, self.software.unfused);
        }
        if self.mesh.tp > 1 {
            if !self.mesh.is_sequence_parallel {
                communication::reduce_whole_stream(&mut log, self.mesh.tp);
            }
            if self.profile.overlap.tp {
                communication::hide_tensor_parallel(&mut log, self.software.tp_hidden);
            }
        }
        if !self.mesh.splits_messages {
            communication::send_whole_messages(&mut log, self.mesh.tp);
        }
        if !self.profile.overlap.messages {
            communication::block_for_messages(&mut log, self.gpu, self.message_bandwidth);
        }
        if !self.profile.overlap.data {
            communication::expose_data_parallel(&mut log);
        }
        Arc::new(log)
    }
}

/// Returns a log without its allocations.
fn without_memory(log: &StepLog) -> StepLog {
    let is_memory =
        |event: &StepEvent| matches!(event.kind, EventKind::Alloc { .. } | EventKind::Free { .. });
    StepLog {
        contexts: log.contexts.clone(),
        sites: log.sites.clone(),
        messages: log.messages.clone(),
        events: list_of(log.events.iter().filter(|event| !is_memory(event))),
        ..StepLog::default()
    }
}

/// Replaces each event by those that `edited` returns.
fn replace(log: &mut StepLog, mut edited: impl FnMut(&StepLog, &StepEvent, &mut Vec<EventKind>)) {
    let events = std::mem::take(&mut log.events);
    let mut result = EventList::default();
    let mut kinds = Vec::new();
    for event in events.iter() {
        edited(log, &event, &mut kinds);
        for kind in kinds.drain(..) {
            result.push(StepEvent { context: event.context, kind });
        }
    }
    log.events = result;
}

fn list_of(events: impl IntoIterator<Item = StepEvent>) -> EventList {
    let mut list = EventList::default();
    events.into_iter().for_each(|event| list.push(event));
    list
}
