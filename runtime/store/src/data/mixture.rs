//! Mixtures: which source each row of a run comes from.

use std::sync::{Arc, Mutex, PoisonError};

use super::DataError;
use super::permutation::{Permutation, mix_bits};

/// Rows of a block: each block has the same number of rows of a source.
pub const BLOCK_ROWS: u64 = 4096;

/// A pure function from the number of a row in the run to its source and its row there.
///
/// Rows are divided into blocks of 4,096. The weights of the sources give their rows of each block, rounded by largest
/// remainder; a permutation keyed by seed and block mixes them. The rows of a source are taken in order. So counts are
/// exact in each block, nothing depends on the mesh, and a resumed run needs the number of its next row alone.
#[derive(Debug)]
pub struct Mixture {
    /// Rows of each source in a block.
    counts: Vec<u64>,
    seed: u64,
    /// The last block that was computed.
    last: Mutex<Option<(u64, Arc<[MixedRow]>)>>,
}

/// A row of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MixedRow {
    /// Index of the source.
    pub source: usize,
    /// Number of the row among the rows of the source in the run.
    pub row: u64,
}

impl Mixture {
    /// Creates the mixture of sources with these names and weights, of any sum.
    ///
    /// # Errors
    /// No source, weights that are not positive, and one below the share of a row in a block.
    pub fn new(sources: &[(&str, f64)], seed: u64) -> Result<Mixture, DataError> {
        let total: f64 = sources.iter().map(|(_, weight)| weight).sum();
        for (name, weight) in sources {
            if !(weight.is_finite() && *weight > 0.0) {
                return Err(DataError::Mixture(format!(
                    "the weight of {name} is {weight}; weights are positive numbers, such as 0.7 or 3"
                )));
            }
        }
        if !total.is_finite() {
            return Err(DataError::Mixture(
                "the weights are too large to be added; use smaller ones, such as 7 and 3"
                    .to_owned(),
            ));
        }
        let exact = |weight: &f64| weight / total * BLOCK_ROWS as f64;
        let mut counts: Vec<u64> = sources.iter().map(|(_, weight)| exact(weight) as u64).collect();
        let mut by_remainder: Vec<usize> = (0..sources.len()).collect();
        by_remainder.sort_by(|a, b| {
            let remainder = |of: usize| exact(&sources[of].1) - counts[of] as f64;
            remainder(*b).total_cmp(&remainder(*a)).then(a.cmp(b))
        });
        let missing = BLOCK_ROWS.saturating_sub(counts.iter().sum());
        by_remainder.iter().take(missing as usize).for_each(|source| counts[*source] += 1);
        if let Some(unused) = counts.iter().position(|count| *count == 0) {
            let (name, weight) = sources[unused];
            return Err(DataError::Mixture(format!(
                "the weight {weight} of {name} is less than 1 row in {BLOCK_ROWS} of all weights; give it a larger \
                 one, or leave it out"
            )));
        }
        Ok(Mixture { counts, seed, last: Mutex::new(None) })
    }

    /// Returns the source of row `number` of the run (from 0).
    pub fn row_at(&self, number: u64) -> MixedRow {
        if self.counts.len() == 1 {
            return MixedRow { source: 0, row: number };
        }
        self.block(number / BLOCK_ROWS)[(number % BLOCK_ROWS) as usize]
    }

    /// Returns the rows of each source among the first `rows` rows of the run.
    pub fn counts_of(&self, rows: u64) -> Vec<u64> {
        if self.counts.len() == 1 {
            return vec![rows];
        }
        let (block, rest) = (rows / BLOCK_ROWS, rows % BLOCK_ROWS);
        let mut counts: Vec<u64> = self.counts.iter().map(|count| block * count).collect();
        self.block(block)[..rest as usize].iter().for_each(|row| counts[row.source] += 1);
        counts
    }

