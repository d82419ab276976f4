//! Evaluations of the model on the validation data.

use std::time::Instant;

use crate::comm::Site;
use crate::data::MicroBatch;
use crate::train::console::print_line;
use crate::train::evaluation::evaluate_batch;
use crate::train::micro_batch::data_rows;
use crate::train::plan::Validation;
use crate::train::report::Evaluation;
use crate::train::run_optimizer::Synchronized;
use crate::train::{Error, Result, Task};
use meshwright_core::__internal as scope;

use super::batch_check::check_first_batches;
use super::end_cause::EndCause;
use super::evaluations::Evaluations;
use super::rank_loop::RankLoop;
use super::stop::{begin_last, stop_reason};

impl<T: Task> RankLoop<'_, T> {
    /// Returns true if no step follows after `steps` steps: all are done, or evaluations say to stop.
    pub(super) fn is_final(&self, steps: u64) -> bool {
        let stops = self.evaluations.as_ref().is_some_and(Evaluations::stop_early);
        steps == self.plan.config.steps || stops
    }

    /// Returns true if the last evaluation was interrupted, and the run ends.
    pub(super) fn is_interrupted(&self) -> bool {
        self.evaluations.as_ref().is_some_and(|own| own.is_interrupted)
    }

    /// Returns true if the model is evaluated after `steps` steps.
    pub(super) fn is_evaluation_due(&self, steps: u64) -> bool {
        let is_last = steps == self.plan.config.steps;
        self.evaluations.as_ref().is_some_and(|own| is_last || own.are_due_after(steps))
    }

    /// Evaluates the model after `steps` steps, if that is due and the run goes on. Every rank calls it, and all get
    /// the same numbers.
    pub(super) fn evaluate_if_due(&mut self, steps: u64) -> Result<Option<Evaluation>> {
        if !self.is_evaluation_due(steps) || self.state.rank.is_last_step() {
            return Ok(None);
        }
        let evaluation = self.evaluate(self.state.optimizer.synchronized_after(steps)?)?;
        if evaluation.is_some() && self.is_final(steps) {
            begin_last(self.plan, self.state.rank.index());
        }
        Ok(evaluation)
    }

    /// Evaluates the loaded model, if the run that has saved it was stopped before that, or nothing is left to train.
    pub(super) fn evaluate_loaded(&mut self, steps: u64) -> Result<()> {
        let Some(own) = &self.evaluations else { return Ok(()) };
        let is_missed = own.record.step != steps && self.is_evaluation_due(steps);
        if steps == 0 || !(self.is_final(steps) || is_missed) {
            return Ok(());
        }
        let evaluation = self.evaluate(self.state.optimizer.synchronized_after(steps)?)?;
        let prints = self.state.rank.index() == 0 && !self.plan.config.quiet;
        if let (Some(evaluation), true) = (&evaluation, prints) {
            print_line(&format!("step {steps}/{}  {evaluation}", self.plan.config.steps));
        }
        // The checkpoint does not hold it yet.
        if evaluation.is_some() && is_missed { self.save_if_due(steps) } else { Ok(()) }
    }

    /// Evaluates a model that all replicas have on all validation batches. Returns `None` if the run has to end: a rank
    /// was asked to stop, or cannot read its data.
    fn evaluate(&mut self, synchronized: Synchronized) -> Result<Option<Evaluation>> {
        self.state.optimizer.show_shared_params(synchronized);
        let evaluation = self.evaluate_shared(synchronized.steps());
        self.state.optimizer.show_own_params();
        evaluation
    }

    /// Evaluates the present parameters, after `steps` steps.
    fn evaluate_shared(&mut self, steps: u64) -> Result<Option<Evaluation>> {
        let Some(own) = &mut self.evaluations else { return Ok(None) };
        let (start, span) = (Instant::now(), scope::begin_span());
        let (config, Validation { dataset, batches, .. }) = (&self.plan.config, own.validation);
        let rank = &self.state.rank;
        let rows = data_rows(rank, config.batch, config.micro_batches);
        let (mut sums, mut shares) = ([0.0; 2], [0.0; 2]);
        for index in 0..=*batches {
            let is_batch = index < *batches;
            let batch = is_batch.then(|| dataset.micro_batches(index, &rows)).transpose();
            let batch = batch.map_err(Error::of_validation(own.validation.flag));
            let stopped = if is_batch { stop_reason(config) } else { None };
            let cause = EndCause::of(batch.as_ref().err(), stopped);
            // All ranks have to learn before the next batch that one of them does not compute it.
            let mut all = [shares[0], shares[1], f64::from(u8::from(cause.is_some()))];
            rank.sum_over_ranks(&Site::new("evaluation"), &mut all);
            sums = [sums[0] + all[0], sums[1] + all[1]];
            if all[2] > 0.0 {
                self.end_cause = cause;
                own.is_interrupted = true;
                return Ok(None);
            }
            if let Ok(Some(batch)) = &batch {
                if index == 0 && own.done.is_empty() {
                    check_first_batches(rank, config.batch, batch)?;
                }
                let micro_batches: Vec<MicroBatch<'_>> =
                    (0..config.micro_batches).map(|index| batch.micro_batch(index)).collect();
                shares = evaluate_batch(
                    &self.state,
                    &*self.task,
                    config.replica_batch(),
                    &micro_batches,
                )?;
            }
        }
        scope::end_span("evaluation", span);
        let [loss_sum, targets] = sums;
        let loss = loss_sum / targets;
        // One of a complete run may be repeated.
        let is_best = own.record.step != steps && own.record.add(steps, loss);
        let evaluation = Evaluation {
            step: steps,
            loss,
            targets: targets as u64,
            bits_per_byte: own.validation.bits_per_byte(loss_sum, targets),
            is_best,
            seconds: start.elapsed().as_secs_f64(),
        };
        own.done.push(evaluation);
        Ok(Some(evaluation))
    }
}
