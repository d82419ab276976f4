//! Data that operations save for their backward: on the device, offloaded, or to be gathered again.

use std::rc::Rc;
use std::sync::Arc;

use crate::context::Rank;
use meshwright_backend::Buffer;

use super::offloading::Offloaded;
use super::tensor_parallel::Regather;

/// Data that an operation saves for its backward.
pub(crate) enum Saved {
    Data(Arc<Buffer>),
    Offloaded(Offloaded),
    Regather(Rc<Regather>),
}

impl Saved {
    /// Starts to gather the data again, if necessary, so that it overlaps with other work.
    pub(crate) fn prefetch(&self, rank: &Rank) {
        if let Saved::Regather(regather) = self {
            regather.start_all_gather(rank);
        }
    }

    /// Returns the data.
    pub(crate) fn take_buffer(self, rank: &Rank) -> Arc<Buffer> {
        match self {
            Saved::Data(data) => data,
            Saved::Offloaded(data) => Arc::new(data.fetch(rank)),
            Saved::Regather(regather) => regather.take_data(rank),
        }
    }
}
