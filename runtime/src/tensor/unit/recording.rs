//! What recorded work needs of a unit to be done again.

use std::sync::Arc;

use crate::backend::{Buffer, GraphBuffer, GraphPool};

use super::values::Whole;
use super::{Unit, ZeroLevel};

/// Where a unit's buffers were when work began that was recorded.
#[derive(Debug)]
pub(in super::super) struct Inputs {
    /// Those that stay where they are.
    fixed: [Option<usize>; 4],
    /// At level 3: values that were gathered ahead, which the work has used up.
    gathered: Option<GraphBuffer>,
}

impl Unit {
    /// Where the buffers are. Nothing is under way.
    pub(in super::super) fn inputs(&self, recordings: &Arc<GraphPool>) -> Inputs {
        let gathered = match (self.level(), &*self.values.whole.borrow()) {
            (ZeroLevel::Parameters, Whole::Here(values)) => Some(recordings.buffer(values.view())),
            _ => None,
        };
        Inputs { fixed: self.fixed(), gathered }
    }

    /// Brings the unit to where recorded work finds it as it was, when this was its state. Gives whether that was possible.
    pub(in super::super) fn hand_over(&self, inputs: &Inputs) -> bool {
        if self.fixed() != inputs.fixed {
            return false;
        }
        if self.level() != ZeroLevel::Parameters {
            return true;
        }
        match (&*self.values.whole.borrow(), &inputs.gathered) {
            (Whole::Here(values), Some(place)) => place.copy_from(values.view()),
            (_, None) => {}
            (_, Some(_)) => return false,
        }
        self.release()
    }

    /// Buffers that are the same in every step.
    fn fixed(&self) -> [Option<usize>; 4] {
        let address = |buffer: &Buffer| buffer.view().address() as usize;
        let whole = match (self.level(), &*self.values.whole.borrow()) {
            (ZeroLevel::Parameters, _) => None,
            (_, Whole::Here(values)) => Some(address(values)),
            (_, Whole::Absent | Whole::Arriving(_)) => None,
        };
        let own = self.values.own.borrow().as_deref().map(address);
        let gradient = self.gradient.whole.borrow().as_ref().map(address);
        let shard = self.gradient.shard.borrow().as_ref().map(address);
        [whole, own, gradient, shard]
    }
}
