//! Values without a gradient that depend on values with one, and reads of values.

use super::{Computed, Value, ValueState};
use crate::autograd::origin::Origin;

impl Value {
    /// Returns true if the value depends on values that require a gradient, also if it has none itself.
    pub(crate) fn depends_on_gradients(&self) -> bool {
        self.requires_grad() || self.has_origin()
    }

    /// Returns true if the value has no gradient, and only code of one place may read it.
    pub(crate) fn has_origin(&self) -> bool {
        self.0.origin.get().is_some()
    }

    /// Returns the value, which is computed now from `inputs`: with an [`Origin`] if it has no gradient, but one of
    /// them depends on values that have one.
    pub(crate) fn with_origin<'a>(self, mut inputs: impl Iterator<Item = &'a Value>) -> Value {
        let rank = self.rank();
        if rank.is_recording() && !self.requires_grad() && inputs.any(Value::depends_on_gradients) {
            let _ = self.0.origin.set(Origin::here(rank));
        }
        self
    }

    /// Checks that an operation of the running code may read the value.
    ///
    /// # Panics
    /// As [`check_recorded`](Self::check_recorded), and if another pipeline stage has computed the value, and has not
    /// passed it on.
    #[track_caller]
    pub(in crate::autograd) fn check_read(&self) {
        self.check_recorded();
        if self.rank().records_operations()
            && let ValueState::Computed(Computed { node: Some(node), .. }) = &*self.0.state.borrow()
        {
            node.check_read();
        }
    }
}
