//! Batches: inputs and targets of a range of samples.

use std::ops::Range;

use super::{DataError, Order, Sampler, TokenFile};

/// The tokens of some samples, row after row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Inputs: rows x seq.
    pub tokens: Vec<u32>,
    /// For every input the token that follows it: rows x seq.
    pub targets: Vec<u32>,
    /// Number of samples.
    pub rows: usize,
}

/// Tokens and the order in which they are trained on.
#[derive(Debug)]
pub struct Dataset {
    file: TokenFile,
    sampler: Sampler,
}

impl Dataset {
    /// Samples of `seq` tokens from `file`, `batch` of them a step.
    ///
    /// # Errors
    /// A file that is shorter than one sample, `seq + 1` tokens.
    pub fn new(
        file: TokenFile,
        seq: usize,
        batch: usize,
        order: Order,
        seed: u64,
    ) -> Result<Dataset, DataError> {
        match Sampler::new(file.len(), seq, batch, order, seed) {
            Some(sampler) => Ok(Dataset { file, sampler }),
            None => {
                let (name, tokens) = (file.name().to_owned(), file.len());
                Err(DataError::TooShort { name, tokens, seq })
            }
        }
    }

    /// The rows `rows` of the global batch of `step` (from 0).
    ///
    /// # Errors
    /// A token beyond the vocabulary.
    pub fn rows(&self, step: u64, rows: Range<usize>) -> Result<Batch, DataError> {
        let seq = self.sampler.seq();
        let n_rows = rows.len();
        let mut tokens = vec![0; n_rows * seq];
        let mut targets = vec![0; n_rows * seq];
        let mut sample = vec![0; seq + 1];
        for ((row, tokens), targets) in
            rows.zip(tokens.chunks_exact_mut(seq)).zip(targets.chunks_exact_mut(seq))
        {
            self.file.read(self.sampler.start(step, row), &mut sample)?;
            tokens.copy_from_slice(&sample[..seq]);
            targets.copy_from_slice(&sample[1..]);
        }
        Ok(Batch { tokens, targets, rows: n_rows })
    }

    /// The tokens.
    pub fn file(&self) -> &TokenFile {
        &self.file
    }

    /// The order.
    pub fn sampler(&self) -> &Sampler {
        &self.sampler
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn ranks_that_share_a_batch_read_together_what_one_rank_reads() {
        let dataset = dataset(100, 4, 6).unwrap();
        let whole = dataset.rows(2, 0..6).unwrap();
        let parts: Vec<_> = [0..2, 2..4, 4..6].map(|rows| dataset.rows(2, rows).unwrap()).into();
        let tokens: Vec<_> = parts.iter().flat_map(|part| part.tokens.clone()).collect();
        let targets: Vec<_> = parts.iter().flat_map(|part| part.targets.clone()).collect();
        assert_eq!((tokens, targets), (whole.tokens, whole.targets));
    }

    #[test]
    fn data_shorter_than_a_sample_is_refused() {
        assert_eq!(dataset(5, 4, 1).unwrap().rows(9, 0..1).unwrap().targets, [1, 2, 3, 4]);
        let text = dataset(4, 4, 1).unwrap_err().to_string();
        assert!(text.contains("numbers has 4 tokens"), "{text}");
        assert!(text.contains("--seq 4 needs 5"), "{text}");
    }
}
