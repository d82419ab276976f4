//! Batches: inputs and targets of a range of samples.

use std::ops::Range;

use super::streams::IGNORED;
use super::{RowStreams, SamplePosition, StreamData, StreamRows};

/// The tokens of some samples, row after row; or what a task makes of them, in `streams`.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// Inputs: rows x seq.
    pub tokens: Vec<u32>,
    /// The token that follows each input, or [`Batch::IGNORED`]: rows x seq.
    pub targets: Vec<u32>,
    /// The position in its row at which the document of each input begins, if rows hold documents: rows x seq.
    pub starts: Option<Vec<u32>>,
    /// The streams of a task, and their data, in place of tokens and targets.
    pub streams: Option<(RowStreams, Vec<StreamData>)>,
    /// Number of samples.
    pub rows: usize,
    /// Position of each sample in the data.
    pub places: Vec<SamplePosition>,
    /// The samples of each micro-batch, which follow one another, as rows of the global batch.
    pub micro_batches: Vec<Range<usize>>,
}

/// The samples of a micro-batch in a [`Batch`], from [`Batch::micro_batch`].
#[derive(Debug, Clone, PartialEq)]
pub struct MicroBatch<'a> {
    /// Inputs: rows x seq.
    pub tokens: &'a [u32],
    /// The token that follows each input, or [`Batch::IGNORED`]: rows x seq.
    pub targets: &'a [u32],
    /// The position in its row at which the document of each input begins, if rows hold documents: rows x seq.
    pub starts: Option<&'a [u32]>,
    /// The streams of a task, and their data, in place of tokens and targets.
    pub streams: Option<(&'a RowStreams, Vec<StreamRows<'a>>)>,
    /// The samples as rows of the global batch.
    pub rows: Range<usize>,
    /// Index of the micro-batch, and the number of micro-batches.
    pub place: [usize; 2],
}

impl Batch {
    /// A target that does not count in losses, as [`Targets::IGNORED`](meshwright_core::tensor::Targets::IGNORED).
    pub const IGNORED: u32 = IGNORED;

    /// Returns a batch of rows of a task whose ids, targets and values are 0, as a dry run needs it.
    #[doc(hidden)]
    pub fn of_zeros(streams: &RowStreams, micro_batches: Vec<Range<usize>>) -> Batch {
        let rows = micro_batches.iter().map(Range::len).sum();
        let mut data = streams.filling_rows(rows);
        for stream in &mut data {
            if let StreamData::Ids(ids) = stream {
                ids.fill(0);
            }
        }
        let (tokens, targets, places) = (Vec::new(), Vec::new(), Vec::new());
        let streams = Some((streams.clone(), data));
        Batch { tokens, targets, starts: None, streams, rows, places, micro_batches }
    }

    /// Returns the samples of micro-batch `index`.
    ///
    /// # Panics
    /// If there are not that many micro-batches: a fault of the calling code.
    pub fn micro_batch(&self, index: usize) -> MicroBatch<'_> {
        let rows = self.micro_batches[index].clone();
        let before: usize = self.micro_batches[..index].iter().map(Range::len).sum();
        let seq = self.tokens.len().checked_div(self.rows).unwrap_or(0);
        let elements = before * seq..(before + rows.len()) * seq;
        MicroBatch {
            tokens: &self.tokens[elements.clone()],
            targets: &self.targets[elements.clone()],
            starts: self.starts.as_ref().map(|starts| &starts[elements]),
            streams: self
                .streams
                .as_ref()
                .map(|(streams, data)| (streams, streams.rows(data, before..before + rows.len()))),
            rows,
            place: [index, self.micro_batches.len()],
        }
    }
}

/// The rows of a global batch of `rows` rows that data rank `rank` of `ranks` trains on: its part of each of `count`
/// micro-batches. So a micro-batch has the same rows on every mesh, which matters where a number follows from all rows
/// of a micro-batch together, as a load-balancing loss does.
///
/// ```
/// use meshwright::data::rows_of_rank;
///
/// assert_eq!(rows_of_rank(8, 2, 0, 1), [0..4, 4..8]);
/// assert_eq!(rows_of_rank(8, 2, 0, 2), [0..2, 4..6]);
/// assert_eq!(rows_of_rank(8, 2, 1, 2), [2..4, 6..8]);
/// ```
///
/// # Panics
/// If there are no ranks: a fault of the calling code.
pub fn rows_of_rank(rows: usize, count: usize, rank: usize, ranks: usize) -> Vec<Range<usize>> {
    let part = |index: usize| {
        let Range { start, end } = micro_batch_rows(rows, count, index);
        let before = |rank: usize| start + rank * (end - start) / ranks;
        before(rank)..before(rank + 1)
    };
    (0..count).map(part).collect()
}

