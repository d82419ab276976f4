//! The measured step of `--record`.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use crate::backend::Kernel;
use crate::tensor::Rank;
use crate::train::Result;
use crate::train::plan::Plan;
use crate::train::report::{StepObserver, StepReport};
use meshwright_comm::__internal::CallTransfer;
use meshwright_sim::calibrate::{CallRecord, KernelRecord, RecordedDevice, StepRecord};

use super::timer::{StepTimer, TimesOf};

/// Steps before the steady ones: pipelines on devices begin without lookahead.
const WARM_UP: u64 = 2;
/// The most steps that are recorded, and as many are not.
const MOST_RECORDED: u64 = 5;

/// The measurements of the recorded ranks of this process.
pub type Measurements = Mutex<Vec<RankMeasurement>>;

/// The steps of a run that are recorded, numbered from 1: half of the steady ones, at its end.
pub fn steps_to_record(first: u64, total: u64) -> Option<std::ops::RangeInclusive<u64>> {
    let steady = total.saturating_sub(first + WARM_UP);
    (steady > 0).then(|| total + 1 - (steady / 2).clamp(1, MOST_RECORDED)..=total)
}

/// The measurement of a rank.
#[derive(Default)]
pub struct RankMeasurement {
    /// Seconds of the steps, those outside of kernels and communication, and the times of operations.
    seconds: Vec<f64>,
    host_seconds: Vec<f64>,
    kernels: Vec<TimesOf<Kernel>>,
    calls: Vec<TimesOf<CallTransfer>>,
    /// Seconds of the steady steps before.
    unrecorded: Vec<f64>,
}

/// Measures the last steps of a rank.
pub struct MeasuredSteps<'a> {
    timer: Arc<StepTimer>,
    plan: &'a Plan,
    results: &'a Measurements,
    own: RankMeasurement,
}

impl<'a> MeasuredSteps<'a> {
    /// Creates an observer that adds its measurement to `results` at the end of the run.
    pub fn new(timer: Arc<StepTimer>, plan: &'a Plan, results: &'a Measurements) -> Self {
        MeasuredSteps { timer, plan, results, own: RankMeasurement::default() }
    }

    fn is_recorded(&self, step: u64) -> bool {
        let steps = steps_to_record(self.plan.first_step(), self.plan.config.steps);
        steps.is_some_and(|steps| steps.contains(&step))
    }
}

impl StepObserver for MeasuredSteps<'_> {
    fn begin(&mut self, rank: &Rank, step: u64) {
        if self.is_recorded(step) {
            self.timer.begin_step(rank);
        }
    }

    fn end(&mut self, report: &StepReport<'_>) -> Result<()> {
        let is_recorded = self.is_recorded(report.step);
        let own = &mut self.own;
        if !is_recorded {
            if report.step > self.plan.first_step() + WARM_UP {
                own.unrecorded.push(report.seconds);
            }
            return Ok(());
        }
        let step = self.timer.take_step();
        let computed: f64 = step.kernels.values().map(|(_, seconds)| seconds).sum();
        let busy = computed + step.communicated.as_secs_f64();
        own.host_seconds.push((report.seconds - busy).max(0.0));
        own.seconds.push(report.seconds);
        own.kernels.push(step.kernels);
        own.calls.push(step.calls);
        Ok(())
    }

    fn finish(&mut self, _: &Rank) -> Result<()> {
        let mut results = self.results.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        results.push(std::mem::take(&mut self.own));
        Ok(())
    }
}

/// Returns the record of a run; `None` if it has ended before its last steps.
pub fn step_record(plan: &Plan, measured: &[RankMeasurement]) -> Option<StepRecord> {
    let first = measured.iter().find(|rank| !rank.seconds.is_empty())?;
    let steady = if first.unrecorded.is_empty() { &first.seconds } else { &first.unrecorded };
    let (config, ranks) = (&plan.config, plan.config.mesh.world_size());
    let device = plan.machine.device();
    let memory = plan.machine.memory().unwrap_or(0.0);
    let memory = if device.is_gpu { memory / ranks as f64 } else { memory };
    let host_seconds: Vec<f64> =
        measured.iter().flat_map(|rank| rank.host_seconds.iter().copied()).collect();
    let kernels = medians(measured, |rank| &rank.kernels);
    let mut kernels: Vec<KernelRecord> = kernels
        .into_iter()
        .map(|(kernel, count, seconds)| {
            let Kernel { op, dims, dtype, flops, read, written } = kernel;
            let (op, dtype) = (op.name().to_owned(), dtype.name().to_owned());
            KernelRecord { op, dims, dtype, count, flops, read, written, seconds }
        })
        .collect();
    let order = |kernel: &KernelRecord| (kernel.op.clone(), kernel.dims, kernel.read);
    kernels.sort_by_cached_key(order);
    let mut calls: Vec<CallRecord> = medians(measured, |rank| &rank.calls)
        .into_iter()
        .map(|(CallTransfer { op, axes, bytes }, count, seconds)| {
            let (op, group) = (op.to_owned(), config.mesh.degree_of(axes));
            CallRecord { op, group, bytes: bytes as u64, count, seconds }
        })
        .collect();
    calls.sort_by_cached_key(|call| (call.op.clone(), call.group, call.bytes));
    let (format, version) = StepRecord::format();
    Some(StepRecord {
        format,
        version,
        device: RecordedDevice {
            kind: if device.is_gpu { "cuda" } else { "cpu" }.to_owned(),
            name: device.name,
            units: device.units,
            memory: memory as u64,
        },
        mesh: config.mesh.to_string(),
        ranks,
        sharing_ranks: if device.is_gpu { device.ranks_each } else { ranks },
        dtype: config.dtype.dtype().name().to_owned(),
        step_seconds: median(steady.clone()),
        recorded_seconds: median(first.seconds.clone()),
        host_seconds: median(host_seconds),
        measured_steps: first.seconds.len(),
        kernels,
        calls,
    })
}

/// Returns the number of equal operations in a step of all ranks, and the mean seconds of each in a step, of which it
/// takes the median over steps and ranks.
fn medians<K: Hash + Eq + Copy>(
    measured: &[RankMeasurement],
    times: impl Fn(&RankMeasurement) -> &Vec<TimesOf<K>>,
) -> Vec<(K, u64, f64)> {
    let mut means: HashMap<K, (u64, Vec<f64>)> = HashMap::new();
    for rank in measured {
        let steps = times(rank);
        let Some(last) = steps.last() else { continue };
        for (key, (count, _)) in last {
            let (counts, of_key) = means.entry(*key).or_default();
            *counts += count;
            let of_steps = steps.iter().filter_map(|step| step.get(key));
            of_key.extend(of_steps.map(|(count, sum)| sum / *count as f64));
        }
    }
    means.into_iter().map(|(key, (count, of_key))| (key, count, median(of_key))).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
