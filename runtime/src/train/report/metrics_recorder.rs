//! Metrics of a step, from the counters of all ranks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::comm::Site;
use crate::data::Dataset;
use crate::layout::{AxisId, AxisSet};
use crate::nn::Built;
use crate::tensor::Rank;

use crate::train::Result;
use crate::train::pipeline_step::ScheduleTimes;
use crate::train::plan::Plan;
use crate::train::step::StepStats;

use super::flops::{measure_peak, model_flops_per_token};
use super::usage::peak_bytes;
use super::{MetricsFile, PeakFlops, StepMetrics};

/// Records the metrics of steps. Every rank has one, and rank 0 writes.
pub struct MetricsRecorder<'a> {
    /// Written by rank 0.
    file: Option<&'a Mutex<MetricsFile>>,
    dataset: Arc<Dataset>,
    flops_per_token: f64,
    peak: PeakFlops,
    /// Counters at the start of the step.
    recomputed: u64,
    bytes: BTreeMap<AxisSet, u64>,
    /// Bytes that this rank has sent in the step, by axis.
    sent: BTreeMap<String, u64>,
}

impl<'a> MetricsRecorder<'a> {
    /// Creates the recorder of a rank, and measures the peak FLOP/s if they are unknown. Every rank calls it.
    pub fn new<M>(
        rank: &Rank,
        built: &Built<M>,
        plan: &Plan,
        file: Option<&'a Mutex<MetricsFile>>,
    ) -> MetricsRecorder<'a> {
        MetricsRecorder {
            file,
            dataset: Arc::clone(&plan.dataset),
            flops_per_token: model_flops_per_token(built, plan.config.seq),
            peak: match plan.machine.peak_flops(rank.compute_dtype()) {
                Some(flops) => PeakFlops { flops, is_of_data_sheet: true },
                None => measure_peak(rank),
            },
            recomputed: 0,
            bytes: BTreeMap::new(),
            sent: BTreeMap::new(),
        }
    }

    /// Notes the counters at the start of a step.
    pub fn begin_step(&mut self, rank: &Rank) {
        self.recomputed = rank.recomputed_flops();
        self.bytes = rank.comms().bytes_by_axes();
    }

    /// Counts the bytes that the step has sent, before the collectives of the metrics themselves.
    pub fn end_step(&mut self, rank: &Rank) {
        self.sent = self.comm_bytes(rank);
    }

    /// Returns the peak that `mfu` refers to so far.
    pub fn peak(&self) -> PeakFlops {
        self.peak
    }

    /// Writes the line of `step` (from 0). Every rank calls it.
    pub fn record_step(
        &mut self,
        rank: &Rank,
        step: u64,
        stats: &StepStats,
        attention_balance: Option<f64>,
        save_failed: Option<u64>,
    ) -> Result<()> {
        let mut recomputed = [(rank.recomputed_flops() - self.recomputed) as f64];
        rank.all_reduce_f64(AxisSet::ALL, &Site::new("--metrics"), &mut recomputed);
        let peak_bytes = peak_bytes(rank)?;
        let has_stages = rank.degree(AxisId::Pp) > 1;
        let bubble = stats.pipeline.filter(|_| has_stages).map(|times| bubble(rank, times));
        let Some(file) = self.file.filter(|_| rank.index() == 0) else { return Ok(()) };
        let model = self.flops_per_token * stats.tokens as f64;
        let [mfu, hfu] = self.peak.utilization(model, recomputed[0], stats.seconds);
        let line = StepMetrics {
            step: step + 1,
            loss: stats.loss,
            grad_norm: stats.grad_norm,
            lr: stats.lr,
            tokens: stats.tokens,
            step_ms: stats.seconds * 1e3,
            tokens_per_s: stats.tokens as f64 / stats.seconds,
            mfu,
            hfu,
            peak_flops: self.peak.flops,
            peak_bytes,
            comm_bytes: self.sent.clone(),
            bubble,
            padding: self.dataset.padding_of_step(step),
            attention_balance,
            save_failed,
        };
        Ok(file.lock().unwrap_or_else(PoisonError::into_inner).write_step(&line)?)
    }

    /// Returns the bytes that this rank has sent in the step, by axis; 0 for an axis without traffic.
    fn comm_bytes(&self, rank: &Rank) -> BTreeMap<String, u64> {
        let mut sent = BTreeMap::new();
        for axis in AxisSet::ALL.iter().filter(|axis| rank.degree(*axis) > 1) {
            sent.insert(axis.to_string(), 0);
        }
        for (axes, bytes) in rank.comms().bytes_by_axes() {
            let bytes = bytes - self.bytes.get(&axes).copied().unwrap_or(0);
            if bytes > 0 {
                sent.insert(axes.to_string(), bytes);
            }
        }
        sent
    }
}

/// Returns the idle fraction of the time of the pipeline schedule, over all ranks: idle ranks wait for messages, or
/// have finished before others. Every rank calls it.
fn bubble(rank: &Rank, times: ScheduleTimes) -> f64 {
    let ranks = rank.degree_of(AxisSet::ALL);
    let mut elapsed = vec![0.0; ranks];
    elapsed[rank.index()] = times.elapsed.as_secs_f64();
    let busy = times.elapsed.saturating_sub(times.waited).as_secs_f64();
    let mut all: Vec<f64> = elapsed.into_iter().chain([busy]).collect();
    rank.all_reduce_f64(AxisSet::ALL, &Site::new("--metrics"), &mut all);
    let longest = all[..ranks].iter().copied().fold(0.0, f64::max);
    if longest > 0.0 { 1.0 - all[ranks] / (longest * ranks as f64) } else { 0.0 }
}
