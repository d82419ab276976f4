//! The FSDP units of a rank.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use crate::context::Rank;

use super::unit::Unit;

/// The units of the models that were built on a rank.
type Units = RefCell<Vec<Weak<Unit>>>;

impl Rank {
    /// Returns the FSDP units of the models on this rank.
    pub fn units(&self) -> Vec<Rc<Unit>> {
        self.session_state::<Units>().borrow().iter().filter_map(Weak::upgrade).collect()
    }

    /// Adds the units of one model.
    pub(crate) fn add_units(&self, units: &[Rc<Unit>]) {
        units.iter().for_each(|unit| unit.set_model(units));
        let mut known = self.session_state::<Units>().borrow_mut();
        known.retain(|unit| unit.strong_count() > 0);
        known.extend(units.iter().map(Rc::downgrade));
    }

    /// Discards the gradients of all models on this rank, so that a step can be repeated.
    pub(crate) fn discard_gradients(&self) {
        self.units().iter().for_each(|unit| unit.discard_gradient());
    }
}
