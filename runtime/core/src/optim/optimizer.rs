//! Optimizers of the units of a model: an update rule with its state.

use std::rc::Rc;
use std::sync::Arc;

use crate::layout::AxisId;
use crate::tensor::{
    Applicable, Checks, Gradients, Rank, Summed, Unit, forget_expert_loads, update_choice_biases,
};

use meshwright_backend::DType;

use super::rule::{ModelUpdate, check_rule, rule_error};
use super::shard_check::check_shards;
use super::unit_state::{GroupRange, check_units_differ, check_units_selected};
use super::{
    Ema, FlatSlices, Group, OptimizerError, OptimizerStep, ParamGroups, UnitState, UpdateRule,
    Updated,
};

/// An optimizer of the parameters of some units, by an [`UpdateRule`]; the state is sharded as the units are.
///
/// The library has [`AdamW`](super::AdamW), [`Sgd`](super::Sgd) and [`Muon`](super::Muon). Without a type parameter,
/// the rule is chosen at run time.
pub struct Optimizer<R = Arc<dyn UpdateRule>> {
    rule: R,
    model_update: Option<Box<dyn ModelUpdate>>,
    states: Vec<UnitState>,
    steps: u64,
    /// The groups of the parameters that the rule updates, until their updates are checked in the first step.
    unchecked: Vec<Group>,
    /// The rule with its options, which ranks compare in every step.
    compared: Rc<str>,
}

impl<R: UpdateRule> Optimizer<R> {
    /// Creates an optimizer of the trained parameters of `units` in the default [groups](ParamGroups); its state is
    /// zeros. Every rank calls it.
    ///
    /// # Panics
    /// If all parameters are frozen, the rule has hyperparameters out of range or kinds of state that cannot be told
    /// apart, or if a unit is given twice, or without others of its model although it was not
    /// [selected](crate::nn::Built::units_of); [`with_groups`](Self::with_groups) returns these as errors.
    #[track_caller]
    pub fn new(rank: &Rank, units: &[Rc<Unit>], rule: R) -> Optimizer<R> {
        match Optimizer::with_groups(rank, units, rule, &ParamGroups::default()) {
            Ok(optimizer) => optimizer,
            Err(error) => panic!("{error}"),
        }
    }

    /// Returns the elements of the state of a world rank. Its parts of the parameters are taken to be as large as here,
    /// but its shards hold other parameters, and a rule may keep more numbers of some parameters than of others.
    #[doc(hidden)]
    pub fn state_elements_on(&self, world_rank: usize) -> usize {
        self.states.iter().map(|state| state.len_on(world_rank)).sum()
    }

    /// Returns what [`ModelUpdate::work_on`] does.
    #[doc(hidden)]
    pub fn work_on(&self, world_rank: usize) -> [usize; 2] {
        self.model_update.as_ref().map_or([0; 2], |update| update.work_on(world_rank))
    }

    /// Creates an optimizer of the trained parameters of `units` in `groups`; its state is zeros. Every rank calls it.
    ///
    /// # Errors
    /// If all parameters are frozen, a rule of the groups selects no parameter, hyperparameters are out of range, kinds
    /// of state cannot be told apart, or if a unit is given twice, or without others of its model although it was not
    /// [selected](crate::nn::Built::units_of).
    pub fn with_groups(
        rank: &Rank,
        units: &[Rc<Unit>],
        rule: R,
        groups: &ParamGroups,
    ) -> Result<Optimizer<R>, OptimizerError> {
        check_rule(&rule)?;
        let check = check_units_differ(units).and_then(|()| check_units_selected(units));
        check.map_err(|message| rule_error(&rule, message))?;
        let trained: Vec<Rc<Unit>> =
            units.iter().filter(|unit| !unit.is_frozen()).cloned().collect();
        // A rule may select parameters of other pipeline stages only.
        let mut params: Vec<_> = trained.iter().flat_map(|unit| unit.params()).collect();
        params.extend(rank.params_of_other_stages().into_iter().filter(|param| !param.is_frozen()));
        if params.is_empty() && !units.is_empty() {
            return Err(rule_error(&rule, NOTHING_TRAINED.to_owned()));
        }
        let units = trained.as_slice();
        groups.check(&params)?;
        let mut unchecked = Vec::new();
        for group in units.iter().flat_map(|unit| unit.params()).map(|param| groups.of(&param)) {
            if !unchecked.contains(&group) {
                unchecked.push(group);
            }
        }
        let (dtype, kinds) = (rank.state_dtype(), |group| rule.state_kinds(group));
        let state = |unit| UnitState::new(rank, unit, groups, dtype, kinds);
        let states = units.iter().map(state).collect();
        let model_update = rule.model_update(rank, units, groups);
        let compared = describe_compared(rank, units, &rule, groups).into();
        let takes = |group| model_update.as_ref().is_some_and(|update| update.takes(group));
        unchecked.retain(|group| !takes(*group));
        Ok(Optimizer { rule, model_update, states, steps: 0, unchecked, compared })
    }

