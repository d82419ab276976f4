//! The time that a rank waits for messages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use meshwright_backend::{Device, DeviceEvent, StreamKind};

/// The time that a rank waited for messages in a step, which is the bubble of the schedule as this rank sees it.
///
/// Idle time after the last computation of the rank is not part of it: the rank spends that time in the first
/// collective after the step.
#[derive(Default)]
pub struct MessageWait {
    host: Duration,
    /// Events of the compute stream before and after a wait.
    device: Vec<(Arc<dyn Device>, DeviceEvent, DeviceEvent)>,
}

impl MessageWait {
    /// The time waited: by the host, or by the compute stream of the device. Blocks the host until the last wait on the
    /// device is over.
    pub fn total(&self) -> Duration {
        if let Some((device, _, last)) = self.device.last() {
            device.synchronize(last);
        }
        self.total_of_completed()
    }

    /// Returns [`total`](Self::total) if the device has completed the last wait; in a CUDA graph, that of its latest
    /// replay.
    #[doc(hidden)]
    pub fn total_of_completed(&self) -> Duration {
        let on_device = self.device.iter().map(|(device, before, after)| {
            Duration::from_secs_f64(f64::from(device.elapsed_ms(before, after).max(0.0)) * 1e-3)
        });
        self.host + on_device.sum::<Duration>()
    }

    /// Returns the fraction of a step of this duration that the rank waited.
    pub fn share_of(&self, step: Duration) -> f64 {
        if step.is_zero() { 0.0 } else { self.total().as_secs_f64() / step.as_secs_f64() }
    }

    /// Measures a wait, after which the compute stream of `device` has waited instead of the host.
    pub(super) fn measure<T>(
        &mut self,
        device: Option<&Arc<dyn Device>>,
        wait: impl FnOnce() -> T,
    ) -> T {
        let before = device.map(|device| device.record_timed_event(StreamKind::Compute));
        let start = Instant::now();
        let result = wait();
        match device.zip(before) {
            Some((device, before)) => {
                let after = device.record_timed_event(StreamKind::Compute);
                self.device.push((Arc::clone(device), before, after));
            }
            None => self.host += start.elapsed(),
        }
        result
    }
}