/// The rows of micro-batch `index` when a global batch of `rows` rows is split, in order, into `count`: row `r` is in
/// micro-batch `r * count / rows`, rounded down. Sizes differ by at most one row.
///
/// ```
/// use meshwright::data::micro_batch_rows;
///
/// assert_eq!([0, 1, 2].map(|index| micro_batch_rows(6, 3, index)), [0..2, 2..4, 4..6]);
/// assert_eq!([0, 1].map(|index| micro_batch_rows(5, 2, index)), [0..3, 3..5]);
/// ```
///
/// # Panics
/// If `index` is not below `count`: a fault of the calling code.
pub fn micro_batch_rows(rows: usize, count: usize, index: usize) -> Range<usize> {
    assert!(index < count, "micro-batch {index} of {count}");
    (index * rows).div_ceil(count)..((index + 1) * rows).div_ceil(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{DataError, Dataset, Order, TokenFile};

    fn dataset(len: usize, seq: usize, batch: usize) -> Result<Dataset, DataError> {
        let text = (0..len).map(|i| i as u8).collect();
        let file = TokenFile::from_text(text, 256, "numbers")?;
        Dataset::new(file, seq, batch, Order::Sequential, 0)
    }

    #[test]
    fn targets_are_the_next_tokens() {
        let batch = dataset(100, 4, 3).unwrap().rows(1, 0..2).unwrap();
        assert_eq!(batch.rows, 2);
        assert_eq!(batch.tokens, [12, 13, 14, 15, 16, 17, 18, 19]);
        assert_eq!(batch.targets, [13, 14, 15, 16, 17, 18, 19, 20]);
    }

    #[test]
    fn ranks_together_read_what_one_rank_reads() {
        let dataset = dataset(100, 4, 6).unwrap();
        let whole = dataset.rows(2, 0..6).unwrap();
        let parts: Vec<_> = [0..2, 2..4, 4..6].map(|rows| dataset.rows(2, rows).unwrap()).into();
        let tokens: Vec<_> = parts.iter().flat_map(|part| part.tokens.clone()).collect();
        let targets: Vec<_> = parts.iter().flat_map(|part| part.targets.clone()).collect();
        assert_eq!((tokens, targets), (whole.tokens, whole.targets));
    }

    #[test]
    fn ranks_and_micro_batches_cover_the_batch() {
        let batch = 12;
        for order in [Order::Sequential, Order::Shuffled] {
            // 33 samples: every third step spans two epochs.
            let text = (0..100).collect();
            let file = TokenFile::from_text(text, 256, "numbers").unwrap();
            let dataset = Dataset::new(file, 3, batch, order, 4).unwrap();
            for (readers, micro_batches) in
                [(1, 1), (1, 5), (2, 3), (3, 4), (4, 2), (6, 3), (12, 2)]
            {
                for step in [0, 2, 5, 1000] {
                    let whole = dataset.rows(step, 0..batch).unwrap();
                    let (mut tokens, mut targets) = (Vec::<u32>::new(), Vec::<u32>::new());
                    let mut places = Vec::<SamplePosition>::new();
                    let read = |reader| {
                        let rows = rows_of_rank(batch, micro_batches, reader, readers);
                        dataset.micro_batches(step, &rows).unwrap()
                    };
                    let own: Vec<Batch> = (0..readers).map(read).collect();
                    for index in 0..micro_batches {
                        for own in &own {
                            let part = own.micro_batch(index);
                            tokens.extend(part.tokens);
                            targets.extend(part.targets);
                            assert_eq!(
                                part.tokens,
                                dataset.rows(step, part.rows.clone()).unwrap().tokens
                            );
                            places.extend(&dataset.rows(step, part.rows).unwrap().places);
                        }
                    }
                    assert_eq!(own.iter().map(|own| own.places.len()).sum::<usize>(), batch);
                    assert_eq!(tokens, whole.tokens, "{readers} x {micro_batches}");
                    assert_eq!((targets, &places), (whole.targets, &whole.places));
                    places.sort_unstable();
                    places.dedup();
                    assert_eq!(places.len(), batch, "every row is another sample");
                }
            }
        }
    }

    #[test]
    fn rows_belong_to_micro_batches_by_their_formula() {
        for rows in 0..20 {
            for count in 1..8 {
                for index in 0..count {
                    let found: Vec<_> = micro_batch_rows(rows, count, index).collect();
                    let expected: Vec<_> =
                        (0..rows).filter(|r| r * count / rows == index).collect();
                    assert_eq!(found, expected, "{index} of {count}, {rows} rows");
                }
            }
        }
    }

    #[test]
    fn data_shorter_than_a_sample_is_refused() {
        assert_eq!(dataset(5, 4, 1).unwrap().rows(9, 0..1).unwrap().targets, [1, 2, 3, 4]);
        let text = dataset(4, 4, 1).unwrap_err().to_string();
        assert!(text.contains("numbers has 4 tokens"), "{text}");
        assert!(text.contains("--seq 4 needs 5"), "{text}");
    }
}
