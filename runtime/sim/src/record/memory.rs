//! Memory over the time of a step, from the allocations in its log.

use std::collections::BTreeMap;

use meshwright_backend::Category;

use super::{EventKind, LiveBuffer, StepLog};

/// The first moment of a step at which its buffers take most memory.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryPeak {
    /// Index of the allocation that reaches it; `None` for the beginning of the step.
    pub event: Option<usize>,
    /// Bytes of all buffers.
    pub bytes: u64,
    /// The buffers, in the order of their allocation.
    pub buffers: Vec<LiveBuffer>,
}

impl StepLog {
    /// Returns the peak of the bytes in use, by category, in the order of [`Category::ALL`].
    pub fn peak_by_category(&self) -> [u64; Category::ALL.len()] {
        let mut live = self.live_at_start;
        let mut peak = live;
        for event in self.events.iter() {
            match event.kind {
                EventKind::Alloc { bytes, category, .. } => {
                    let index = category as usize;
                    live[index] += bytes;
                    peak[index] = peak[index].max(live[index]);
                }
                EventKind::Free { bytes, category, .. } => live[category as usize] -= bytes,
                _ => {}
            }
        }
        peak
    }

    /// Returns the peak of the bytes in use of the categories that `counts` selects, together.
    pub fn memory_peak(&self, counts: impl Fn(Category) -> bool) -> MemoryPeak {
        let at_start = self.live_at_start.iter().zip(Category::ALL);
        let mut live: u64 =
            at_start.filter(|(_, category)| counts(*category)).map(|(bytes, _)| bytes).sum();
        let (mut event, mut most) = (None, live);
        for (index, allocated) in self.events.iter().enumerate() {
            match allocated.kind {
                EventKind::Alloc { bytes, category, .. } if counts(category) => {
                    live += bytes;
                    if live > most {
                        (event, most) = (Some(index), live);
                    }
                }
                EventKind::Free { bytes, category, .. } if counts(category) => live -= bytes,
                _ => {}
            }
        }
        let buffers = self.buffers_after(event.map_or(0, |index| index + 1));
        let counted = buffers.into_values().filter(|buffer| counts(buffer.category));
        MemoryPeak { event, bytes: most, buffers: counted.collect() }
    }

    /// Returns the buffers in use after a number of events, by their numbers.
    fn buffers_after(&self, events: usize) -> BTreeMap<u32, LiveBuffer> {
        let at_start = self.buffers_at_start.iter().copied();
        let mut live: BTreeMap<u32, LiveBuffer> = (0..).zip(at_start).collect();
        for event in self.events.iter().take(events) {
            match event.kind {
                EventKind::Alloc { buffer, bytes, category } => {
                    live.insert(buffer, LiveBuffer { context: event.context, bytes, category });
                }
                EventKind::Free { buffer, .. } => {
                    live.remove(&buffer);
                }
                _ => {}
            }
        }
        live
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ContextId, StepEvent};
    use super::*;

    const CONTEXT: ContextId = ContextId(0);

    fn allocated(buffer: u32, bytes: u64, category: Category) -> StepEvent {
        StepEvent { context: CONTEXT, kind: EventKind::Alloc { buffer, bytes, category } }
    }

    fn freed(buffer: u32, bytes: u64, category: Category) -> StepEvent {
        StepEvent { context: CONTEXT, kind: EventKind::Free { buffer, bytes, category } }
    }

    /// Parameters of 100 bytes at the beginning, two activations together, and offloaded bytes alone.
    fn log() -> StepLog {
        use Category::{Activations, Offloaded, Parameters};
        let parameters = LiveBuffer { context: CONTEXT, bytes: 100, category: Parameters };
        let mut log = StepLog { buffers_at_start: vec![parameters], ..StepLog::default() };
        log.live_at_start[Parameters as usize] = 100;
        let events = [
            allocated(1, 30, Activations),
            allocated(2, 40, Activations),
            freed(1, 30, Activations),
            freed(2, 40, Activations),
            allocated(3, 500, Offloaded),
            freed(3, 500, Offloaded),
            allocated(4, 70, Activations),
        ];
        log.events = events.into_iter().collect();
        log
    }

    #[test]
    fn peaks_are_the_first_moment_of_most_bytes() {
        let peak = log().memory_peak(|category| category != Category::Offloaded);
        assert_eq!((peak.event, peak.bytes), (Some(1), 170));
        let bytes: Vec<u64> = peak.buffers.iter().map(|buffer| buffer.bytes).collect();
        assert_eq!(bytes, [100, 30, 40]);
        let peak = log().memory_peak(|_| true);
        assert_eq!((peak.event, peak.bytes), (Some(4), 600));
        let peak = log().memory_peak(|category| category == Category::Parameters);
        assert_eq!((peak.event, peak.bytes, peak.buffers.len()), (None, 100, 1));
    }

    #[test]
    fn categories_have_peaks_of_their_own() {
        let peaks = log().peak_by_category();
        let of = |category: Category| peaks[category as usize];
        assert_eq!(
            [Category::Parameters, Category::Activations, Category::Offloaded].map(of),
            [100, 70, 500]
        );
    }
}
