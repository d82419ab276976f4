//! Measured times of pipeline stages, which show their load imbalance: the slowest stage is the straggler.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use meshwright_backend::{Buffer, Device, DeviceEvent, StreamKind};
use meshwright_comm::Site;
use meshwright_core::layout::{AxisId, AxisSet};
use meshwright_core::tensor::Rank;

use super::StageWork;

/// Times of the stages of a rank: of each stage, the milliseconds of all passes of a micro-batch, one sample per
/// micro-batch and step.
#[derive(Default)]
pub(super) struct StageTimes(RefCell<Samples>);

#[derive(Default)]
struct Samples {
    steps: usize,
    of_stages: BTreeMap<usize, Vec<f64>>,
}

impl StageTimes {
    /// Adds the samples of a step. Samples of the first step, when caches and kernels are new, are dropped as soon as
    /// there are others.
    fn add_step(&self, step: HashMap<(usize, usize), f64>) {
        let mut samples = self.0.borrow_mut();
        if samples.steps == 1 {
            samples.of_stages.clear();
        }
        samples.steps += 1;
        for ((stage, _), ms) in step {
            samples.of_stages.entry(stage).or_default().push(ms);
        }
    }

    /// Returns the median of each stage: on the ranks that compute it, and as the mean of these on all. Every rank
    /// calls it. `placement` is the rank of each stage along `pp`.
    ///
    /// # Panics
    /// If no step was measured.
    pub fn mean_over_ranks(&self, rank: &Rank, placement: &[usize]) -> Vec<f64> {
        let samples = self.0.borrow();
        let mut ms = vec![0.0; placement.len()];
        let own = rank.position(AxisSet::of(AxisId::Pp));
        for stage in (0..placement.len()).filter(|stage| placement[*stage] == own) {
            let samples = samples.of_stages.get(&stage);
            ms[stage] = median(samples.expect("a step of every stage was measured"));
        }
        rank.sum_over_ranks(&Site::new("times of pipeline stages"), &mut ms);
        let replicas = rank.comms().shape().world_size() / rank.degree(AxisId::Pp);
        ms.into_iter().map(|sum| sum / replicas as f64).collect()
    }
}

/// Returns the lower median, which one slow sample does not change.
fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() - 1) / 2]
}

/// One step of `work`, whose computations are timed: on the host, or on the compute stream of a device.
pub(super) struct TimedStages<'a, W> {
    work: &'a mut W,
    times: &'a StageTimes,
    device: Option<&'a Arc<dyn Device>>,
    /// Milliseconds of the host, by stage and micro-batch.
    ms: HashMap<(usize, usize), f64>,
    /// Events of the compute stream before and after each computation.
    events: Vec<((usize, usize), DeviceEvent, DeviceEvent)>,
}

impl<'a, W> TimedStages<'a, W> {
    /// Times `work`, whose memory is that of `device`, or of the host.
    pub fn new(
        work: &'a mut W,
        times: &'a StageTimes,
        device: Option<&'a Arc<dyn Device>>,
    ) -> TimedStages<'a, W> {
        TimedStages { work, times, device, ms: HashMap::new(), events: Vec::new() }
    }

    /// Ends the step: adds its times to the times of earlier steps. Waits for the computations of a device.
    pub fn finish_step(mut self) {
        if let Some((device, (.., last))) = self.device.zip(self.events.last()) {
            device.synchronize(last);
            for (at, before, after) in &self.events {
                *self.ms.entry(*at).or_default() += f64::from(device.elapsed_ms(before, after));
            }
        }
        self.times.add_step(self.ms);
    }

    fn time_chunk<T>(&mut self, at: (usize, usize), run: impl FnOnce(&mut W) -> T) -> T {
        let record = |device: &Arc<dyn Device>| device.record_timed_event(StreamKind::Compute);
        let before = self.device.map(record);
        let start = Instant::now();
        let result = run(self.work);
        match self.device.map(record).zip(before) {
            Some((after, before)) => self.events.push((at, before, after)),
            None => *self.ms.entry(at).or_default() += start.elapsed().as_secs_f64() * 1e3,
        }
        result
    }
}

impl<W: StageWork> StageWork for TimedStages<'_, W> {
    type Error = W::Error;

    fn run_forward(
        &mut self,
        stage: usize,
        micro_batch: usize,
        input: Vec<Arc<Buffer>>,
    ) -> Result<Vec<Arc<Buffer>>, W::Error> {
        self.time_chunk((stage, micro_batch), |work| work.run_forward(stage, micro_batch, input))
    }

    fn run_backward(
        &mut self,
        stage: usize,
        micro_batch: usize,
        gradients: Vec<Arc<Buffer>>,
    ) -> Result<Vec<Arc<Buffer>>, W::Error> {
        self.time_chunk((stage, micro_batch), |work| {
            work.run_backward(stage, micro_batch, gradients)
        })
    }

    fn run_backward_input(
        &mut self,
        stage: usize,
        micro_batch: usize,
        gradients: Vec<Arc<Buffer>>,
    ) -> Result<Vec<Arc<Buffer>>, W::Error> {
        let at = (stage, micro_batch);
        self.time_chunk(at, |work| work.run_backward_input(stage, micro_batch, gradients))
    }

    fn run_backward_weight(&mut self, stage: usize, micro_batch: usize) -> Result<(), W::Error> {
        let at = (stage, micro_batch);
        self.time_chunk(at, |work| work.run_backward_weight(stage, micro_batch))
    }

    fn unshard(&mut self, stage: usize) -> Result<(), W::Error> {
        self.work.unshard(stage)
    }

    fn reshard(&mut self, stage: usize) -> Result<(), W::Error> {
        self.work.reshard(stage)
    }

    fn reduce_gradients(&mut self, stage: usize) -> Result<(), W::Error> {
        self.work.reduce_gradients(stage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_step_counts_only_alone() {
        let times = StageTimes::default();
        let samples = |stage| times.0.borrow().of_stages[&stage].clone();
        times.add_step(HashMap::from([((0, 0), 9.0), ((1, 0), 7.0)]));
        assert_eq!((samples(0), samples(1)), (vec![9.0], vec![7.0]));
        times.add_step(HashMap::from([((0, 0), 2.0), ((1, 0), 3.0)]));
        times.add_step(HashMap::from([((0, 0), 4.0), ((1, 0), 3.0)]));
        assert_eq!((samples(0), samples(1)), (vec![2.0, 4.0], vec![3.0, 3.0]));
    }

    #[test]
    fn medians_ignore_outliers() {
        assert_eq!(median(&[5.0]), 5.0);
        assert_eq!(median(&[1.0, 900.0]), 1.0);
        assert_eq!(median(&[900.0, 1.0, 3.0]), 3.0);
    }
}