    /// Returns the rows of each source in a block.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    fn block(&self, number: u64) -> Arc<[MixedRow]> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((block, rows)) if *block == number => Arc::clone(rows),
            _ => {
                let rows = self.mixed_block(number);
                *last = Some((number, Arc::clone(&rows)));
                rows
            }
        }
    }

    fn mixed_block(&self, number: u64) -> Arc<[MixedRow]> {
        let key = mix_bits(self.seed ^ mix_bits(number.wrapping_add(0x2545_f491_4f6c_dd1d)));
        let order = Permutation::new(BLOCK_ROWS, key);
        let ends: Vec<u64> = self
            .counts
            .iter()
            .scan(0, |end, count| {
                *end += count;
                Some(*end)
            })
            .collect();
        let mut next: Vec<u64> = self.counts.iter().map(|count| number * count).collect();
        let mixed = |index| {
            let place = order.permuted(index);
            let source = ends.partition_point(|end| *end <= place);
            let row = next[source];
            next[source] += 1;
            MixedRow { source, row }
        };
        (0..BLOCK_ROWS).map(mixed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mixture(weights: &[f64], seed: u64) -> Result<Mixture, DataError> {
        let names = ["web", "code", "books"];
        Mixture::new(&names.into_iter().zip(weights.iter().copied()).collect::<Vec<_>>(), seed)
    }

    #[test]
    fn counts_are_exact_in_each_block() {
        for (weights, counts) in [
            (&[1.0, 1.0, 1.0][..], &[1366, 1365, 1365][..]),
            (&[0.7, 0.3], &[2867, 1229]),
            (&[4095.0, 1.0], &[4095, 1]),
            (&[1e300, 1e300], &[2048, 2048]),
            (&[5.0], &[4096]),
        ] {
            let mixture = mixture(weights, 3).unwrap();
            assert_eq!(mixture.counts(), counts, "{weights:?}");
            for block in [0, 1, 77] {
                let mut found = vec![0; weights.len()];
                let rows = block * BLOCK_ROWS..(block + 1) * BLOCK_ROWS;
                rows.for_each(|number| found[mixture.row_at(number).source] += 1);
                assert_eq!(found, counts);
            }
        }
    }

    /// The rows of each source follow one another from its first one, whatever is asked for first.
    #[test]
    fn rows_of_a_source_are_taken_in_order() {
        let mixture = mixture(&[0.6, 0.3, 0.1], 1).unwrap();
        let mut next = [0; 3];
        for number in 0..3 * BLOCK_ROWS + 100 {
            if number % 1000 == 0 {
                assert_eq!(mixture.counts_of(number), next);
            }
            let MixedRow { source, row } = mixture.row_at(number);
            assert_eq!(row, next[source], "row {number}");
            next[source] += 1;
        }
        let other = super::tests::mixture(&[0.6, 0.3, 0.1], 1).unwrap();
        for number in (0..3 * BLOCK_ROWS).rev().step_by(97) {
            assert_eq!(other.row_at(number), mixture.row_at(number));
        }
    }

    #[test]
    fn the_seed_mixes_the_rows_of_a_block() {
        let sources = |seed: u64, block: u64| -> Vec<usize> {
            let mixture = mixture(&[0.5, 0.5], seed).unwrap();
            (0..64).map(|index| mixture.row_at(block * BLOCK_ROWS + index).source).collect()
        };
        assert_eq!(sources(1, 0), sources(1, 0));
        assert_ne!(sources(1, 0), sources(2, 0));
        assert_ne!(sources(1, 0), sources(1, 1));
        let of_first: usize = sources(1, 0).iter().sum();
        assert!((16..48).contains(&of_first), "{of_first} of 64 rows are of the second source");
    }

    #[test]
    fn unusable_weights_are_named() {
        for (weights, part) in [
            (&[1.0, 0.0][..], "the weight of code is 0;"),
            (&[-1.0, 2.0], "the weight of web is -1;"),
            (&[1.0, f64::NAN], "the weight of code is NaN;"),
            (&[f64::INFINITY, 1.0], "the weight of web is inf;"),
            (&[1e308, 1e308], "the weights are too large to be added"),
            (&[1.0, 1e-5], "the weight 0.00001 of code is less than 1 row in 4096"),
        ] {
            let text = mixture(weights, 0).unwrap_err().to_string();
            assert!(text.contains(part), "{text}");
        }
    }
}
