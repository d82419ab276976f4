//! The trait of optimizers: the state of an update per parameter, and its changes to parameters.

use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use crate::tensor::{Rank, Unit};

use super::outer_sgd::OuterSgd;
use super::{
    Ema, FlatSlice, FlatSlices, Group, GroupsError, OptimizerStep, ParamGroups, UnitState, Updated,
};

/// Kinds of tensors in a checkpoint that are not optimizer state.
const RESERVED_KINDS: [&str; 3] = ["params", Ema::KIND, OuterSgd::KIND];

/// An optimizer: its hyperparameters, the state that it keeps per parameter, and its update.
///
/// The library shards the state, counts it in the memory plan, saves it in checkpoints and restores it, on every mesh,
/// FSDP stage, dtype and device. A rule states the kinds of state and one update, most easily as an
/// [elementwise expression](FlatSlice::update_elementwise):
///
/// ```
/// use meshwright::optim::{FlatSlice, Group, UpdateRule, Updated};
///
/// #[derive(Debug, Clone)]
/// struct HeavyBall {
///     momentum: f64,
/// }
///
/// impl UpdateRule for HeavyBall {
///     fn name(&self) -> &str {
///         "heavy-ball"
///     }
///
///     fn state_kinds(&self, _: Group) -> &'static [&'static str] {
///         &["velocity"]
///     }
///
///     fn update(&self, slice: FlatSlice<'_>) -> Updated {
///         let lr = slice.lr();
///         slice.update_elementwise(["velocity"], |param, gradient, [velocity]| {
///             let velocity = self.momentum * velocity - lr * gradient;
///             (param + velocity, [velocity])
///         })
///     }
/// }
/// ```
pub trait UpdateRule: fmt::Debug + Send + Sync {
    /// Returns the name for `--optimizer` and messages.
    fn name(&self) -> &str;

    /// Returns the kinds of state of each parameter in `group`: tensors of the parameter's shape, initially zeros. They
    /// are stored in [`Settings::state`](crate::tensor::Settings::state), and an update computes on them in f32.
    ///
    /// Checkpoints name the state `kind.path`. Kinds are lower-case letters, digits and underscores.
    fn state_kinds(&self, group: Group) -> &'static [&'static str];

    /// Updates consecutive parameters of one group.
    fn update(&self, slice: FlatSlice<'_>) -> Updated;

    /// Updates consecutive slices of a unit: one after another by [`update`](Self::update), unless a rule has a kernel
    /// for several groups.
    fn update_all(&self, slices: FlatSlices<'_>) -> Updated {
        slices.each(|slice| self.update(slice))
    }

    /// Checks the hyperparameters.
    ///
    /// # Errors
    /// A message that names the hyperparameter, its value and its range.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Returns the options as text: ranks compare that of an optimizer when they compare its updates, and a difference
    /// is an error on all of them. A rule whose `Debug` form is the same on all ranks returns
    /// `Some(format!("{self:?}"))`. `None` if the options are not compared.
    fn options(&self) -> Option<String> {
        None
    }

    /// Returns the name with the settings that the state depends on, for messages: `sgd with momentum`.
    fn describe(&self) -> String {
        self.name().to_owned()
    }

    /// Returns the settings under which this optimizer keeps `saved` kinds of state, for the message that refuses a
    /// checkpoint: `with --momentum above 0`. `None` if no setting changes the state.
    fn settings_for_state(&self, saved: &BTreeSet<&str>) -> Option<&'static str> {
        let _ = saved;
        None
    }

    /// Returns the part of the update that needs more than one rank's slice of a parameter, if there is one. Every rank
    /// calls it.
    fn model_update(
        &self,
        rank: &Rank,
        units: &[Rc<Unit>],
        groups: &ParamGroups,
    ) -> Option<Box<dyn ModelUpdate>> {
        let _ = (rank, units, groups);
        None
    }
}

/// An update of complete parameters, with communication between ranks: each has the part that it
/// [owns](crate::tensor::ParamRef::owned), and a norm is summed over the [axes of the
/// owners](crate::tensor::ParamRef::owner_axes). It runs before [`UpdateRule::update`], which is skipped for the groups
/// that it takes.
pub trait ModelUpdate {
    /// Returns true if this update is that of the parameters in `group`.
    fn takes(&self, group: Group) -> bool;

