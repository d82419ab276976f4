//! Events of a step, in little memory: equal kernels are stored once.

use std::collections::HashMap;
use std::fmt;

use meshwright_backend::{Category, Kernel};

use super::{CommCall, ContextId, EventKind, StepEvent};

/// A list of events, of 12 bytes each, and of 16 more for a buffer and 40 for a call.
#[derive(Clone, Default)]
pub struct EventList {
    packed: Vec<PackedEvent>,
    kernels: Vec<Kernel>,
    kernel_indices: HashMap<Kernel, u32>,
    calls: Vec<CommCall>,
    buffers: Vec<(u32, u64, Category)>,
    /// The entries of buffers in use, by number.
    live: HashMap<u32, u32>,
}

#[derive(Clone, Copy)]
struct PackedEvent {
    context: ContextId,
    /// Index into the list of its kind, or the number of an awaited call.
    index: u32,
    kind: PackedKind,
}

#[derive(Clone, Copy)]
enum PackedKind {
    Kernel,
    Call,
    Await { of_previous_step: bool },
    Alloc,
    Free,
}

impl EventList {
    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.packed.len()
    }

    /// Returns true if there are no events.
    pub fn is_empty(&self) -> bool {
        self.packed.is_empty()
    }

    /// Returns the event at an index.
    ///
    /// # Panics
    /// If there are fewer events.
    pub fn at(&self, index: usize) -> StepEvent {
        self.unpack(self.packed[index])
    }

    /// Returns the events in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = StepEvent> {
        self.packed.iter().map(|packed| self.unpack(*packed))
    }

    /// Adds an event.
    pub fn push(&mut self, event: StepEvent) {
        let StepEvent { context, kind } = event;
        let (kind, index) = self.pack(kind);
        self.packed.push(PackedEvent { context, index, kind });
    }

    /// Replaces the kind of the event at an index.
    ///
    /// # Panics
    /// If there are fewer events.
    pub fn set_kind(&mut self, at: usize, kind: EventKind) {
        let (kind, index) = self.pack(kind);
        let context = self.packed[at].context;
        self.packed[at] = PackedEvent { context, index, kind };
    }

    fn pack(&mut self, kind: EventKind) -> (PackedKind, u32) {
        match kind {
            EventKind::Kernel(kernel) => {
                let kernels = &mut self.kernels;
                let index = *self.kernel_indices.entry(kernel).or_insert_with(|| {
                    kernels.push(kernel);
                    kernels.len() as u32 - 1
                });
                (PackedKind::Kernel, index)
            }
            EventKind::Call(call) => {
                self.calls.push(call);
                (PackedKind::Call, self.calls.len() as u32 - 1)
            }
            EventKind::Await { number, of_previous_step } => {
                (PackedKind::Await { of_previous_step }, number)
            }
            EventKind::Alloc { buffer, bytes, category } => {
                let index = self.add_buffer(buffer, bytes, category);
                self.live.insert(buffer, index);
                (PackedKind::Alloc, index)
            }
            EventKind::Free { buffer, bytes, category } => {
                let known = self.live.remove(&buffer);
                let known = known
                    .filter(|index| self.buffers[*index as usize] == (buffer, bytes, category));
                let index = known.unwrap_or_else(|| self.add_buffer(buffer, bytes, category));
                (PackedKind::Free, index)
            }
        }
    }

    fn add_buffer(&mut self, buffer: u32, bytes: u64, category: Category) -> u32 {
        self.buffers.push((buffer, bytes, category));
        self.buffers.len() as u32 - 1
    }

    fn unpack(&self, packed: PackedEvent) -> StepEvent {
        let index = packed.index as usize;
        let kind = match packed.kind {
            PackedKind::Kernel => EventKind::Kernel(self.kernels[index]),
            PackedKind::Call => EventKind::Call(self.calls[index]),
            PackedKind::Await { of_previous_step } => {
                EventKind::Await { number: packed.index, of_previous_step }
            }
            PackedKind::Alloc => {
                let (buffer, bytes, category) = self.buffers[index];
                EventKind::Alloc { buffer, bytes, category }
            }
            PackedKind::Free => {
                let (buffer, bytes, category) = self.buffers[index];
                EventKind::Free { buffer, bytes, category }
            }
        };
        StepEvent { context: packed.context, kind }
    }
}

impl FromIterator<StepEvent> for EventList {
    fn from_iter<I: IntoIterator<Item = StepEvent>>(events: I) -> EventList {
        let mut list = EventList::default();
        events.into_iter().for_each(|event| list.push(event));
        list
    }
}

impl fmt::Debug for EventList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl PartialEq for EventList {
    fn eq(&self, other: &EventList) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

#[cfg(test)]
mod tests {
    use meshwright_backend::{DType, KernelOp};
    use meshwright_mesh::AxisSet;

    use super::*;
    use crate::record::CommOpKind;

    #[test]
    fn events_are_those_that_were_added() {
        let kernel = |elements| {
            let (op, dims, dtype) = (KernelOp::Map, [elements, 0, 0, 0], DType::F32);
            EventKind::Kernel(Kernel { op, dims, dtype, flops: 0, read: 8, written: 4 })
        };
        let call = |number| {
            EventKind::Call(CommCall {
                number,
                op: CommOpKind::AllReduce,
                axes: AxisSet::ALL,
                group: 4,
                bytes: 32,
                is_asynchronous: true,
                message: None,
                round: Some(3),
                site: 1,
            })
        };
        let category = Category::Activations;
        let alloc = |buffer, bytes| EventKind::Alloc { buffer, bytes, category };
        let free = |buffer, bytes| EventKind::Free { buffer, bytes, category };
        let kinds = [
            free(0, 7),
            kernel(1),
            alloc(1, 5),
            call(0),
            kernel(2),
            kernel(1),
            alloc(2, 6),
            free(1, 5),
            EventKind::Await { number: 0, of_previous_step: false },
            EventKind::Await { number: 9, of_previous_step: true },
            free(2, 6),
        ];
        let events: Vec<StepEvent> = (0..)
            .map(ContextId)
            .zip(kinds)
            .map(|(context, kind)| StepEvent { context, kind })
            .collect();
        let mut list: EventList = events.iter().copied().collect();
        assert_eq!(list.iter().collect::<Vec<_>>(), events);
        assert_eq!((list.len(), list.kernels.len(), list.buffers.len()), (11, 2, 3));
        assert_eq!(list.at(3), events[3]);
        list.set_kind(8, kernel(2));
        assert_eq!(list.at(8), StepEvent { context: ContextId(8), kind: kernel(2) });
        assert_ne!(list, events.into_iter().collect());
    }
}
