//! Observers of the steps of a run: the reports of the trainer, and those that programs add.

use crate::tensor::Rank;
use crate::train::Result;
use crate::train::pipeline_step::ScheduleTimes;

use super::evaluation::Evaluation;
use super::own_metrics::OwnMetrics;
use super::source_losses::SourceLosses;
use super::step_usage::StepUsage;

/// Observes the steps of a run on one rank, for a report or a check: see [`Trainer::on_step`](crate::Trainer::on_step).
///
/// All ranks train the same steps, and call the same methods of their observers in the same order. So a method may use
/// collectives if the observers of all ranks do, and they belong to no step: they do not count in its report. A report
/// of the whole run needs none, since all numbers of a [`StepReport`] are the same on all ranks, except for its times.
/// The other ranks wait for a slow method in their next collective, up to the time limit of communication.
pub trait StepObserver {
    /// Called before `step` (from 1).
    fn begin(&mut self, _rank: &Rank, _step: u64) {}

    /// Called after each step, before a checkpoint of it is saved.
    ///
    /// # Errors
    /// A reason to end the run. The checkpoint that is due after this step is saved, and then the rank fails with the
    /// error; it stops the other ranks, which must not fail too. A run that stops anyway after this step prints a
    /// warning instead.
    fn end(&mut self, report: &StepReport<'_>) -> Result<()>;

    /// Called after the last step of the run, complete or stopped; not if it has failed.
    ///
    /// # Errors
    /// A report that could not be completed: the run fails, but its results are saved and exported first. A run that
    /// was stopped prints a warning instead.
    fn finish(&mut self, _rank: &Rank) -> Result<()> {
        Ok(())
    }
}

/// The numbers of a completed step.
#[non_exhaustive]
pub struct StepReport<'a> {
    /// The rank of the observer.
    pub rank: &'a Rank,
    /// The step, from 1: the number of steps that are done after it.
    pub step: u64,
    /// Mean loss over the tokens of the step, in nats, before its update; 0 if all targets are ignored.
    pub loss: f64,
    /// Norm of the global gradient before clipping.
    pub grad_norm: f64,
    /// Gradient noise scale in sequences, by the steps so far, with `--noise-scale`; `None` if it cannot be told from
    /// them, as they have more noise than gradient.
    pub noise_scale: Option<f64>,
    /// Learning rate of the step's update.
    pub lr: f64,
    /// Tokens trained on in this step, over all ranks.
    pub tokens: u64,
    /// Positions that rates are about: the tokens, or for the loss of a task, which may count rows, all positions of
    /// all rows.
    pub(in crate::train) positions: u64,
    /// Duration on this rank, from the read of its batch to its update.
    pub seconds: f64,
    /// The balance of attention over the ranks of `cp`: mean work by the most of a rank, if the mesh has this axis.
    pub attention_balance: Option<f64>,
    /// Seconds that training has waited for saves since the last report, if there were some.
    pub save_seconds: Option<f64>,
    /// Bytes of the checkpoints that were completed since the last report.
    pub save_bytes: Option<u64>,
    /// The step after which a checkpoint could not be saved, if the failure was detected since the last report.
    pub save_failed: Option<u64>,
    /// Steps of the run so far whose updates were left out, this one included, with `--on-nan skip=N`.
    pub skipped: Option<u64>,
    /// The evaluation after the step, if one was due and not interrupted.
    pub evaluation: Option<Evaluation>,
    /// Times of the pipeline schedule, if the mesh has a `pp` axis.
    pub(in crate::train) schedule: Option<ScheduleTimes>,
    /// The losses of the sources, if there are several.
    pub(in crate::train) sources: Option<SourceLosses>,
    pub(in crate::train) usage: StepUsage,
    /// The metrics that observers have added.
    pub(in crate::train) own: OwnMetrics,
}

impl StepReport<'_> {
    /// Returns the tokens per second, over all ranks.
    pub fn tokens_per_s(&self) -> f64 {
        self.positions as f64 / self.seconds
    }

    /// Adds a metric of the program to the step, from [`StepObserver::end`]: a key of its line in the metrics file, and
    /// a number of its progress line. Both are written by rank 0, with its value; those of other ranks are ignored, so
    /// a number that differs between them is reduced before.
    ///
    /// # Errors
    /// A name of another metric of the step, or one that has other characters than ASCII letters, digits and `_-./`.
    pub fn metric(&self, name: &str, value: f64) -> Result<()> {
        self.own.add(name, value)
    }
}

/// Observes on some of the ranks, such as rank 0.
impl<O: StepObserver> StepObserver for Option<O> {
    fn begin(&mut self, rank: &Rank, step: u64) {
        if let Some(observer) = self {
            observer.begin(rank, step);
        }
    }

    fn end(&mut self, report: &StepReport<'_>) -> Result<()> {
        self.as_mut().map_or(Ok(()), |observer| observer.end(report))
    }

    fn finish(&mut self, rank: &Rank) -> Result<()> {
        self.as_mut().map_or(Ok(()), |observer| observer.finish(rank))
    }
}
