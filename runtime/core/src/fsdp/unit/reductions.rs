//! The reductions of a rank that are in progress and end before the step does, and when it waits for them.

use std::cell::RefCell;
use std::rc::Weak;

use crate::context::Rank;

use super::Unit;

/// Reduce-scatters in progress that end before the step does: the ones of gradients in memory of their own, and the
/// ones that an all-reduce over the replicas follows; and all-reduces of copies of bf16 gradients.
///
/// They end one behind: when the next one starts. A computation of a pipeline schedule does not wait for those that it
/// has started itself: its result is sent after it, so the reductions of all positions along `pp` would become one
/// chain. They end when a later computation starts another one.
#[derive(Default)]
struct ReduceScatters(RefCell<Vec<Started>>);

/// A reduction, in the order of their start.
struct Started {
    unit: Weak<Unit>,
    /// The computation of a pipeline schedule that has started it.
    action: Option<u64>,
}

impl Rank {
    /// Notes that the first collective of the reduction of `unit` has started.
    pub(super) fn note_reduction(&self, unit: &Weak<Unit>) {
        let action = self.running_action();
        self.reduce_scatters().borrow_mut().push(Started { unit: Weak::clone(unit), action });
    }

    /// Finishes the reduce-scatters that end before another one starts, or before backward ends.
    pub(crate) fn finish_earlier_reduce_scatters(&self) {
        let action = self.running_action();
        self.finish_reduce_scatters(|started, _| action.is_none() || started.action != action);
    }

    /// Finishes all reduce-scatters but the last one: memory is needed for the next gradient. So there are two at most.
    pub(super) fn make_room_for_gradient(&self) {
        self.finish_reduce_scatters(|_, later| later > 0);
    }

    /// Finishes those that `is_due` chooses, by how many later ones there are.
    fn finish_reduce_scatters(&self, is_due: impl Fn(&Started, usize) -> bool) {
        let mut in_progress = self.reduce_scatters().borrow_mut();
        let mut later = in_progress.len();
        in_progress.retain(|started| {
            later -= 1;
            let is_due = is_due(started, later);
            if let Some(unit) = started.unit.upgrade().filter(|_| is_due) {
                unit.finish_first_collective();
            }
            !is_due
        });
    }

    fn reduce_scatters(&self) -> &RefCell<Vec<Started>> {
        &self.session_state::<ReduceScatters>().0
    }
}
