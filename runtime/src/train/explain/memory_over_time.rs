//! Memory over the time of a step.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::backend::Category;
use meshwright_sim::{EventKind, StepEvent, StepLog};

/// Parts of a step, each of which is shown by its fullest moment.
const PARTS: usize = 160;

/// The bytes in use on one rank over a step, at the fullest moment of each part of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct MemoryOverTime {
    /// Position of the rank along `pp`.
    pub position: usize,
    /// The middles of the parts, in the unit of the time of the step.
    pub at: Vec<f64>,
    /// Bytes of the categories in use.
    pub bytes: BTreeMap<&'static str, Vec<u64>>,
}

impl MemoryOverTime {
    /// Follows the buffers of a log. `time` returns the time of an event, of a step that takes `end`; times that fall
    /// are raised to those before. Offloaded buffers are not part of the memory of a device.
    pub fn of(
        log: &StepLog,
        position: usize,
        is_device: bool,
        end: f64,
        mut time: impl FnMut(usize, &StepEvent) -> f64,
    ) -> MemoryOverTime {
        let total = |bytes: &[u64; Category::ALL.len()]| -> u64 {
            let counted = bytes.iter().zip(Category::ALL);
            let counted =
                counted.filter(|(_, category)| !is_device || *category != Category::Offloaded);
            counted.map(|(bytes, _)| bytes).sum()
        };
        let mut live = log.live_at_start;
        let (mut fullest, mut now) = (live, 0.0_f64);
        let mut parts = Vec::with_capacity(PARTS);
        for (idx, event) in log.events.iter().enumerate() {
            now = now.max(time(idx, &event));
            let part = (now / end * PARTS as f64) as usize;
            while parts.len() < part.min(PARTS - 1) {
                parts.push(std::mem::replace(&mut fullest, live));
            }
            match event.kind {
                EventKind::Alloc { bytes, category, .. } => live[category as usize] += bytes,
                EventKind::Free { bytes, category, .. } => live[category as usize] -= bytes,
                _ => continue,
            }
            if total(&live) > total(&fullest) {
                fullest = live;
            }
        }
        while parts.len() < PARTS {
            parts.push(std::mem::replace(&mut fullest, live));
        }
        let of_category = |category: Category| {
            let bytes: Vec<u64> = parts.iter().map(|part| part[category as usize]).collect();
            (category.name(), bytes)
        };
        let shown = Category::ALL.into_iter();
        let shown = shown.filter(|category| !is_device || *category != Category::Offloaded);
        let is_used = |(_, bytes): &(&str, Vec<u64>)| bytes.iter().any(|bytes| *bytes > 0);
        MemoryOverTime {
            position,
            at: (0..PARTS).map(|part| (part as f64 + 0.5) / PARTS as f64 * end).collect(),
            bytes: shown.map(of_category).filter(is_used).collect(),
        }
    }

    /// Returns the bytes of all categories at each moment.
    pub fn totals(&self) -> Vec<u64> {
        let of_part = |part: usize| self.bytes.values().map(|bytes| bytes[part]).sum();
        (0..self.at.len()).map(of_part).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meshwright_sim::ContextId;

    /// A short peak is kept, and a part without events has the bytes before it.
    #[test]
    fn parts_show_their_fullest_moment() {
        let event = |kind| StepEvent { context: ContextId(0), kind };
        let category = Category::Activations;
        let change = [
            EventKind::Alloc { buffer: 0, bytes: 7, category },
            EventKind::Alloc { buffer: 1, bytes: 30, category },
            EventKind::Free { buffer: 1, bytes: 30, category },
            EventKind::Alloc { buffer: 2, bytes: 1, category },
        ];
        let mut log =
            StepLog { events: change.into_iter().map(event).collect(), ..StepLog::default() };
        log.live_at_start[Category::Parameters as usize] = 100;
        log.live_at_start[Category::Offloaded as usize] = 1000;
        // The last event is in the middle, and the one before goes back in time.
        let times = [0.0, 1.0, 0.5, 80.0];
        let memory = MemoryOverTime::of(&log, 3, true, 160.0, |idx, _| times[idx]);
        let totals = memory.totals();
        assert_eq!((totals[0], totals[1], totals[2], totals[79]), (107, 137, 107, 107));
        assert_eq!((totals[80], totals[159], totals.len()), (108, 108, PARTS));
        assert_eq!(memory.bytes["parameters"], vec![100; PARTS]);
        assert!(!memory.bytes.contains_key("offloaded"));
    }
}
