//! The exponential moving average of the parameters.

use std::rc::Rc;

use crate::backend::DType;
use crate::tensor::{Rank, Unit};

use super::{ParamGroups, UnitState};

const KINDS: [&str; 1] = [Ema::KIND];

/// An average of the parameters over the steps, `average += (1 - decay) * (parameter - average)`, which begins as the
/// parameters are; in f32, and sharded as the optimiser's state is.
///
/// [`Optimizer::step_and_average`](super::Optimizer::step_and_average) keeps it up.
pub struct Ema {
    rank: Rank,
    decay: f64,
    states: Vec<UnitState>,
}

impl Ema {
    /// The kind of state that each parameter has, by which checkpoints know it.
    pub const KIND: &'static str = "ema";

    /// The average of the parameters of `units`, which begins as they are now. `decay` is in `[0, 1)`.
    pub fn new(rank: &Rank, units: &[Rc<Unit>], decay: f64) -> Ema {
        let groups = ParamGroups::default();
        let state = |unit| UnitState::new(rank, unit, &groups, |_| &KINDS);
        let mut ema = Ema { rank: rank.clone(), decay, states: units.iter().map(state).collect() };
        ema.restart();
        ema
    }

    /// Begins again with the parameters as they are now.
    pub fn restart(&mut self) {
        for index in 0..self.states.len() {
            self.blend(index, 1.0);
        }
    }

    /// Takes in the parameters as they are now, as after every step.
    pub fn update(&mut self) {
        for index in 0..self.states.len() {
            self.blend(index, 1.0 - self.decay);
        }
    }

    /// Takes in the parameters of one unit.
    pub(super) fn update_unit(&mut self, unit: &Rc<Unit>) {
        let index = self.states.iter().position(|state| Rc::ptr_eq(state.unit(), unit));
        if let Some(index) = index {
            self.blend(index, 1.0 - self.decay);
        }
    }

    /// Runs `body` with the average in the place of the parameters, which come back after it. Every rank calls it; the
    /// values that the ranks gather of each other are those of the average, at every ZeRO level.
    ///
    /// Meanwhile, nothing may be trained or saved.
    pub fn with_average<T>(&mut self, body: impl FnOnce() -> T) -> T {
        let versions: Vec<u64> = self.states.iter().map(|state| state.unit().version()).collect();
        self.swap();
        let result = body();
        self.swap();
        // To the bit: a loss from before can still be differentiated.
        for (state, version) in self.states.iter().zip(versions) {
            state.unit().set_version(version);
        }
        result
    }

    /// The average, unit by unit: `ema`.
    pub fn states(&self) -> &[UnitState] {
        &self.states
    }

    /// The average, unit by unit, to be changed.
    pub fn states_mut(&mut self) -> &mut [UnitState] {
        &mut self.states
    }

    fn blend(&mut self, index: usize, weight: f64) {
        let state = &mut self.states[index];
        let unit = Rc::clone(state.unit());
        for run in state.runs().iter() {
            let [average] = state.views(KINDS, &run.in_shard);
            let values = unit.master();
            let values = values.part(run.in_shard.clone());
            let values = values.view();
            if weight == 1.0 {
                self.rank.backend().cast(values, average);
            } else {
                self.rank.backend().lerp(average, values, weight as f32);
            }
        }
    }

    /// Exchanges parameters and average.
    fn swap(&mut self) {
        let rank = &self.rank;
        let backend = rank.backend();
        for state in &mut self.states {
            let unit = Rc::clone(state.unit());
            for run in state.runs().iter() {
                let [mut average] = state.views(KINDS, &run.in_shard);
                let mut kept = rank.scratch(DType::F32, average.len());
                unit.change_values(run.range.clone(), |mut values, copy| {
                    backend.cast(values.as_view(), kept.view_mut());
                    backend.cast(average.as_view(), values.reborrow());
                    if let Some(copy) = copy {
                        backend.cast(average.as_view(), copy);
                    }
                    backend.cast(kept.view(), average.reborrow());
                });
            }
            unit.publish();
        }
    }
}
