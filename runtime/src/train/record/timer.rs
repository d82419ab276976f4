//! The times of the kernels and calls of one rank.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::backend::{Backend, Device, DeviceEvent, Kernel, KernelObserver, KernelOp, StreamKind};
use crate::comm::{Call, CallObserver, RankComms};
use crate::tensor::{Rank, Settings};
use meshwright_backend::__internal::ObservedBackend;
use meshwright_comm::__internal::CallTransfer;

/// Times of equal operations: their number, and the sum of their durations in seconds.
pub type TimesOf<K> = HashMap<K, (u64, f64)>;

/// Measures the kernels and calls of one rank in selected steps: on the CPU by the clock of the host, on a device by
/// its events.
#[derive(Default)]
pub struct StepTimer {
    device: Option<Arc<dyn Device>>,
    step: Mutex<TimedStep>,
}

/// The times of a step.
#[derive(Default)]
pub struct TimedStep {
    is_open: bool,
    pub kernels: TimesOf<Kernel>,
    pub calls: TimesOf<CallTransfer>,
    /// Time of the rank's thread in communication; until the step is ended, that before it.
    pub communicated: Duration,
    /// The kernels of the present launch, and its start.
    launched: Vec<Kernel>,
    start: Option<Start>,
    /// Launches of a device whose times are not read yet.
    unread: Vec<(Vec<Kernel>, [DeviceEvent; 2])>,
}

enum Start {
    Host(Instant),
    Device(StreamKind, DeviceEvent),
}

impl StepTimer {
    /// Creates a rank with settings whose kernels and calls are measured.
    pub fn observe(
        comms: RankComms,
        backend: Box<dyn Backend>,
        settings: Settings,
    ) -> (Rank, Arc<StepTimer>) {
        let timer = Arc::new(StepTimer { device: backend.device(), step: Mutex::default() });
        let comms = comms.observed_by(Arc::<StepTimer>::clone(&timer));
        let backend = ObservedBackend::new(backend, Arc::<StepTimer>::clone(&timer));
        (Rank::with_settings(comms, Box::new(backend), settings), timer)
    }

    /// Begins to measure a step of `rank`, and forgets what was measured before.
    pub fn begin_step(&self, rank: &Rank) {
        // Calls of the step before are no part of it.
        rank.finish_trace();
        let communicated = communicated(rank);
        *self.lock() = TimedStep { is_open: true, communicated, ..TimedStep::default() };
    }

    /// Ends the step, if one is measured.
    pub fn end_step(&self, rank: &Rank) {
        if !self.lock().is_open {
            return;
        }
        rank.finish_trace();
        let mut step = self.lock();
        step.is_open = false;
        step.communicated = communicated(rank).saturating_sub(step.communicated);
        for (kernels, [from, to]) in std::mem::take(&mut step.unread) {
            let Some(device) = &self.device else { continue };
            device.synchronize(&to);
            step.add_launch(&kernels, f64::from(device.elapsed_ms(&from, &to)) * 1e-3);
        }
    }

    /// Returns the times of the step that was ended last.
    pub fn take_step(&self) -> TimedStep {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, TimedStep> {
        self.step.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TimedStep {
    /// Adds a launch of several kernels, whose parts of the time are those of their bytes.
    fn add_launch(&mut self, kernels: &[Kernel], seconds: f64) {
        let part = |kernel: &Kernel| (kernel.bytes() + kernel.flops).max(1) as f64;
        let whole: f64 = kernels.iter().map(part).sum();
        for kernel in kernels {
            add(&mut self.kernels, *kernel, seconds * part(kernel) / whole);
        }
    }
}

impl KernelObserver for StepTimer {
    fn kernel_launched(&self, kernel: &Kernel) {
        let mut step = self.lock();
        if !step.is_open {
            return;
        }
        step.launched.push(*kernel);
        if let (Some(device), KernelOp::CopyIn | KernelOp::CopyOut) = (&self.device, kernel.op) {
            let stream = StreamKind::Transfer;
            step.start = Some(Start::Device(stream, device.record_timed_event(stream)));
        }
    }

    fn launch_begins(&self) {
        let mut step = self.lock();
        if step.is_open && step.launched.is_empty() {
            step.start = Some(match &self.device {
                Some(device) => {
                    let stream = StreamKind::Compute;
                    Start::Device(stream, device.record_timed_event(stream))
                }
                None => Start::Host(Instant::now()),
            });
        }
    }

    fn launch_ends(&self) {
        let end = Instant::now();
        let mut step = self.lock();
        let kernels = std::mem::take(&mut step.launched);
        match (step.start.take(), &self.device) {
            (Some(_), _) if kernels.is_empty() => {}
            (Some(Start::Host(start)), _) => step.add_launch(&kernels, (end - start).as_secs_f64()),
            (Some(Start::Device(stream, from)), Some(device)) => {
                step.unread.push((kernels, [from, device.record_timed_event(stream)]));
            }
            _ => {}
        }
    }
}

impl CallObserver for StepTimer {
    fn call_issued(&self, _: &Call, _: Option<u32>) -> usize {
        0
    }

    fn call_awaited(&self, _: usize) {}

    fn call_transferred(&self, transfer: &CallTransfer, duration: Duration) {
        let mut step = self.lock();
        if step.is_open {
            add(&mut step.calls, *transfer, duration.as_secs_f64());
        }
    }
}

fn communicated(rank: &Rank) -> Duration {
    rank.comms().times_by_axes().values().map(|times| times.exposed).sum()
}

fn add<K: std::hash::Hash + Eq>(times: &mut TimesOf<K>, key: K, seconds: f64) {
    let (count, sum) = times.entry(key).or_default();
    *count += 1;
    *sum += seconds;
}
