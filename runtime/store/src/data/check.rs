//! Check of the batches that ranks hold, by hashes in the first step of a run.

use std::collections::BTreeMap;

use xxhash_rust::xxh3::xxh3_64;

use super::{Batch, DataError};

/// A hash of the samples that a rank has read, of a few bytes per row.
///
/// The place of a row (epoch and first token) and its ids are hashed apart. A text may well hold the same passage
/// twice, so equal ids prove nothing; but no position occurs twice in a run, even where a step is longer than the
/// data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchHash {
    rows: Vec<RowHash>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RowHash {
    place: u64,
    ids: u64,
}

impl BatchHash {
    /// Words that [`BatchHash::to_words`] makes of a row.
    const WORDS_PER_ROW: usize = 4;

    /// Computes the XXH3 of position, inputs, targets and document starts of every row of `batch`.
    pub fn of_batch(batch: &Batch) -> BatchHash {
        let seq = batch.tokens.len().checked_div(batch.rows).unwrap_or(0);
        let hash_row = |(row, place): (usize, &super::SamplePosition)| {
            let of_row = row * seq..(row + 1) * seq;
            let starts = batch.starts.as_ref().map_or(&[][..], |starts| &starts[of_row.clone()]);
            let ids = [&batch.tokens[of_row.clone()], &batch.targets[of_row], starts].concat();
            let mut ids: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
            if let Some((streams, data)) = &batch.streams {
                streams.add_bytes(data, row, &mut ids);
            }
            let place = [place.epoch, place.start as u64].map(u64::to_le_bytes).concat();
            RowHash { place: xxh3_64(&place), ids: xxh3_64(&ids) }
        };
        BatchHash { rows: batch.places.iter().enumerate().map(hash_row).collect() }
    }

    /// Returns the hashes as a message between ranks: four words per row.
    pub fn to_words(&self) -> Vec<u32> {
        let halves = |bits: u64| [(bits >> 32) as u32, bits as u32];
        self.rows.iter().flat_map(|row| [halves(row.place), halves(row.ids)].concat()).collect()
    }

    /// Reads the words of [`BatchHash::to_words`]; words of an incomplete last row are ignored.
    pub fn from_words(words: &[u32]) -> BatchHash {
        let (rows, _) = words.as_chunks::<{ BatchHash::WORDS_PER_ROW }>();
        let whole = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let row = |[a, b, c, d]: &[u32; 4]| RowHash { place: whole(*a, *b), ids: whole(*c, *d) };
        BatchHash { rows: rows.iter().map(row).collect() }
    }
}

/// The batch of one rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankBatch {
    /// The rank.
    pub rank: usize,
    /// Position of the rank along the data axes: which part of every batch it trains on.
    pub data_index: usize,
    /// Hash of its samples.
    pub hash: BatchHash,
}

/// Checks the batches that all ranks hold in one step of `batch` samples: ranks with the same data index hold the same
/// rows, no sample is held by ranks with different ones or twice by one of them, and none is missing.
///
/// ```
/// use meshwright::data::{BatchHash, Dataset, Order, RankBatch, TokenFile, check_batches};
///
/// let file = TokenFile::from_text(vec![b'a'; 100], 256, "letters")?;
/// let dataset = Dataset::new(file, 4, 2, Order::Sequential, 0)?;
/// let hash = |row| Ok::<_, meshwright::data::DataError>(BatchHash::of_batch(&dataset.rows(0, row..row + 1)?));
/// let [first, second] = [hash(0)?, hash(1)?];
/// let rank = |rank, hash: &BatchHash| RankBatch { rank, data_index: rank, hash: hash.clone() };
///
/// check_batches(2, &[rank(0, &first), rank(1, &second)])?;
/// assert!(check_batches(2, &[rank(0, &first), rank(1, &first)]).is_err());
/// # Ok::<_, meshwright::data::DataError>(())
/// ```
///
/// # Errors
/// [`DataError::RanksDiffer`], [`DataError::SameSamples`] and [`DataError::MissingSamples`] name the ranks and the
/// likely cause.
pub fn check_batches(batch: usize, ranks: &[RankBatch]) -> Result<(), DataError> {
    let mut parts: BTreeMap<usize, Vec<&RankBatch>> = BTreeMap::new();
    for rank in ranks {
        parts.entry(rank.data_index).or_default().push(rank);
    }
    for (data_index, part) in &parts {
        check_part(*data_index, part)?;
    }
    let first_of_parts: Vec<&RankBatch> = parts.values().map(|part| part[0]).collect();
    check_apart(&first_of_parts)?;
    let held = first_of_parts.iter().map(|rank| rank.hash.rows.len()).sum();
    if held == batch {
        Ok(())
    } else {
        Err(DataError::MissingSamples { held, batch, parts: parts.len() })
    }
}

