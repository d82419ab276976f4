//! The rules about `--local-steps`, and what follows from it for a run.

use crate::layout::AxisId;
use crate::optim::check_fraction;
use crate::os::counted;

use super::local_sgd::{LocalSgdConfig, OUTER};
use super::other_mesh::with_ranks_along;
use super::problems::Problems;
use super::settings::{Config, RunSettings};

impl Config {
    /// Returns true if all replicas have the same parameters after `steps` steps of the run.
    pub(in crate::train) fn is_synchronized_after(&self, steps: u64) -> bool {
        self.local_sgd.is_none_or(|local| local.synchronizes_after(steps))
    }

    /// Returns the sequences of a step that are trained on together: those of all ranks, or with `--local-steps` those
    /// of one replica.
    pub(in crate::train) fn replica_batch(&self) -> usize {
        self.batch / self.local_sgd.map_or(1, |_| self.mesh.degree(AxisId::Dp))
    }
}

impl RunSettings {
    /// Returns the settings of replicas that train apart.
    pub(super) fn local_sgd_config(&self) -> Option<LocalSgdConfig> {
        Some(LocalSgdConfig {
            steps: self.local_steps?,
            outer_lr: self.outer_lr.unwrap_or(OUTER.lr),
            outer_momentum: self.outer_momentum.unwrap_or(OUTER.momentum),
            fragments: self.fragments.unwrap_or(OUTER.fragments as u64),
            delay: self.fragment_delay.unwrap_or(0),
            alpha: self.fragment_alpha,
        })
    }
}

/// Replicas that train apart need other replicas, an optimizer that brings them together, and synchronizations in which
/// the run saves and measures.
pub fn replicas_synchronize(settings: &RunSettings, problems: &mut Problems) {
    let Some(local) = settings.local_sgd_config() else {
        let names = ["outer-lr", "outer-momentum", "fragments", "fragment-delay", "fragment-alpha"];
        for name in names.into_iter().filter(|name| settings.is_given(name)) {
            problems.add(&[name, "local-steps"], "needs --local-steps H");
        }
        return;
    };
    outer_optimizer_is_valid(&local, problems);
    fragments_take_turns(&local, problems);
    if others_know_replicas(settings, problems) {
        replicas_are_there(settings, &local, problems);
        synchronizations_are_met(settings, &local, problems);
    }
}

fn outer_optimizer_is_valid(local: &LocalSgdConfig, problems: &mut Problems) {
    let lr = local.outer_lr as f32;
    if lr == 0.0 {
        let message = "0 discards what the replicas have learned at each synchronization; use a rate above 0, such as \
                       0.7";
        problems.add(&["outer-lr"], message);
    } else if lr.is_infinite() {
        problems.add(&["outer-lr"], format!("{} is beyond the numbers of f32", local.outer_lr));
    }
    if let Err(message) = check_fraction("the momentum", local.outer_momentum) {
        problems.add(&["outer-momentum"], message);
    }
}

/// Each fragment has a turn in a round, in which its synchronization ends before that of the next one starts.
fn fragments_take_turns(local: &LocalSgdConfig, problems: &mut Problems) {
    let LocalSgdConfig { steps, fragments, delay, .. } = *local;
    if !steps.is_multiple_of(fragments) {
        let fewer = (1..=fragments.min(steps)).rev().find(|count| steps.is_multiple_of(*count));
        let message = format!(
            "{fragments} does not divide --local-steps {steps}, and each fragment has a turn of as many steps; use {}, \
             or --local-steps {}",
            counted(fewer.unwrap_or(1) as usize, "fragment"),
            steps.next_multiple_of(fragments)
        );
        problems.add(&["fragments", "local-steps"], message);
    } else if delay >= local.turn_steps() {
        let turn = local.turn_steps();
        let message = format!(
            "{delay} is not less than the {turn} steps of --local-steps {steps} in which it is the turn of a fragment, \
             and one is synchronized at a time; {}",
            match turn {
                1 => "use 0, or a larger --local-steps".to_owned(),
                _ => format!("use at most {}", turn - 1),
            }
        );
        problems.add(&["fragment-delay", "local-steps"], message);
    }
    if let Err(message) = check_fraction("the share", local.alpha()) {
        problems.add(&["fragment-alpha"], message);
    }
}

