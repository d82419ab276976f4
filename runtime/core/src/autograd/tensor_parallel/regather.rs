//! Gathered tensors that backward gathers again instead of saving them.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::context::{Rank, fail};
use meshwright_backend::Buffer;
use meshwright_comm::PendingCall;

use super::sharded_dim::ShardedDim;

/// The shard of a gathered tensor: backward gathers it again, in one all-gather for all of its readers.
pub(crate) struct Regather {
    shard: Arc<Buffer>,
    dim: ShardedDim,
    readers: Cell<usize>,
    state: RefCell<RegatherState>,
}

enum RegatherState {
    Idle,
    InProgress(PendingCall),
    Gathered(Arc<Buffer>),
}

impl Regather {
    pub(super) fn new(shard: Arc<Buffer>, dim: ShardedDim) -> Regather {
        Regather { shard, dim, readers: Cell::new(0), state: RefCell::new(RegatherState::Idle) }
    }

    pub(crate) fn add_reader(&self) {
        self.readers.set(self.readers.get() + 1);
    }

    /// Starts the all-gather in the background, unless it was started.
    pub(crate) fn start_all_gather(&self, rank: &Rank) {
        let mut state = self.state.borrow_mut();
        if let RegatherState::Idle = &*state {
            *state = RegatherState::InProgress(self.dim.start_all_gather(rank, &self.shard));
        }
    }

    /// Returns the gathered data for one reader; the last one frees it.
    pub(crate) fn take_data(&self, rank: &Rank) -> Arc<Buffer> {
        self.start_all_gather(rank);
        self.readers.set(self.readers.get() - 1);
        let mut state = self.state.borrow_mut();
        let data = match std::mem::replace(&mut *state, RegatherState::Idle) {
            RegatherState::InProgress(pending) => {
                Arc::new(pending.wait().unwrap_or_else(|error| fail(error)))
            }
            RegatherState::Gathered(data) => data,
            RegatherState::Idle => unreachable!("the all-gather was just started"),
        };
        if self.readers.get() > 0 {
            *state = RegatherState::Gathered(Arc::clone(&data));
        }
        data
    }
}