    /// Applies `gradients` with learning rate `lr`.
    ///
    /// # Panics
    /// If another backward has overwritten the gradients, or the gradients of a unit that is updated here are missing;
    /// in the first step, if the rule updates an element of a parameter otherwise in another shard.
    #[track_caller]
    pub fn step(&mut self, lr: f64, gradients: impl Applicable) {
        let gradients = gradients.gradients();
        gradients.check_covers(self.states.iter().map(UnitState::unit));
        self.check_rule(gradients.rank());
        self.update_units(lr, gradients, |unit| unit.publish_values());
    }

    /// Applies `gradients` as [`step`](Self::step) does and updates `average`: each unit's before its new parameters
    /// are gathered, so that the average does not wait for the gather.
    ///
    /// # Panics
    /// As [`step`](Self::step).
    #[track_caller]
    pub fn step_and_average(&mut self, lr: f64, gradients: impl Applicable, average: &mut Ema) {
        let gradients = gradients.gradients();
        gradients.check_covers(self.states.iter().map(UnitState::unit));
        self.check_rule(gradients.rank());
        average.note_update();
        self.update_units(lr, gradients, |unit| {
            average.update_unit(unit);
            unit.publish_values();
        });
    }

    /// Leaves out the update of a step: parameters, state and [`steps`](Self::steps) stay as they are, as do the biases
    /// of the choice of experts, for which the choices of the step do not count. Every rank calls it alike.
    pub fn skip(&mut self, gradients: impl Applicable) {
        if let Some(state) = self.states.first() {
            forget_expert_loads(gradients.gradients().rank(), state.unit());
        }
    }

    /// Checks in the first step that the rule updates an element of a parameter alike in every shard.
    #[track_caller]
    fn check_rule(&mut self, rank: &Rank) {
        let groups = std::mem::take(&mut self.unchecked);
        if rank.checks() == Checks::Off {
            return;
        }
        if let Err(message) = check_shards(rank, &self.rule, &groups) {
            panic!("{}", rule_error(&self.rule, message));
        }
    }

    /// Updates all units, and calls `updated` after each.
    fn update_units<State: Summed>(
        &mut self,
        lr: f64,
        gradients: &Gradients<State>,
        mut updated: impl FnMut(&Rc<Unit>),
    ) {
        if let Some(state) = self.states.first() {
            state.unit().rank().compute_pending_reads();
        }
        self.steps += 1;
        let step = OptimizerStep::new(gradients, lr, self.steps);
        step.rank().note_update(&self.compared, lr, step.grad_scale(), self.steps);
        if let Some(model_update) = &mut self.model_update {
            model_update.update(&step, &mut self.states);
        }
        let model_update = self.model_update.as_ref();
        let is_left =
            |range: &GroupRange| !model_update.is_some_and(|update| update.takes(range.group));
        for state in &mut self.states {
            let ranges = state.group_ranges();
            for run in ranges.chunk_by(|one, next| is_left(one) == is_left(next)) {
                if is_left(&run[0]) {
                    let Updated { .. } = self.rule.update_all(FlatSlices::new(&step, state, run));
                }
            }
            updated(state.unit());
        }
        if let Some(state) = self.states.first() {
            update_choice_biases(step.rank(), state.unit());
        }
    }

    /// Returns the rule, with its hyperparameters.
    pub fn rule(&self) -> &R {
        &self.rule
    }

    /// Returns the number of steps applied so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Sets the number of steps applied so far, after state was loaded from a checkpoint.
    pub fn set_steps(&mut self, steps: u64) {
        self.steps = steps;
    }

    /// Returns the state of each unit.
    pub fn states(&self) -> &[UnitState] {
        &self.states
    }

    /// Returns mutable access to the state of each unit.
    pub fn states_mut(&mut self) -> &mut [UnitState] {
        &mut self.states
    }
}

/// The message of an optimizer without parameters.
const NOTHING_TRAINED: &str =
    "nothing is trained: all parameters are frozen; remove `#[frozen]` from a field";

/// Describes a rule with its options, with the dtype of state and with parameter groups other than the default ones,
/// and with the units if they are not all of the rank, as far as ranks compare them.
fn describe_compared(
    rank: &Rank,
    units: &[Rc<Unit>],
    rule: &dyn UpdateRule,
    groups: &ParamGroups,
) -> String {
    let mut text = rule.name().to_owned();
    if let Some(options) = rule.options() {
        text += &format!(" with {options}");
    }
    if rank.state_dtype() != DType::F32 {
        text += &format!(" with state in {}", rank.state_dtype());
    }
    if *groups != ParamGroups::default() {
        text += &format!(" in {groups:?}");
    }
    // Ranks of other pipeline stages hold other units.
    let all = rank.units().iter().filter(|unit| !unit.is_frozen()).count();
    if rank.degree(AxisId::Pp) == 1 && units.len() != all {
        let names: Vec<&str> = units.iter().map(|unit| unit.name()).collect();
        text += &format!(" of {}", names.join(", "));
    }
    text
}
