//! The FSDP units of a rank.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use crate::context::Rank;

use super::param::ParamRef;
use super::unit::Unit;

/// The units of the models that were built on a rank.
#[derive(Default)]
struct Units {
    owned: RefCell<Vec<Weak<Unit>>>,
    /// Declared units that only other pipeline stages own.
    of_other_stages: RefCell<Vec<Weak<Unit>>>,
}

impl Rank {
    /// Returns the FSDP units of the models on this rank.
    pub fn units(&self) -> Vec<Rc<Unit>> {
        self.session_state::<Units>().owned.borrow().iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns the parameters of the models on this rank that only other pipeline stages own.
    pub(crate) fn params_of_other_stages(&self) -> Vec<ParamRef> {
        let units = self.session_state::<Units>().of_other_stages.borrow();
        units.iter().filter_map(Weak::upgrade).flat_map(|unit| unit.params()).collect()
    }

    /// Adds the units of one model that this rank owns.
    pub(crate) fn add_units(&self, units: &[Rc<Unit>]) {
        units.iter().for_each(|unit| unit.set_model(units));
        extend_units(&self.session_state::<Units>().owned, units);
    }

    /// Adds the units of one model that only other pipeline stages own.
    pub(crate) fn add_units_of_other_stages(&self, units: &[Rc<Unit>]) {
        extend_units(&self.session_state::<Units>().of_other_stages, units);
    }

    /// Discards the gradients of all models on this rank, so that a step can be repeated.
    #[doc(hidden)]
    pub fn discard_gradients(&self) {
        self.units().iter().for_each(|unit| unit.discard_gradient());
    }
}

/// Adds units to a list, and drops the units of models that are gone.
fn extend_units(known: &RefCell<Vec<Weak<Unit>>>, units: &[Rc<Unit>]) {
    let mut known = known.borrow_mut();
    known.retain(|unit| unit.strong_count() > 0);
    known.extend(units.iter().map(Rc::downgrade));
}
