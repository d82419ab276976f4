//! The losses of each source of the data in a step.

use crate::data::{Batch, Dataset, MicroBatch};
use crate::layout::AxisSet;
use crate::tensor::Rank;

/// This rank's shares of the loss of each source, and of its targets: their sums over all ranks are those of the step.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceLosses {
    /// The sum of the losses, and the targets, of each source.
    shares: Vec<[f64; 2]>,
    /// Rows whose loss this rank has; 0 on all ranks if the loss of the model is none of single rows.
    rows: f64,
}

impl SourceLosses {
    /// Adds up the rows of a step by source; `row_shares` are the shares of the rows of each micro-batch, if this rank
    /// has them. Returns `None` for data of one source.
    pub fn of_step(
        rank: &Rank,
        (dataset, step): (&Dataset, u64),
        micro_batches: &[MicroBatch<'_>],
        row_shares: &[Option<Vec<f64>>],
    ) -> Option<SourceLosses> {
        let sources = dataset.sources().len();
        let mut own = SourceLosses { shares: vec![[0.0; 2]; sources], rows: 0.0 };
        // Ranks of other axes hold the same rows.
        let counts = rank.position(AxisSet::ALL.difference(AxisSet::DATA)) == 0;
        for (index, data) in micro_batches.iter().enumerate() {
            let losses = row_shares.get(index).and_then(Option::as_ref);
            let seq = data.targets.len().checked_div(data.rows.len()).unwrap_or(0);
            for (place, row) in data.rows.clone().enumerate() {
                let [sum, targets] = &mut own.shares[dataset.source_of_row(step, row)];
                *sum += losses.map_or(0.0, |losses| losses[place]);
                let of_row = &data.targets[place * seq..(place + 1) * seq];
                let counted = of_row.iter().filter(|target| **target != Batch::IGNORED).count();
                *targets += if counts { counted as f64 } else { 0.0 };
                own.rows += f64::from(u8::from(losses.is_some()));
            }
        }
        (sources > 1).then_some(own)
    }

    /// Returns the shares as numbers to be summed over all ranks.
    pub fn to_shares(&self) -> Vec<f64> {
        self.shares.as_flattened().iter().copied().chain([self.rows]).collect()
    }

    /// Returns the mean loss of each source, from the sums of [`to_shares`](Self::to_shares) over all ranks; `None` for
    /// sources without a target in the step.
    pub fn means_of_sums(sums: &[f64]) -> Vec<Option<f64>> {
        let [sources @ .., rows] = sums else { return Vec::new() };
        let (sources, _) = sources.as_chunks::<2>();
        let mean =
            |[sum, targets]: &[f64; 2]| (*rows > 0.0 && *targets > 0.0).then(|| sum / targets);
        sources.iter().map(mean).collect()
    }
}
