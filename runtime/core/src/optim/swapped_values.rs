//! Parameters that are swapped with other values of them, which an optimizer or an average keeps as state.

use std::rc::Rc;

use crate::tensor::Rank;
use meshwright_backend::DType;

use super::UnitState;

/// The versions of parameters before they were swapped with a state.
pub(super) struct SwappedValues {
    versions: Vec<u64>,
}

impl SwappedValues {
    /// Swaps the parameters with the only state of their units, of `kind`. Gathered values are then values of the
    /// state, at every ZeRO stage.
    ///
    /// # Panics
    /// If ranks have applied different updates.
    #[track_caller]
    pub fn swap(rank: &Rank, states: &mut [UnitState], kind: &'static str) -> SwappedValues {
        rank.compare_last_updates();
        let versions = states.iter().map(|state| state.unit().version()).collect();
        swap_values(rank, states, kind);
        SwappedValues { versions }
    }

    /// Restores parameters and state, with the same bits as before: an earlier loss can still be differentiated.
    pub fn swap_back(self, rank: &Rank, states: &mut [UnitState], kind: &'static str) {
        swap_values(rank, states, kind);
        for (state, version) in states.iter().zip(self.versions) {
            state.unit().set_version(version);
        }
    }
}

/// Swaps the parameters with the only state of their units, of `kind`.
pub(super) fn swap_values(rank: &Rank, states: &mut [UnitState], kind: &'static str) {
    rank.compute_pending_reads();
    let backend = rank.backend();
    for state in states {
        let unit = Rc::clone(state.unit());
        for range in state.group_ranges().iter() {
            let [mut other] = state.state_views([kind], &range.in_shard);
            let mut kept = rank.alloc_scratch(DType::F32, other.len());
            unit.change_values(range.range.clone(), |mut values, copy| {
                backend.cast(values.as_view(), kept.view_mut());
                backend.cast(other.as_view(), values.reborrow());
                if let Some(copy) = copy {
                    backend.cast(other.as_view(), copy);
                }
                backend.cast(kept.view(), other.reborrow());
            });
        }
        unit.publish_values();
    }
}
