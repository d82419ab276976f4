//! Optimisers over the units' flat buffers, their state sharded as the units are.

/// What all optimisers have alike; each has an `of_groups` and an `update` of its own.
macro_rules! optimizer {
    ($name:ident, $options:ident, $begins:literal, $states:literal) => {
        impl $name {
            #[doc = concat!("An optimiser of the parameters of `units` in the default [groups](ParamGroups), with ", $begins, " of zero.")]
            /// Every rank calls it.
            pub fn new(rank: &Rank, units: &[Rc<Unit>], options: $options) -> $name {
                $name::of_groups(rank, units, options, &ParamGroups::default())
            }

            /// [`new`](Self::new), in other groups.
            ///
            /// # Errors
            /// A rule of the groups that applies to nothing.
            pub fn with_groups(
                rank: &Rank,
                units: &[Rc<Unit>],
                options: $options,
                groups: &ParamGroups,
            ) -> Result<$name, $crate::optim::GroupsError> {
                $crate::optim::checked(groups, units)?;
                Ok($name::of_groups(rank, units, options, groups))
            }

            /// Applies `gradients` with learning rate `lr`.
            ///
            /// # Panics
            /// When another backward has overwritten the gradients, or they lack those of a unit that is updated here.
            #[track_caller]
            pub fn step(&mut self, lr: f64, gradients: impl Applicable) {
                let gradients = gradients.gradients();
                gradients.check_covers(self.states.iter().map(UnitState::unit));
                self.update(lr, gradients, |unit| unit.publish());
            }

            /// Number of steps applied so far.
            pub fn steps(&self) -> u64 {
                self.step
            }

            /// Says how many steps were applied, when the state comes from a checkpoint.
            pub fn set_steps(&mut self, steps: u64) {
                self.step = steps;
            }

            #[doc = concat!($states, ", unit by unit.")]
            pub fn states(&self) -> &[UnitState] {
                &self.states
            }

            #[doc = concat!($states, ", unit by unit, to be changed.")]
            pub fn states_mut(&mut self) -> &mut [UnitState] {
                &mut self.states
            }
        }
    };
}

mod adamw;
mod ema;
mod groups;
mod muon;
mod sgd;
mod state;

use std::rc::Rc;

use crate::tensor::{Applicable, Rank, Unit};

pub use adamw::{AdamW, AdamWOptions};
pub use ema::Ema;
pub use groups::{Group, GroupsError, ParamGroups, Select};
pub use muon::{Muon, MuonOptions, orthogonalise};
pub use sgd::{Sgd, SgdOptions};
pub use state::UnitState;

/// Any of the optimisers.
pub enum Optimizer {
    /// See [`AdamW`].
    AdamW(AdamW),
    /// See [`Sgd`].
    Sgd(Sgd),
    /// See [`Muon`].
    Muon(Muon),
}

/// Which optimiser, and its constants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum OptimizerOptions {
    /// See [`AdamW`].
    AdamW(AdamWOptions),
    /// See [`Sgd`].
    Sgd(SgdOptions),
    /// See [`Muon`].
    Muon(MuonOptions),
}

impl OptimizerOptions {
    /// The kinds of state that a parameter of `group` has, by which checkpoints know them.
    pub fn kinds(&self, group: Group) -> &'static [&'static str] {
        match self {
            OptimizerOptions::AdamW(_) => &adamw::KINDS,
            OptimizerOptions::Sgd(options) => options.kinds(),
            OptimizerOptions::Muon(_) => muon::kinds(group),
        }
    }
}

/// Calls the same of any optimiser.
macro_rules! each {
    ($optimizer:expr, $name:ident => $call:expr) => {
        match $optimizer {
            Optimizer::AdamW($name) => $call,
            Optimizer::Sgd($name) => $call,
            Optimizer::Muon($name) => $call,
        }
    };
}

impl Optimizer {
    /// An optimiser of the parameters of `units`, its state zeros. Every rank calls it.
    ///
    /// # Errors
    /// A rule of the groups that applies to nothing.
    pub fn new(
        rank: &Rank,
        units: &[Rc<Unit>],
        options: OptimizerOptions,
        groups: &ParamGroups,
    ) -> Result<Optimizer, GroupsError> {
        Ok(match options {
            OptimizerOptions::AdamW(options) => {
                Optimizer::AdamW(AdamW::with_groups(rank, units, options, groups)?)
            }
            OptimizerOptions::Sgd(options) => {
                Optimizer::Sgd(Sgd::with_groups(rank, units, options, groups)?)
            }
            OptimizerOptions::Muon(options) => {
                Optimizer::Muon(Muon::with_groups(rank, units, options, groups)?)
            }
        })
    }

    /// Applies `gradients` with learning rate `lr`.
    ///
    /// # Panics
    /// When another backward has overwritten the gradients, or they lack those of a unit that is updated here.
    #[track_caller]
    pub fn step(&mut self, lr: f64, gradients: impl Applicable) {
        each!(self, optimizer => optimizer.step(lr, gradients));
    }

    /// [`step`](Self::step), after which `average` takes in the new parameters: each unit's before they are gathered,
    /// so that nothing waits for that.
    ///
    /// # Panics
    /// As [`step`](Self::step).
    #[track_caller]
    pub fn step_and_average(&mut self, lr: f64, gradients: impl Applicable, average: &mut Ema) {
        let gradients = gradients.gradients();
        gradients.check_covers(self.states().iter().map(UnitState::unit));
        let mut updated = |unit: &Rc<Unit>| {
            average.update_unit(unit);
            unit.publish();
        };
        each!(self, optimizer => optimizer.update(lr, gradients, &mut updated));
    }

    /// Number of steps applied so far.
    pub fn steps(&self) -> u64 {
        each!(self, optimizer => optimizer.steps())
    }

    /// Says how many steps were applied, when the state comes from a checkpoint.
    pub fn set_steps(&mut self, steps: u64) {
        each!(self, optimizer => optimizer.set_steps(steps));
    }

    /// What is kept from step to step, unit by unit.
    pub fn states(&self) -> &[UnitState] {
        each!(self, optimizer => optimizer.states())
    }

    /// What is kept from step to step, unit by unit, to be changed.
    pub fn states_mut(&mut self) -> &mut [UnitState] {
        each!(self, optimizer => optimizer.states_mut())
    }
}

fn checked(groups: &ParamGroups, units: &[Rc<Unit>]) -> Result<(), GroupsError> {
    let params: Vec<_> = units.iter().flat_map(|unit| unit.params()).collect();
    groups.check(&params)
}
