//! From what each rank has done in a step to its line of metrics.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::comm::Site;
use crate::layout::AxisSet;
use crate::nn::Built;
use crate::tensor::Rank;

use crate::train::Result;
use crate::train::plan::Plan;

use super::flops::{measure_peak, model_flops_per_token};
use super::usage::peak_bytes;
use super::{MetricsFile, StepMetrics};

/// Results of one training step.
pub struct StepStats {
    pub loss: f64,
    /// Tokens that the loss averages over.
    pub tokens: u64,
    /// Gradient norm before clipping.
    pub grad_norm: f64,
    pub lr: f64,
    pub seconds: f64,
}

/// Counts between the beginning and the end of a step. Every rank has one, the first one writes.
pub struct Recorder<'a> {
    /// Where rank 0 writes.
    file: Option<&'a Mutex<MetricsFile>>,
    flops_per_token: f64,
    /// FLOP/s that the run could reach.
    peak: f64,
    /// Counters at the beginning of the step.
    recomputed: u64,
    bytes: BTreeMap<AxisSet, u64>,
}

impl<'a> Recorder<'a> {
    /// Measures the machine. Every rank calls it.
    pub fn new<M>(
        rank: &Rank,
        built: &Built<M>,
        plan: &Plan,
        file: Option<&'a Mutex<MetricsFile>>,
    ) -> Recorder<'a> {
        Recorder {
            file,
            flops_per_token: model_flops_per_token(built, plan.config.seq),
            peak: plan
                .machine
                .peak_flops(rank.compute_dtype())
                .unwrap_or_else(|| measure_peak(rank)),
            recomputed: 0,
            bytes: BTreeMap::new(),
        }
    }

    /// Notes the counters at the beginning of a step.
    pub fn begin(&mut self, rank: &Rank) {
        self.recomputed = rank.recomputed_flops();
        self.bytes = rank.comms().bytes_by_axes();
    }

    /// Writes the line of `step`. Every rank calls it.
    pub fn record(&self, rank: &Rank, step: u64, done: &StepStats) -> Result<()> {
        // First, so that what is sent for the metrics themselves is not counted.
        let comm_bytes = self.comm_bytes(rank);
        let mut recomputed = [(rank.recomputed_flops() - self.recomputed) as f64];
        rank.all_reduce_f64(AxisSet::ALL, &Site::new("--metrics"), &mut recomputed);
        let peak_bytes = peak_bytes(rank)?;
        let Some(file) = self.file.filter(|_| rank.index() == 0) else { return Ok(()) };
        let possible = done.seconds * self.peak;
        let mfu = self.flops_per_token * done.tokens as f64 / possible;
        let line = StepMetrics {
            step,
            loss: done.loss,
            grad_norm: done.grad_norm,
            lr: done.lr,
            tokens: done.tokens,
            step_ms: done.seconds * 1e3,
            tokens_per_s: done.tokens as f64 / done.seconds,
            mfu,
            hfu: mfu + recomputed[0] / possible,
            peak_bytes,
            comm_bytes,
        };
        Ok(file.lock().unwrap_or_else(PoisonError::into_inner).write(&line)?)
    }

    /// Bytes that this rank has sent in the step, by axis: 0 where it had nothing to send.
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
