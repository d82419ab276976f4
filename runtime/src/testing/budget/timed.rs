//! Budgets of the time of a step on a cluster.

use std::sync::Arc;

use crate::layout::AxisSet;
use crate::train::Error;
use meshwright_sim::cluster::Catalog;
use meshwright_sim::{PositionTime, SimOptions, SimulatedStep, StepLog, simulate};

use super::failure::largest_collectives;
use super::{StepBudget, bytes_of};
use crate::train::explain::bytes_text;

/// A step that is [simulated](crate::sim::simulate) on a cluster. Made by [`StepBudget::on`].
pub struct TimedBudget<'a> {
    budget: &'a StepBudget,
    cluster: String,
    step: SimulatedStep,
}

impl TimedBudget<'_> {
    pub(super) fn new<'a>(budget: &'a StepBudget, cluster: &str) -> crate::Result<TimedBudget<'a>> {
        let input = |error: &dyn std::fmt::Display| Error::Input(error.to_string());
        let cluster = Catalog::new().cluster(cluster).map_err(|error| input(&error))?;
        let explanation = &budget.explanation;
        let logs: Vec<Arc<StepLog>> =
            explanation.positions.iter().map(|position| Arc::clone(&position.log)).collect();
        let step = simulate(&cluster, &explanation.mesh, &logs, &SimOptions::default());
        let step = step.map_err(|error| input(&error))?;
        Ok(TimedBudget { budget, cluster: cluster.name.clone(), step })
    }

    /// Returns the time of the step, in seconds.
    pub fn seconds(&self) -> f64 {
        self.step.seconds
    }

    /// Returns the time for which kernels of a rank wait for collectives over these axes, in seconds: on the position
    /// along `pp` that waits most.
    ///
    /// # Panics
    /// If the mesh has no ranks along one of the axes.
    #[track_caller]
    pub fn exposed(&self, axes: &str) -> f64 {
        self.exposed_over(self.budget.axes(axes)).0
    }

    /// Asserts that the step takes at most a number of [`seconds`](Self::seconds).
    ///
    /// # Panics
    /// If it takes longer: the message lists the use of the time.
    #[track_caller]
    pub fn seconds_at_most(&self, seconds: f64) -> &Self {
        if self.step.seconds > seconds {
            let mean = self.step.mean_position();
            panic!(
                "a step on {} takes {}, the limit is {}: {} of computation, {} of exposed communication and {} of \
                 other waits",
                self.cluster,
                milliseconds(self.step.seconds),
                milliseconds(seconds),
                milliseconds(mean.computed()),
                milliseconds(mean.communicated()),
                milliseconds(mean.total() - mean.computed() - mean.communicated()),
            );
        }
        self
    }

    /// Asserts that at most a number of seconds of collectives over these axes are [`exposed`](Self::exposed).
    ///
    /// # Panics
    /// If more are exposed: the message lists the fields and lines with most bytes over these axes. If the mesh has no
    /// ranks along one of the axes.
    #[track_caller]
    pub fn exposed_at_most(&self, axes: &str, seconds: f64) -> &Self {
        let axes = self.budget.axes(axes);
        let (exposed, index) = self.exposed_over(axes);
        if exposed > seconds {
            let position = &self.budget.explanation.positions[index];
            let rows = self.budget.rows_over(axes, position);
            panic!(
                "{} on {} for {} of exposed communication: the limit is {}. Most bytes over {axes}:\n{}",
                self.budget.on_rank(position, "waits"),
                self.cluster,
                milliseconds(exposed),
                milliseconds(seconds),
                largest_collectives(rows, bytes_of, bytes_text)
            );
        }
        self
    }

    /// Returns the most exposed communication over these axes, and the index of its position.
    fn exposed_over(&self, axes: AxisSet) -> (f64, usize) {
        let mesh = &self.budget.explanation.mesh;
        let of_position = |time: &PositionTime| {
            let over = time.exposed.iter().filter(|(group, _)| mesh.axes_in_use(*group) == axes);
            over.map(|(_, seconds)| seconds).sum::<f64>()
        };
        let times = self.step.positions.iter().map(of_position).zip(0..);
        times.reduce(|most, next| if next.0 > most.0 { next } else { most }).unwrap_or_default()
    }
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.3} ms", seconds * 1e3)
}
