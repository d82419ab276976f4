//! The optimizer of a run, and the replicas that train apart with `--local-steps`: between two synchronizations they
//! differ, and only a state that is the same in all of them is saved, exported, evaluated and compared.

use std::rc::Rc;

use crate::optim::{
    Optimizer, OptimizerError, OptimizerState, OuterSgd, ParamGroups, UnitState, UpdateRule,
};
use crate::tensor::{Rank, Unit};
use meshwright_core::__internal as scope;

use super::config::{Config, LocalSgdConfig};
use super::{Error, Result};

/// The optimizer of a run. Its own state is that of this replica, and its outer state that of all.
pub struct RunOptimizer {
    pub inner: Optimizer,
    /// `--local-steps`.
    local: Option<LocalReplicas>,
}

/// The synchronization of replicas that train apart.
struct LocalReplicas {
    config: LocalSgdConfig,
    outer: OuterSgd,
}

/// A number of steps after which all replicas have one model: any, unless they train apart. What needs it takes this,
/// which only [`RunOptimizer::synchronized_after`] makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Synchronized {
    steps: u64,
}

impl Synchronized {
    /// Returns the number of steps.
    pub fn steps(self) -> u64 {
        self.steps
    }
}

impl RunOptimizer {
    /// Creates the optimizer of a run that begins with the present parameters. Every rank calls it.
    ///
    /// # Errors
    /// As [`Optimizer::with_groups`].
    pub fn new(
        rank: &Rank,
        units: &[Rc<Unit>],
        config: &Config,
    ) -> std::result::Result<RunOptimizer, OptimizerError> {
        let (rule, groups) = (config.optimizer.rule(), ParamGroups::default());
        let inner = Optimizer::with_groups(rank, units, rule, &groups)?;
        let local = config.local_sgd.map(|config| {
            let outer = OuterSgd::new(rank, units, config.outer_options());
            LocalReplicas { config, outer }
        });
        Ok(RunOptimizer { inner, local })
    }

    /// Begins from the present parameters, and from parameters of this replica alone if it has loaded some.
    pub fn begin(&mut self, has_own_params: bool) {
        match &mut self.local {
            Some(local) if has_own_params => local.outer.keep_own_params(),
            Some(local) => local.outer.keep_params(),
            None => {}
        }
    }

    /// Synchronizes the fragment that is due after `steps` steps of the run, if the replicas train apart, and starts
    /// the one that is due after the delay. Every rank calls it after each step.
    pub fn synchronize_after(&mut self, steps: u64) {
        let Some(LocalReplicas { config, outer }) = &mut self.local else { return };
        let _pass = scope::begin_pass(scope::Pass::Update);
        match config.fragment_after(steps) {
            Some(_) if config.delay > 0 => outer.finish(),
            Some(fragment) => outer.synchronize(fragment),
            None => {}
        }
        if config.delay > 0
            && let Some(next) = config.fragment_after(steps + config.delay)
        {
            outer.start(next);
        }
    }

    /// Starts the largest synchronization that is finished while the run trains on, if there is any, in a dry run.
    pub fn start_largest(&mut self) {
        if let Some(LocalReplicas { config, outer }) = &mut self.local
            && config.delay > 0
        {
            outer.start(outer.largest_fragment());
        }
    }

    /// Finishes the synchronization that [has started](Self::start_largest).
    pub fn finish_largest(&mut self) {
        if let Some(LocalReplicas { config, outer }) = &mut self.local
            && config.delay > 0
        {
            outer.finish();
        }
    }

    /// Carries out the synchronizations of a round, one of each fragment, in a dry run.
    pub fn synchronize_all(&mut self) {
        if let Some(LocalReplicas { config, outer }) = &mut self.local {
            let _pass = scope::begin_pass(scope::Pass::Update);
            for fragment in 0..config.fragments as usize {
                if config.delay == 0 {
                    outer.synchronize(fragment);
                } else {
                    outer.start(fragment);
                    outer.finish();
                }
            }
        }
    }

    /// Replaces the parameters by those that all replicas have, until [`show_own_params`](Self::show_own_params).
    pub fn show_shared_params(&mut self, _: Synchronized) {
        if let Some(local) = &mut self.local {
            local.outer.show_shared_params();
        }
    }

    /// Brings the parameters of this replica back.
    pub fn show_own_params(&mut self) {
        if let Some(local) = &mut self.local {
            local.outer.show_own_params();
        }
    }

    /// Returns the witness that all replicas have one model after `steps` steps of the run.
    ///
    /// # Errors
    /// A step between two synchronizations.
    pub fn synchronized_after(&self, steps: u64) -> Result<Synchronized> {
        match &self.local {
            Some(LocalReplicas { config, .. }) if !config.synchronizes_after(steps) => {
                Err(Error::Input(format!(
                    "--local-steps {}: the replicas differ after step {steps}, as their last round has ended with step \
                     {}",
                    config.steps,
                    steps - steps % config.steps
                )))
            }
            _ => Ok(Synchronized { steps }),
        }
    }
}

/// The state in checkpoints.
impl OptimizerState for RunOptimizer {
    fn rule(&self) -> &dyn UpdateRule {
        self.inner.rule()
    }

    fn steps(&self) -> u64 {
        self.inner.steps()
    }

    fn set_steps(&mut self, steps: u64) {
        self.inner.set_steps(steps);
    }

    fn states(&self) -> &[UnitState] {
        self.inner.states()
    }

    fn states_mut(&mut self) -> &mut [UnitState] {
        self.inner.states_mut()
    }

    fn outer_states(&self) -> &[UnitState] {
        self.local.as_ref().map_or(&[], |local| local.outer.states())
    }

    fn outer_states_mut(&mut self) -> &mut [UnitState] {
        self.local.as_mut().map_or(&mut [], |local| local.outer.states_mut())
    }

    fn replica_states(&self) -> &[UnitState] {
        self.local.as_ref().map_or(&[], |local| local.outer.own_params())
    }

    fn replica_states_mut(&mut self) -> &mut [UnitState] {
        self.local.as_mut().map_or(&mut [], |local| local.outer.own_params_mut())
    }
}
