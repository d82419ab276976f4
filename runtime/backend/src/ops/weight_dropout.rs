//! Dropout of attention weights, drawn where the weights are computed.

/// Positions of consecutive indices in a global dim, with one gap, as the ranks of `cp` have: index `i` is at `first +
/// i`, and from `gap_at` on at `first + i + gap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GlobalPositions {
    /// Position of index 0.
    pub first: usize,
    /// First index after the gap; `usize::MAX` without one.
    pub gap_at: usize,
    /// Positions that are left out.
    pub gap: usize,
}

impl GlobalPositions {
    /// Creates positions without a gap.
    pub const fn consecutive(first: usize) -> GlobalPositions {
        GlobalPositions { first, gap_at: usize::MAX, gap: 0 }
    }

    /// Returns the position of an index.
    pub fn position(&self, index: usize) -> usize {
        self.first + index + if index >= self.gap_at { self.gap } else { 0 }
    }

    /// Returns the positions of the indices from `start` on.
    pub fn from_index(&self, start: usize) -> GlobalPositions {
        match self.gap_at.checked_sub(start) {
            Some(gap_at) if self.gap_at != usize::MAX && gap_at > 0 => {
                GlobalPositions { first: self.first + start, gap_at, gap: self.gap }
            }
            _ => GlobalPositions::consecutive(self.position(start)),
        }
    }
}

/// Dropout of attention weights after the softmax: a dropped weight counts in the sum of its row, but not in the
/// output, and the others are divided by `1 - rate` (Vaswani et al. 2017).
///
/// A weight is dropped if its random word is below `rate * 2^32`. The word depends on `key` and on global indices
/// alone, so it is the same for every sharding and in backward. It is one of four words, number `query / 8 % 2 * 2 +
/// key / 8 % 2` for global positions `query` and `key`, of the draw of Philox 4x32-10 with the counter `[unit(key),
/// unit(query), head, row]`, where `unit(position) = position / 16 * 8 + position % 8`. So one draw serves four
/// weights, at positions that differ by 8, which one thread of a GPU has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WeightDropout {
    /// Key of the random stream.
    pub key: u64,
    /// Probability of zero, in `0..1`.
    pub rate: f32,
    /// Rows of the global batch that the samples are.
    pub rows: GlobalPositions,
    /// Index of the first query head among the heads of all ranks.
    pub first_head: usize,
    /// Positions of the queries in their whole sequence.
    pub queries: GlobalPositions,
    /// Positions of the keys in their whole sequence.
    pub keys: GlobalPositions,
}

impl WeightDropout {
    /// Returns the number below which the words of dropped weights are.
    ///
    /// # Panics
    /// If the rate is not in `0..1`.
    pub fn threshold(&self) -> u32 {
        assert!((0.0..1.0).contains(&self.rate), "a rate of dropout is in 0..1, not {}", self.rate);
        (f64::from(self.rate) * 4_294_967_296.0) as u32
    }

    /// Returns the factor of the weights that are kept.
    pub fn kept_factor(&self) -> f32 {
        1.0 / (1.0 - self.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_from_an_index_on_are_the_same() {
        let gap = GlobalPositions { first: 3, gap_at: 4, gap: 10 };
        for positions in [gap, GlobalPositions::consecutive(7)] {
            for (start, index) in (0..8).flat_map(|start| (0..8).map(move |index| (start, index))) {
                let from = positions.from_index(start).position(index);
                assert_eq!(
                    from,
                    positions.position(start + index),
                    "{positions:?} {start} {index}"
                );
            }
        }
    }
}
