//! Metrics of a step, from the counters of all ranks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::comm::Site;
use crate::data::Dataset;
use crate::layout::AxisId;
use crate::tensor::Rank;

use crate::train::Result;
use crate::train::console::print_line;
use crate::train::pipeline_step::ScheduleTimes;

use super::flops::measure_peak;
use super::goodput::Goodput;
use super::metrics::{StepMetrics, unix_time};
use super::metrics_files::MetricsFiles;
use super::observer::{StepObserver, StepReport};
use super::peak::PeakFlops;
use super::report_file::MetricsError;
use super::source_losses::SourceLosses;
use super::usage::peak_bytes;

/// Records the metrics of steps. Every rank has one, and rank 0 writes.
pub struct MetricsRecorder<'a> {
    /// Written by rank 0.
    files: Arc<Mutex<MetricsFiles>>,
    /// `None` if samples are no rows of a dataset.
    pub dataset: Option<&'a Dataset>,
    /// `None` if it is not known, and on other ranks than rank 0.
    pub goodput: Option<Goodput>,
    flops_per_token: f64,
    peak: PeakFlops,
    /// The reason why there are no metrics of later steps, on rank 0.
    failure: Option<MetricsError>,
}

impl<'a> MetricsRecorder<'a> {
    /// Creates the recorder of a rank that trains with as many model FLOPs per token, with the peak FLOP/s of its data
    /// sheet; measures them if they are unknown. Every rank calls it.
    pub fn new(
        rank: &Rank,
        flops_per_token: f64,
        dataset: Option<&'a Dataset>,
        peak_flops: Option<f64>,
        files: Arc<Mutex<MetricsFiles>>,
    ) -> MetricsRecorder<'a> {
        MetricsRecorder {
            files,
            dataset,
            goodput: None,
            flops_per_token,
            peak: match peak_flops {
                Some(flops) => PeakFlops { flops, is_of_data_sheet: true },
                None => measure_peak(rank),
            },
            failure: None,
        }
    }

    /// Returns the losses of the sources, from `sums` over all ranks, and their epochs after `step`.
    fn metrics_of_sources(&self, step: u64, sums: &[f64]) -> BTreeMap<String, f64> {
        let Some(dataset) = self.dataset else { return BTreeMap::new() };
        let losses = SourceLosses::means_of_sums(sums);
        let sources = dataset.source_epochs_after(step).zip(losses);
        let metrics = sources.flat_map(|((name, epochs), loss)| {
            let loss = loss.map(|loss| (format!("loss.{name}"), loss));
            loss.into_iter().chain([(format!("epoch.{name}"), epochs)])
        });
        metrics.collect()
    }

    /// Returns the peak that `mfu` refers to so far.
    pub fn peak(&self) -> PeakFlops {
        self.peak
    }
}

impl StepObserver for MetricsRecorder<'_> {
    /// Writes the metrics of the step. Training goes on without a file that cannot be written.
    fn end(&mut self, report: &StepReport<'_>) -> Result<()> {
        let StepReport { rank, usage, .. } = report;
        let mut sums = vec![usage.flops[1] as f64];
        sums.extend(report.sources.iter().flat_map(SourceLosses::to_shares));
        rank.sum_over_ranks(&Site::new("metrics"), &mut sums);
        let peak_bytes = peak_bytes(rank)?;
        let has_stages = rank.degree(AxisId::Pp) > 1;
        let bubble = report.schedule.filter(|_| has_stages).map(|times| bubble(rank, times));
        if rank.index() > 0 {
            return Ok(());
        }
        let model = self.flops_per_token * report.positions as f64;
        let [mfu, hfu] = self.peak.utilization(model, sums[0], report.seconds);
        let line = StepMetrics {
            step: report.step,
            loss: report.loss,
            grad_norm: report.grad_norm,
            noise_scale: report.noise_scale,
            lr: report.lr,
            tokens: report.tokens,
            epoch: self.dataset.map(|dataset| dataset.epochs_after(report.step)),
            time: unix_time(),
            step_ms: report.seconds * 1e3,
            tokens_per_s: report.tokens_per_s(),
            mfu,
            hfu,
            peak_flops: self.peak.flops,
            peak_bytes,
            comm_bytes: usage.sent_bytes(rank),
            bubble,
            padding: self.dataset.and_then(|dataset| dataset.padding_of_step(report.step - 1)),
            attention_balance: report.attention_balance,
            goodput: self.goodput.as_mut().map(|goodput| goodput.after_step(report.seconds)),
            save_ms: report.save_seconds.map(|seconds| seconds * 1e3),
            save_bytes: report.save_bytes,
            save_failed: report.save_failed,
            skipped: report.skipped,
            eval_loss: report.evaluation.map(|evaluation| evaluation.loss),
            eval_perplexity: report.evaluation.map(|evaluation| evaluation.perplexity()),
            eval_bits_per_byte: report.evaluation.and_then(|evaluation| evaluation.bits_per_byte),
            sources: self.metrics_of_sources(report.step, &sums[1..]),
            own: report.own.to_vec().into_iter().collect(),
        };
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        for error in files.write_step(&line) {
            let flag = error.flag;
            print_line(&format!("warning: {error}; training goes on without {flag}"));
            self.failure.get_or_insert(error);
        }
        Ok(())
    }

    fn finish(&mut self, _: &Rank) -> Result<()> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let finished = files.finish();
        Ok(self.failure.take().map_or(finished, Err)?)
    }
}

/// Returns the idle fraction of the time of the pipeline schedule, over all ranks: idle ranks wait for messages, or
/// have finished before others. Every rank calls it.
fn bubble(rank: &Rank, times: ScheduleTimes) -> f64 {
    let ranks = rank.comms().shape().world_size();
    let mut elapsed = vec![0.0; ranks];
    elapsed[rank.index()] = times.elapsed.as_secs_f64();
    let busy = times.elapsed.saturating_sub(times.waited).as_secs_f64();
    let mut all: Vec<f64> = elapsed.into_iter().chain([busy]).collect();
    rank.sum_over_ranks(&Site::new("metrics"), &mut all);
    let longest = all[..ranks].iter().copied().fold(0.0, f64::max);
    if longest > 0.0 { 1.0 - all[ranks] / (longest * ranks as f64) } else { 0.0 }
}
