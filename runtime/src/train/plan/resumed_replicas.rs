//! Replicas that train apart, of a checkpoint to resume from: each of them has optimizer state of its own in it.

use std::collections::BTreeSet;

use crate::checkpoint::Checkpoint;
use crate::layout::AxisId;
use crate::optim::OuterSgd;
use crate::train::config::Config;
use crate::train::console::counted;
use crate::train::{Error, Result};
use meshwright_store::__internal::{kind_of_replica, replicas_in, state_kinds_in, without_replica};

/// The state of replicas in a checkpoint.
pub struct SavedReplicas {
    /// Replicas with optimizer state of their own; 0 if all share it, or have none.
    replicas: usize,
    has_momentum: bool,
    /// Set if each replica has parameters of its own.
    has_own_params: bool,
}

impl SavedReplicas {
    /// Checks that a run can go on from the replicas of a checkpoint.
    ///
    /// # Errors
    /// Another number of replicas, none that train apart, no outer momentum instead of a saved one, and a step between
    /// two synchronizations of the run.
    pub fn check(checkpoint: &Checkpoint, config: &Config) -> Result<SavedReplicas> {
        let replicas = replicas_in(checkpoint);
        let kinds = state_kinds_in(checkpoint);
        let has_momentum = kinds.contains(OuterSgd::KIND);
        let has_own_params = kinds.iter().any(|kind| without_replica(kind) == OuterSgd::OWN_PARAMS);
        let saved = SavedReplicas { replicas, has_momentum, has_own_params };
        let (folder, dp) = (checkpoint.folder().display(), config.mesh.degree(AxisId::Dp));
        let refuse = |message: String| Err(Error::Input(message));
        let Some(local) = &config.local_sgd else {
            if replicas == 0 && !has_momentum {
                return Ok(saved);
            }
            return refuse(format!(
                "--resume: {folder} was saved with --local-steps, and holds the state of replicas that train apart; \
                 continue it with --local-steps H, or begin from its exported model by --init-from"
            ));
        };
        if replicas > 0 && replicas != dp {
            return refuse(format!(
                "--mesh: {} has {} along dp, and {folder} holds the optimizer state of {replicas}; use dp={replicas}",
                config.mesh,
                counted(dp, "replica"),
            ));
        }
        let step = checkpoint.manifest().state.step;
        if !local.synchronizes_after(step) {
            return refuse(format!(
                "--local-steps: {folder} has {} done, which is no multiple of {}: replicas are synchronized after \
                 multiples of --local-steps, and a shorter round would differ from the others; use a divisor of \
                 {step}, or another checkpoint",
                counted(step as usize, "step"),
                local.steps,
            ));
        }
        if has_momentum && local.outer_momentum == 0.0 {
            return refuse(format!(
                "--outer-momentum: {folder} holds an outer momentum, which 0 would drop; use a value above 0, as it \
                 was saved with"
            ));
        }
        if has_own_params && local.fragments == 1 && local.alpha() == 0.0 {
            return refuse(format!(
                "--fragments: {folder} holds parameters of each replica, as it was saved with --fragments P or \
                 --fragment-alpha; continue it with one of them, or begin from its exported model by --init-from"
            ));
        }
        Ok(saved)
    }

    /// Returns the kinds of state of the optimizer among `kinds`, as its rule names them.
    pub fn kinds_of_rule<'a>(&self, kinds: &BTreeSet<&'a str>) -> BTreeSet<&'a str> {
        let outer = [OuterSgd::KIND, OuterSgd::OWN_PARAMS];
        let kinds = kinds.iter().map(|kind| without_replica(kind));
        kinds.filter(|kind| !outer.contains(kind)).collect()
    }

    /// Returns the kinds of tensors that the checkpoint has to hold of a parameter with the state `kinds`.
    pub fn kinds_to_hold(&self, kinds: &[&'static str]) -> Vec<String> {
        let of_replicas = |kind: &&'static str| -> Vec<String> {
            match self.replicas {
                0 => vec![(*kind).to_owned()],
                replicas => (0..replicas).map(|one| kind_of_replica(kind, Some(one))).collect(),
            }
        };
        let outer = self.has_momentum.then(|| OuterSgd::KIND.to_owned());
        let own_params = self.has_own_params.then_some(&OuterSgd::OWN_PARAMS);
        kinds.iter().chain(own_params).flat_map(of_replicas).chain(outer).collect()
    }
}
