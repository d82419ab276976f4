//! Optimizers of any rule, as checkpoints see them.

use super::{Optimizer, UnitState, UpdateRule};

/// The state of an [`Optimizer`] of any rule, for checkpoints.
pub trait OptimizerState {
    /// Returns the rule, with its hyperparameters.
    fn rule(&self) -> &dyn UpdateRule;

    /// Returns the number of steps applied so far.
    fn steps(&self) -> u64;

    /// Sets the number of steps applied so far, after state was loaded from a checkpoint.
    fn set_steps(&mut self, steps: u64);

    /// Returns the state of each unit.
    fn states(&self) -> &[UnitState];

    /// Returns mutable access to the state of each unit.
    fn states_mut(&mut self) -> &mut [UnitState];

    /// Returns further state of each unit, which is the same in all replicas, also if these train apart: that of an
    /// outer optimizer.
    #[doc(hidden)]
    fn outer_states(&self) -> &[UnitState] {
        &[]
    }

    /// Returns mutable access to the state that [`outer_states`](Self::outer_states) returns.
    #[doc(hidden)]
    fn outer_states_mut(&mut self) -> &mut [UnitState] {
        &mut []
    }

    /// Returns further state of each unit that each replica keeps for itself: the parameters of replicas that train
    /// apart.
    #[doc(hidden)]
    fn replica_states(&self) -> &[UnitState] {
        &[]
    }

    /// Returns mutable access to the state that [`replica_states`](Self::replica_states) returns.
    #[doc(hidden)]
    fn replica_states_mut(&mut self) -> &mut [UnitState] {
        &mut []
    }
}

impl<R: UpdateRule> OptimizerState for Optimizer<R> {
    fn rule(&self) -> &dyn UpdateRule {
        Optimizer::<R>::rule(self)
    }

    fn steps(&self) -> u64 {
        Optimizer::steps(self)
    }

    fn set_steps(&mut self, steps: u64) {
        Optimizer::set_steps(self, steps);
    }

    fn states(&self) -> &[UnitState] {
        Optimizer::states(self)
    }

    fn states_mut(&mut self) -> &mut [UnitState] {
        Optimizer::states_mut(self)
    }
}