    /// Updates all parameters in the groups that it takes. Every rank calls it.
    ///
    /// [`UnitState::param_slice`] returns this rank's part of a parameter; [`Rank::group`] communicates.
    fn update(&mut self, step: &OptimizerStep<'_>, states: &mut [UnitState]);

    /// Returns the FLOPs of a world rank at the same position along `pp` in an update, and the bytes that it sends, if
    /// they differ between ranks. A dry run takes its parts of the parameters to be as large as here.
    #[doc(hidden)]
    fn work_on(&self, _world_rank: usize) -> [usize; 2] {
        [0; 2]
    }
}

/// A reason why an optimizer cannot be created.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OptimizerError {
    /// Parameter groups that do not fit the model.
    #[error("{0}")]
    Groups(#[from] GroupsError),
    /// Hyperparameters out of range, kinds of state that cannot be told apart, or a unit that is given twice.
    #[error("optimizer {optimizer}: {message}")]
    Rule {
        /// Name of the optimizer.
        optimizer: String,
        /// Cause and fix.
        message: String,
    },
}

/// Checks the hyperparameters and the kinds of state of a rule.
///
/// # Errors
/// The first problem.
pub fn check_rule(rule: &dyn UpdateRule) -> Result<(), OptimizerError> {
    let check = || {
        rule.check()?;
        Group::ALL.into_iter().try_for_each(|group| check_kinds(rule.state_kinds(group)))
    };
    check().map_err(|message| rule_error(rule, message))
}

/// Returns the error of a rule.
pub(super) fn rule_error(rule: &dyn UpdateRule, message: String) -> OptimizerError {
    OptimizerError::Rule { optimizer: rule.name().to_owned(), message }
}

fn check_kinds(kinds: &[&str]) -> Result<(), String> {
    let is_plain =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    for (index, kind) in kinds.iter().enumerate() {
        if kind.is_empty() || !kind.chars().all(is_plain) {
            return Err(format!(
                "`{kind}` is not a kind of state: use lower-case letters, digits and underscores"
            ));
        }
        if RESERVED_KINDS.contains(kind) {
            return Err(format!(
                "the kind of state `{kind}` is reserved for other tensors of a checkpoint; use another name"
            ));
        }
        if kinds[..index].contains(kind) {
            return Err(format!(
                "two states are named `{kind}`; each kind needs a name of its own"
            ));
        }
    }
    Ok(())
}

/// A rule that is chosen at run time, and shared by the ranks of a process.
impl<R: UpdateRule + ?Sized> UpdateRule for Arc<R> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn state_kinds(&self, group: Group) -> &'static [&'static str] {
        (**self).state_kinds(group)
    }

    fn update(&self, slice: FlatSlice<'_>) -> Updated {
        (**self).update(slice)
    }

    fn update_all(&self, slices: FlatSlices<'_>) -> Updated {
        (**self).update_all(slices)
    }

    fn check(&self) -> Result<(), String> {
        (**self).check()
    }

    fn options(&self) -> Option<String> {
        (**self).options()
    }

    fn describe(&self) -> String {
        (**self).describe()
    }

    fn settings_for_state(&self, saved: &BTreeSet<&str>) -> Option<&'static str> {
        (**self).settings_for_state(saved)
    }

    fn model_update(
        &self,
        rank: &Rank,
        units: &[Rc<Unit>],
        groups: &ParamGroups,
    ) -> Option<Box<dyn ModelUpdate>> {
        (**self).model_update(rank, units, groups)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_plain_unreserved_and_unique() {
        assert_eq!(check_kinds(&["m", "adam_v2"]), Ok(()));
        for (kinds, part) in [
            (&["m", "v", "m"][..], "two states are named `m`"),
            (&["params"], "`params` is reserved"),
            (&["ema"], "`ema` is reserved"),
            (&["a.b"], "`a.b` is not a kind of state"),
            (&[""], "`` is not a kind of state"),
        ] {
            let message = check_kinds(kinds).unwrap_err();
            assert!(message.contains(part), "{message}");
        }
    }
}