/// The ranks of one part hold the same rows.
fn check_part(data_index: usize, part: &[&RankBatch]) -> Result<(), DataError> {
    let differ = |same: &dyn Fn(&BatchHash, &BatchHash) -> bool| -> Vec<usize> {
        part.iter().filter(|rank| !same(&rank.hash, &part[0].hash)).map(|rank| rank.rank).collect()
    };
    let places = |hash: &BatchHash| hash.rows.iter().map(|row| row.place).collect::<Vec<_>>();
    let others = differ(&|a, b| places(a) == places(b));
    let (others, what, cause) = if others.is_empty() {
        (
            differ(&|a, b| a == b),
            "different tokens in the same samples",
            "their copies of the data differ",
        )
    } else {
        (others, "different samples", "their step, seed, order or data length differs")
    };
    if others.is_empty() {
        return Ok(());
    }
    let ranks = std::iter::once(part[0].rank).chain(others).collect();
    Err(DataError::RanksDiffer { ranks, data_index, what, cause })
}

/// Checks that no sample is in two parts, each represented by one rank.
fn check_apart(parts: &[&RankBatch]) -> Result<(), DataError> {
    let mut readers: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for part in parts {
        for row in &part.hash.rows {
            readers.entry(row.place).or_default().push(part.rank);
        }
    }
    readers.retain(|_, ranks| ranks.len() > 1);
    if readers.is_empty() {
        return Ok(());
    }
    let samples = readers.len();
    let mut ranks: Vec<usize> = readers.into_values().flatten().collect();
    ranks.sort_unstable();
    ranks.dedup();
    Err(DataError::SameSamples { ranks, samples })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Dataset, Order, TokenFile};

    /// Batches of 4, in order, from a text of one letter, so that all samples look alike.
    fn dataset(samples: usize) -> Dataset {
        let file = TokenFile::from_text(vec![b'a'; 3 * samples + 1], 256, "letters").unwrap();
        Dataset::new(file, 3, 4, Order::Sequential, 0).unwrap()
    }

    fn rank(rank: usize, data_index: usize, batch: &Batch) -> RankBatch {
        RankBatch { rank, data_index, hash: BatchHash::of_batch(batch) }
    }

    #[test]
    fn equal_text_in_different_places_is_no_alarm() {
        let dataset = dataset(10);
        for step in 0..9 {
            let [a, b] = [0..2, 2..4].map(|rows| dataset.rows(step, rows).unwrap());
            assert_eq!(a.tokens, b.tokens);
            check_batches(4, &[rank(0, 0, &a), rank(1, 0, &a), rank(2, 1, &b)]).unwrap();
        }
    }

    #[test]
    fn a_step_longer_than_the_data_is_no_alarm() {
        // Both read sample 0, in different epochs.
        let dataset = dataset(1);
        let parts = [0, 1, 2, 3].map(|row| dataset.rows(0, row..row + 1).unwrap());
        let ranks: Vec<_> = parts.iter().enumerate().map(|(i, part)| rank(i, i, part)).collect();
        check_batches(4, &ranks).unwrap();
    }

    #[test]
    fn every_fault_names_its_ranks() {
        let dataset = dataset(10);
        let [a, b] = [0..2, 2..4].map(|rows| dataset.rows(0, rows).unwrap());
        let message = |ranks: &[RankBatch]| check_batches(4, ranks).unwrap_err().to_string();
        let text = message(&[rank(0, 0, &a), rank(1, 0, &a), rank(4, 1, &a), rank(5, 1, &a)]);
        assert!(
            text.contains("2 of its samples are read more than once, on ranks 0 and 4"),
            "{text}"
        );
        let text = message(&[rank(0, 0, &a), rank(1, 0, &b), rank(2, 0, &b)]);
        assert!(text.contains("ranks 0, 1 and 2 share part 0"), "{text}");
        assert!(text.contains("read different samples; their step"), "{text}");
        let mut other = a.clone();
        other.targets[5] += 1;
        let text = message(&[rank(0, 0, &a), rank(1, 0, &other), rank(2, 1, &b)]);
        assert!(text.contains("ranks 0 and 1 share part 0"), "{text}");
        assert!(text.contains("different tokens in the same samples; their copies"), "{text}");
        let text = message(&[rank(0, 0, &a), rank(1, 0, &a)]);
        assert!(text.contains("read 2 of 4 samples, as 1 parts of the batch"), "{text}");
        let mut twice = a.clone();
        twice.places[1] = twice.places[0];
        let text = message(&[rank(0, 0, &twice), rank(1, 1, &b)]);
        assert!(text.contains("1 of its samples are read more than once, on rank 0;"), "{text}");
    }

    #[test]
    fn hashes_survive_the_message() {
        let hash = BatchHash::of_batch(&dataset(10).rows(3, 1..4).unwrap());
        assert_eq!(hash.to_words().len(), 12);
        assert_eq!(BatchHash::from_words(&hash.to_words()), hash);
    }
}
