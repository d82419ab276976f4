//! Stochastic rounding of bf16 state of a unit: its random bits are keyed by parameter, and by the element in the whole
//! parameter. So a state is the same on every mesh and at every ZeRO stage.

use std::ops::Range;

use crate::context::block_index;
use crate::random;
use meshwright_backend::StateRounding;

use super::Unit;

impl Unit {
    /// Returns the rounding of a range of the flat buffers for state of this name. It differs from others by
    /// `counters`, and between replicas that train apart.
    pub(crate) fn state_rounding(
        &self,
        name: &str,
        range: &Range<usize>,
        counters: &[u64],
    ) -> Vec<StateRounding> {
        let seed = match self.rank.replica() {
            0 => self.rank.seed(),
            replica => random::subkey(self.rank.seed(), replica as u64),
        };
        let key_of = |path: &str| {
            let key = random::key(seed, &format!("{name} of {path}"));
            counters.iter().copied().fold(key, random::subkey)
        };
        let mut parts = Vec::new();
        // The gaps between parameters are zeros, and stay so with any bits.
        let gap = |from: usize, to: usize| StateRounding::contiguous(0, 0, to - from);
        let mut end = range.start;
        for param in self.entries() {
            let own = param.range();
            let (start, stop) = (own.start.max(range.start), own.end.min(range.end));
            if start >= stop {
                continue;
            }
            if end < start {
                parts.push(gap(end, start));
            }
            let elements = start - own.start..stop - own.start;
            let block = block_index(&param.extents);
            parts.extend(StateRounding::of_block(key_of(param.path()), &block, elements));
            end = stop;
        }
        if end < range.end {
            parts.push(gap(end, range.end));
        }
        parts
    }
}
