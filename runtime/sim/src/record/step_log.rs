//! The log of a step, and sums over it.

use meshwright_backend::Category;
use meshwright_comm::MessageId;
use meshwright_core::__internal::Pass;
use meshwright_mesh::AxisSet;

use super::{CallSite, Context, EventKind, EventList, LiveBuffer, StepEvent};

/// The events of one training step on one rank, in the order in which its host issues them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StepLog {
    /// The contexts of the events.
    pub contexts: Vec<Context>,
    /// The call sites of its calls.
    pub sites: Vec<CallSite>,
    /// The identities of its messages.
    pub messages: Vec<MessageId>,
    /// The events.
    pub events: EventList,
    /// Bytes in use at the beginning of the step, in the order of [`Category::ALL`].
    pub live_at_start: [u64; Category::ALL.len()],
    /// The buffers in use at the beginning of the step, in the order of their numbers.
    pub buffers_at_start: Vec<LiveBuffer>,
}

impl StepLog {
    /// Returns the context of an event.
    pub fn context(&self, event: &StepEvent) -> &Context {
        &self.contexts[event.context.0 as usize]
    }

    /// Returns the floating-point operations of matmuls and attention in the passes that `counts` selects.
    pub fn flops(&self, counts: impl Fn(Pass) -> bool) -> u64 {
        let flops = self.events.iter().map(|event| match event.kind {
            EventKind::Kernel(kernel) if counts(self.context(&event).pass) => kernel.flops,
            _ => 0,
        });
        flops.sum()
    }

    /// Returns the bytes that the rank sends over each set of axes, and the number of its calls, receives excluded.
    pub fn sent(&self) -> Vec<(AxisSet, u64, usize)> {
        let mut sums: Vec<(AxisSet, u64, usize)> = Vec::new();
        for event in self.events.iter() {
            let EventKind::Call(call) = event.kind else { continue };
            if call.op == super::CommOpKind::Recv {
                continue;
            }
            match sums.iter_mut().find(|(axes, ..)| *axes == call.axes) {
                Some((_, bytes, calls)) => {
                    *bytes += call.bytes;
                    *calls += 1;
                }
                None => sums.push((call.axes, call.bytes, 1)),
            }
        }
        sums
    }
}