fn replicas_are_there(settings: &RunSettings, local: &LocalSgdConfig, problems: &mut Problems) {
    let (mesh, steps) = (settings.shape(), local.steps);
    let is_chosen = |name: &str| {
        let given = settings.given.get(name);
        given.is_some_and(|given| given.text.to_string_lossy().starts_with("auto"))
    };
    if is_chosen("mesh") {
        let message = "auto chooses a mesh for gradients that are reduced in every step; with --local-steps, name the \
                       axes, such as --mesh dp=4";
        problems.add(&["mesh", "local-steps"], message);
    } else if mesh.degree(AxisId::Dp) == 1 {
        let instead = with_ranks_along(&mesh, AxisId::Dp);
        let fix = if settings.is_given_now("local-steps") {
            format!("use {instead}, or leave it out")
        } else {
            format!("keep the replicas that were saved, as in {instead}")
        };
        let message = format!(
            "{steps} lets replicas along dp train apart, but the degree of dp is 1 in --mesh {mesh} (the ranks of fsdp \
             share one replica); {fix}"
        );
        problems.add(&["local-steps", "mesh"], message);
    }
}

/// Some settings are about one state that all ranks have after each step. Returns true if none of them is given.
fn others_know_replicas(settings: &RunSettings, problems: &mut Problems) -> bool {
    let others = [
        (
            "ema",
            "averages the parameters of every step, and replicas differ between their synchronizations",
        ),
        ("noise-scale", "compares parts of one batch, and replicas train on batches of their own"),
        ("preflight", "compares a run with one rank, which has no replicas that train apart"),
        ("record", "measures the communication of every step alike"),
        ("simulate", "simulates a step that is like all others"),
        ("plan", "plans for steps that are all alike"),
        ("cluster", "predicts a step that is like all others"),
    ];
    let given = || others.into_iter().filter(|(name, _)| settings.is_on(name));
    for (name, reason) in given() {
        let message =
            format!("{reason}; it cannot be combined with --local-steps, so leave one of them out");
        problems.add(&[name, "local-steps"], message);
    }
    given().next().is_none()
}

/// Only the state of a synchronization is saved, evaluated and compared.
fn synchronizations_are_met(
    settings: &RunSettings,
    local: &LocalSgdConfig,
    problems: &mut Problems,
) {
    let (every, total) = (local.steps, settings.steps);
    if every > total {
        let message = format!(
            "{every} is more than --steps {total}, so the replicas would never be synchronized; use at most {total}"
        );
        problems.add(&["local-steps", "steps"], message);
        return;
    }
    let mut check = |name: &str, what: &str, steps: u64, is_default: bool| {
        if !local.synchronizes_after(steps) {
            let (before, after) = (steps - steps % every, steps.next_multiple_of(every));
            let before = if before > 0 { format!("{before} or ") } else { String::new() };
            let value =
                if is_default { format!("{steps}, its default, ") } else { format!("{steps} ") };
            let message = format!(
                "{value}is no multiple of --local-steps {every}: {what}, and the replicas differ until they are \
                 synchronized; use {before}{after}"
            );
            problems.add(&[name, "local-steps"], message);
        }
    };
    check("steps", "the model of the last step is the result of the run", total, false);
    if let Some(steps) = settings.save_every {
        check("save-every", "checkpoints hold one model", steps, false);
    }
    if let Some(steps) = settings.check_replicas {
        check("check-replicas", "copies are to be equal", steps, false);
    }
    if let Some(validation) = settings.validation_config() {
        let is_default = settings.eval_every.is_none();
        check("eval-every", "evaluations are of one model", validation.every, is_default);
    }
}
