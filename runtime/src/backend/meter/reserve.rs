//! Memory that recorded work uses, and that nothing else gets.

use std::sync::Arc;

use super::pool::Pool;
use super::{MemoryMeter, State};

/// What a meter keeps apart from its pool.
#[derive(Debug, Default)]
pub(super) struct Reserved {
    /// Whether work is recorded, which draws on it.
    pub(super) is_open: bool,
    /// Buffers that had been handed out when work was recorded last: it may use any of them.
    until: u64,
    pub(super) free: Pool,
}

impl Reserved {
    /// Whether recorded work may use the `number`-th buffer that was handed out.
    pub(super) fn wants(&self, number: u64) -> bool {
        self.is_open || number <= self.until
    }
}

/// The hold of recordings on memory of a meter (on a device, also on the host's memory that it has page-locked): as long as
/// it is there, buffers that were there while it was [open](Self::open) get no other use than in later openings.
///
/// The meter takes the memory back where it has no other left; then the hold is no longer [whole](Self::is_whole).
#[derive(Debug)]
pub struct Reserve(Arc<MemoryMeter>);

impl MemoryMeter {
    /// A hold on memory of this meter, which has none so far.
    pub(in crate::backend) fn reserve(self: &Arc<Self>) -> Reserve {
        self.and_offloaded(|state| state.reserved = Some(Reserved::default()));
        Reserve(Arc::clone(self))
    }

    fn and_offloaded(&self, mut change: impl FnMut(&mut State)) {
        change(&mut self.lock());
        if let Some(offloaded) = &self.offloaded {
            change(&mut offloaded.lock());
        }
    }
}

impl Reserve {
    /// From now on, buffers are made of reserved memory first, and their memory is reserved.
    pub fn open(&self) {
        self.change(|_, reserved| reserved.is_open = true);
    }

    /// From now on, other buffers are made of other memory.
    pub fn close(&self) {
        self.change(|handed_out, reserved| {
            reserved.is_open = false;
            reserved.until = handed_out;
        });
    }

    /// Whether all of the memory is still there.
    pub fn is_whole(&self) -> bool {
        let mut is_whole = true;
        self.0.and_offloaded(|state| is_whole &= state.reserved.is_some());
        is_whole
    }

    fn change(&self, change: impl Fn(u64, &mut Reserved)) {
        self.0.and_offloaded(|state| {
            let handed_out = state.handed_out;
            if let Some(reserved) = &mut state.reserved {
                change(handed_out, reserved);
            }
        });
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        self.0.and_offloaded(State::give_up_reserve);
    }
}

impl State {
    /// Puts what is reserved back into the pool.
    pub(super) fn give_up_reserve(&mut self) {
        if let Some(reserved) = self.reserved.take() {
            self.free.append(reserved.free);
        }
    }
}
