//! A record of the calls of a dry run.

use std::panic::Location;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::comm::{Call, CallObserver};
use crate::layout::AxisSet;
use meshwright_core::__internal::{Pass, current_pass};

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
    /// The parts of the model that are computed until the rank waits for an asynchronous call, as far as they
    /// communicate: `blocks.1`, `head`. `None` for a blocking call.
    pub overlapped: Option<Vec<LayerField>>,
}

/// Records the calls of the last step.
#[derive(Default)]
pub struct CallRecorder(Mutex<Recording>);

#[derive(Default)]
struct Recording {
    /// Number of the first call of the step.
    first: usize,
    calls: Vec<RecordedCall>,
    /// Numbers of the asynchronous calls that the rank has not waited for.
    pending: Vec<usize>,
    /// The part whose call the rank has waited for last, and its pass.
    awaited: Option<(LayerField, Pass)>,
}

impl CallRecorder {
    /// Begins with another step.
    pub fn restart(&self) {
        let mut recording = self.lock();
        let first = recording.first + recording.calls.len();
        *recording = Recording { first, ..Recording::default() };
    }

    /// Returns the calls since the last start.
    pub fn take_calls(&self) -> Vec<RecordedCall> {
        std::mem::take(&mut self.lock().calls)
    }

    fn lock(&self) -> MutexGuard<'_, Recording> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recording {
    /// Adds a part of the model to what each pending call overlaps with.
    fn add_to_pending(&mut self, part: &LayerField) {
        for number in &self.pending {
            self.calls[number - self.first].overlap_with(part);
        }
    }
}

impl RecordedCall {
    /// Returns the part of the model that the call belongs to; messages belong to none.
    fn part(&self) -> Option<LayerField> {
        if matches!(self.op, "send" | "recv") { None } else { self.field.part() }
    }

    fn overlap_with(&mut self, part: &LayerField) {
        if self.part().as_ref() == Some(part) {
            return;
        }
        if let Some(parts) = self.overlapped.as_mut().filter(|parts| !parts.contains(part)) {
            parts.push(part.clone());
        }
    }
}

impl CallObserver for CallRecorder {
    fn call_issued(&self, call: &Call) -> usize {
        let mut recording = self.lock();
        let number = recording.first + recording.calls.len();
        let mut recorded = RecordedCall {
            field: LayerField::new(call.site.field()),
            line: call.site.location(),
            op: call.op.name(),
            axes: call.axes,
            pass: current_pass(),
            bytes: call.bytes as u64,
            overlapped: call.asynchronous.then(Vec::new),
        };
        // What has arrived last in this pass is computed now.
        if let Some((part, pass)) = &recording.awaited
            && *pass == recorded.pass
        {
            recorded.overlap_with(part);
        }
        if let Some(part) = recorded.part() {
            recording.add_to_pending(&part);
        }
        recording.calls.push(recorded);
        if call.asynchronous {
            recording.pending.push(number);
        }
        number
    }

    fn call_awaited(&self, number: usize) {
        let mut recording = self.lock();
        // Calls of earlier steps are not recorded.
        let Some(index) = recording.pending.iter().position(|pending| *pending == number) else {
            return;
        };
        recording.pending.remove(index);
        if let Some(part) = recording.calls[number - recording.first].part() {
            recording.add_to_pending(&part);
            recording.awaited = Some((part, current_pass()));
        }
    }
}
