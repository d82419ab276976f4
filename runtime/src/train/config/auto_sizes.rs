//! `--batch auto` and `--micro-batches auto`: sizes of a step that the memory plan chooses.

use crate::layout::{AxisId, AxisSet};
use crate::mesh::MeshShape;

use super::ConfigError;
use super::problems::Problems;
use super::setting_value::{AUTO, AutoSizes, MeshSetting};
use super::settings::{FLAGS, RunSettings};

/// The flags that may be `auto`.
pub const AUTO_FLAGS: [&str; 2] = ["batch", "micro-batches"];

impl RunSettings {
    /// Returns true if the number of a flag is to be chosen.
    pub(super) fn is_auto(&self, name: &str) -> bool {
        self.given.get(name).is_some_and(|given| given.text.to_string_lossy().trim() == AUTO)
    }

    /// Removes the sizes that are to be chosen for a run on a known mesh.
    ///
    /// # Errors
    /// Settings that choose the mesh too, or compare steps.
    pub(in crate::train) fn take_auto_sizes(&mut self) -> Result<AutoSizes, ConfigError> {
        let [batch, micro_batches] = AUTO_FLAGS.map(|name| self.is_auto(name));
        let mut problems = Problems::new(&self.given);
        let is_mesh_open = matches!(self.mesh, Some(MeshSetting::Auto(_)))
            || self.simulate.is_some() && self.mesh.is_none();
        for name in AUTO_FLAGS.into_iter().filter(|name| self.is_auto(name)) {
            if self.is_given("plan") {
                let message = match name {
                    "batch" => {
                        "`auto` is of a run on a mesh, and --plan chooses the mesh of a batch; name a number"
                    }
                    _ => "--plan chooses them; leave it out",
                };
                problems.add(&[name, "plan"], message);
            } else if self.preflight.is_some() {
                let message = "`auto` is not compared by --preflight; name the number of the run";
                problems.add(&[name, "preflight"], message);
            } else if is_mesh_open {
                let message = "`auto` is of a run on a mesh, and a mesh is chosen for a batch; name the axes of \
                               --mesh, or a number";
                problems.add(&[name, "mesh"], message);
            }
        }
        problems.finish(FLAGS)?;
        for name in AUTO_FLAGS.into_iter().filter(|name| self.is_auto(name)).collect::<Vec<_>>() {
            self.given.remove(name);
        }
        self.chosen_later = AutoSizes { batch, micro_batches };
        Ok(self.chosen_later)
    }
}

/// A program that makes a `Config` itself names its sizes.
pub fn sizes_are_chosen(settings: &RunSettings, problems: &mut Problems) {
    for name in AUTO_FLAGS.into_iter().filter(|name| settings.is_auto(name)) {
        let message =
            "`auto` needs the model: create the trainer by Trainer::from_args, or name a number";
        problems.add(&[name], message);
    }
}

/// Checks that a batch has parts, whose gradients the noise scale compares.
///
/// # Errors
/// A message about `--noise-scale`.
pub fn check_parts(mesh: &MeshShape, micro_batches: usize) -> Result<(), &'static str> {
    if mesh.degree_of(AxisSet::DATA) * micro_batches > 1 {
        return Ok(());
    }
    Err(
        "compares parts of a batch, which has one part; use --micro-batches 2, or a dp or fsdp axis",
    )
}

/// The noise scale compares the gradients of parts of a batch, which some axes do not have, and is one of the metrics.
pub fn noise_has_parts(settings: &RunSettings, problems: &mut Problems) {
    if !settings.noise_scale {
        return;
    }
    if settings.plan.is_some() {
        problems.add(&["noise-scale", "plan"], "--plan runs nothing; leave one of them out");
        return;
    }
    let mesh = settings.shape();
    let unfit =
        [AxisId::Pp, AxisId::Cp, AxisId::Ep].into_iter().find(|axis| mesh.degree(*axis) > 1);
    if let Some(axis) = unfit {
        let message = format!(
            "ranks along {axis} have no gradient of a micro-batch of their own in --mesh {mesh}; use dp, fsdp and tp, \
             or leave it out"
        );
        problems.add(&["noise-scale", "mesh"], message);
    } else if !settings.chosen_later.micro_batches
        && let Err(message) = check_parts(&mesh, settings.micro_batches)
    {
        problems.add(&["noise-scale", "micro-batches"], message);
    }
    if settings.local_steps.is_some() {
        let message = "replicas of --local-steps have no gradient in common; leave one of them out";
        problems.add(&["noise-scale", "local-steps"], message);
    }
    let has_metrics =
        ["metrics", "tensorboard", "prometheus"].iter().any(|name| settings.is_given(name));
    if !has_metrics {
        let message = "is written to the metrics; add --metrics FILE.jsonl, or leave it out";
        problems.add(&["noise-scale", "metrics"], message);
    }
}
