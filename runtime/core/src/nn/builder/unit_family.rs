//! The FSDP units of one field: one for each set of axes that splits parameters.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::layout::AxisSet;
use crate::tensor::{Unit, UnitTraining};

use super::declare::BuildState;

/// The units of the parameters of one field, by the axes of [`AxisSet::TOKENS`] that split them, and by whether they
/// are trained.
///
/// Most fields have one unit. A block with experts has two: the gradients of its dense parameters are summed over all
/// ranks that read other tokens, and the gradients of its experts only over ranks that have the same experts. So has a
/// block in which some fields are frozen.
pub(super) struct UnitFamily {
    scope: Rc<str>,
    units: RefCell<BTreeMap<(AxisSet, UnitTraining), Rc<Unit>>>,
}

impl UnitFamily {
    /// Creates the units of the field at `path`, with that of the parameters that are split over tensor-parallel ranks
    /// at most.
    pub fn new(state: &BuildState<'_>, path: &str) -> Rc<UnitFamily> {
        let family = UnitFamily { scope: Rc::from(path), units: RefCell::default() };
        family.unit_for(state, AxisSet::NONE, UnitTraining::Trained);
        Rc::new(family)
    }

    /// Returns the unit of parameters that are split over `axes`, which may contain axes that do not distinguish units.
    /// Frozen and trained parameters, and buffers, are in units of their own.
    pub fn unit_for(
        &self,
        state: &BuildState<'_>,
        axes: AxisSet,
        training: UnitTraining,
    ) -> Rc<Unit> {
        let split = axes.intersection(AxisSet::TOKENS);
        let mut units = self.units.borrow_mut();
        let unit = units.entry((split, training)).or_insert_with(|| {
            let unit = Unit::new(state.rank, &self.scope, split, training);
            state.units.borrow_mut().push(Rc::clone(&unit));
            unit
        });
        Rc::clone(unit)
    }
}
