//! Check of the first batches: ranks compare the samples that they train on.

use crate::comm::{Blocks, Site};
use crate::data::{Batch, BatchHash, RankBatch, check_batches};
use crate::tensor::Rank;
use crate::train::Result;
use crate::train::micro_batch::data_position;

/// Checks that data ranks hold different rows of a step of `samples` samples, and that model-parallel ranks hold the
/// same rows. Every rank calls it with its own `batch`, and all get the same result.
pub fn check_first_batches(rank: &Rank, samples: usize, batch: &Batch) -> Result<()> {
    if !rank.makes_checks() {
        return Ok(());
    }
    let world = rank.comms().world();
    let mut own = vec![data_position(rank) as u32];
    own.extend(BatchHash::of_batch(batch).to_words());
    let mut all = vec![0u32; own.len() * world.size()];
    let blocks = Blocks::even(1, own.len(), world.size());
    let site = Site::new("check of the first batches");
    world.all_gather(&site, own.as_slice().into(), all.as_mut_slice().into(), &blocks)?;
    let of_rank = |(member, words): (usize, &[u32])| RankBatch {
        rank: world.members()[member],
        data_index: words[0] as usize,
        hash: BatchHash::from_words(&words[1..]),
    };
    let ranks: Vec<RankBatch> = all.chunks_exact(own.len()).enumerate().map(of_rank).collect();
    Ok(check_batches(samples, &ranks)?)
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::data::{Dataset, Order, TokenFile};
    use crate::layout::AxisSet;
    use crate::run_on;

    /// Checks the batches of ranks that read the rows of `sampler`, of steps of 8 samples.
    fn check(mesh: &str, sampler: impl Fn(&Rank) -> (u64, Range<usize>) + Sync) -> Result<()> {
        let text = (0..400u32).map(|n| (n % 7) as u8).collect();
        let dataset =
            Dataset::new(TokenFile::from_text(text, 256, "text")?, 7, 8, Order::Shuffled, 1)?;
        run_on(mesh, 0, |rank| {
            let (step, rows) = sampler(rank);
            check_first_batches(rank, 8, &dataset.rows(step, rows)?)
        })
        .map(drop)
    }

    fn rows(rank: &Rank) -> Range<usize> {
        let (index, of) = (rank.position(AxisSet::DATA), rank.degree_of(AxisSet::DATA));
        index * 8 / of..(index + 1) * 8 / of
    }

    #[test]
    fn every_mesh_passes_on_repetitive_text() {
        for mesh in ["1", "tp=2", "dp=2", "fsdp=4", "dp=2,tp=2", "dp=2,fsdp=2,tp=2", "dp=8"] {
            // 57 samples: step 7 spans two epochs.
            for step in [0, 1, 7, 123] {
                check(mesh, |rank| (step, rows(rank))).unwrap();
            }
        }
    }

    #[test]
    fn broken_samplers_are_found_by_rank() {
        let text = |outcome: Result<()>| outcome.unwrap_err().to_string();
        // Ignores the data index.
        let found = text(check("dp=2,tp=2", |_| (0, 0..4)));
        assert!(
            found.contains("4 of its samples are read more than once, on ranks 0 and 2"),
            "{found}"
        );
        // One row of overlap.
        let overlapping = |rank: &Rank| match rank.position(AxisSet::DATA) {
            0 => (0, 0..4),
            _ => (0, 3..7),
        };
        let found = text(check("dp=2", overlapping));
        assert!(
            found.contains("1 of its samples are read more than once, on ranks 0 and 1"),
            "{found}"
        );
        // Depends on the tensor-parallel index.
        let by_rank = |rank: &Rank| (0, 2 * rank.index()..2 * rank.index() + 2);
        let found = text(check("dp=2,tp=2", by_rank));
        assert!(found.contains("ranks 0 and 1 share part 0 of every batch"), "{found}");
        assert!(found.contains("read different samples"), "{found}");
        // One rank is a step ahead.
        let ahead = |rank: &Rank| (u64::from(rank.index() == 3), rows(rank));
        let found = text(check("dp=2,tp=2", ahead));
        assert!(found.contains("ranks 2 and 3 share part 1 of every batch"), "{found}");
    }
}
