//! Exponential moving average (EMA) of the parameters.

use std::rc::Rc;

use crate::tensor::{Rank, Unit};
use meshwright_backend::DType;

use super::ranges::check_fraction;
use super::swapped_values::SwappedValues;
use super::unit_state::check_units_differ;
use super::{ParamGroups, UnitState};

const KINDS: [&str; 1] = [Ema::KIND];

/// An average of the parameters over the steps, `average += (1 - decay) * (parameter - average)`, which starts as a
/// copy of the parameters; in f32, and sharded as the optimizer state is.
///
/// [`Optimizer::step_and_average`](super::Optimizer::step_and_average) updates it.
pub struct Ema {
    rank: Rank,
    decay: f64,
    states: Vec<UnitState>,
}

impl Ema {
    /// The kind of state of each parameter, which names it in checkpoints.
    pub const KIND: &'static str = "ema";

    /// Creates the average of the trained parameters of `units`, which starts as a copy of them. `decay` is in `[0,
    /// 1)`. Every rank creates it and updates it alike: each holds a copy of the average, or a part of it.
    ///
    /// # Panics
    /// If `decay` is out of range, or a unit is given twice.
    #[track_caller]
    pub fn new(rank: &Rank, units: &[Rc<Unit>], decay: f64) -> Ema {
        let is_in_range = check_fraction("the decay of an average", decay);
        if let Err(message) = is_in_range.and_then(|()| check_units_differ(units)) {
            panic!("{message}");
        }
        let groups = ParamGroups::default();
        let state = |unit| UnitState::new(rank, unit, &groups, DType::F32, |_| &KINDS);
        let trained = units.iter().filter(|unit| !unit.is_frozen());
        let mut ema = Ema { rank: rank.clone(), decay, states: trained.map(state).collect() };
        ema.copy_params();
        ema
    }

    /// Resets the average to the current parameters.
    pub fn restart(&mut self) {
        self.rank.note_average(0.0);
        self.copy_params();
    }

    fn copy_params(&mut self) {
        for index in 0..self.states.len() {
            self.blend_unit(index, 1.0);
        }
    }

    /// Updates the average by the current parameters, as after every step.
    pub fn update(&mut self) {
        self.note_update();
        for index in 0..self.states.len() {
            self.blend_unit(index, 1.0 - self.decay);
        }
    }

    /// Notes an update of all units, which ranks compare.
    pub(super) fn note_update(&self) {
        self.rank.note_average(self.decay);
    }

    /// Updates the average of one unit; the update was [noted](Self::note_update).
    pub(super) fn update_unit(&mut self, unit: &Rc<Unit>) {
        let index = self.states.iter().position(|state| Rc::ptr_eq(state.unit(), unit));
        if let Some(index) = index {
            self.blend_unit(index, 1.0 - self.decay);
        }
    }

    /// Runs `body` with the average in place of the parameters, which are restored after it. Every rank calls it;
    /// gathered values are values of the average, at every ZeRO stage.
    ///
    /// `body` must neither train nor save.
    ///
    /// # Panics
    /// If ranks have applied different updates.
    #[track_caller]
    pub fn with_average<T>(&mut self, body: impl FnOnce() -> T) -> T {
        let Ema { rank, states, .. } = self;
        let swapped = SwappedValues::swap(rank, states, Ema::KIND);
        let result = body();
        swapped.swap_back(&self.rank, &mut self.states, Ema::KIND);
        result
    }

    /// Returns the average of each unit: `ema`.
    pub fn states(&self) -> &[UnitState] {
        &self.states
    }

    /// Returns mutable access to the average of each unit.
    pub fn states_mut(&mut self) -> &mut [UnitState] {
        &mut self.states
    }

    /// Moves the average of a unit toward the parameters by `weight` of the distance.
    fn blend_unit(&mut self, index: usize, weight: f64) {
        let state = &mut self.states[index];
        let unit = Rc::clone(state.unit());
        for range in state.group_ranges().iter() {
            let [average] = state.state_views(KINDS, &range.in_shard);
            let values = unit.master();
            let values = values.part(range.in_shard.clone());
            let values = values.view();
            if weight == 1.0 {
                self.rank.backend().cast(values, average);
            } else {
                self.rank.backend().lerp(average, values, weight as f32);
            }
        }
    }
}
