//! Rows that a program makes.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use super::{Batch, DataError};

/// Rows of tokens that a program makes, instead of files: samples of a task, or of a format of its own.
///
/// A row follows from its number alone, as ranks of other axes ask for the same rows, and a resumed run for those that
/// a stopped one would have read. Ranks call the source from several threads. `--order`, `--seed` and `--batch` choose
/// which rows a step has, as for files.
///
/// ```
/// use meshwright::data::{Batch, RowSource};
///
/// /// Rows of digits that are repeated after a separator; only the repetition is learned.
/// struct Repetition;
///
/// impl RowSource for Repetition {
///     fn name(&self) -> &str {
///         "repetition"
///     }
///
///     fn rows(&self) -> u64 {
///         10_000
///     }
///
///     fn fingerprint(&self) -> String {
///         "repetition 1".to_owned()
///     }
///
///     fn write_row(
///         &self,
///         row: u64,
///         tokens: &mut [u32],
///         targets: &mut [u32],
///     ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
///         let digits = tokens.len() / 2;
///         let digit = |at: usize| (row.wrapping_mul(0x9e37_79b9) >> (at % digits)) as u32 % 10;
///         for at in 0..tokens.len() {
///             tokens[at] = digit(at);
///             targets[at] = if at + 1 < digits { Batch::IGNORED } else { digit(at + 1) };
///         }
///         Ok(())
///     }
/// }
/// ```
pub trait RowSource: Send + Sync {
    /// Returns the name in messages, metrics and checkpoints.
    fn name(&self) -> &str;

    /// Returns the number of rows of an epoch, at least one.
    fn rows(&self) -> u64;

    /// Returns a text that differs for other rows, such as a hash or a version: a run is refused to resume with
    /// another one.
    fn fingerprint(&self) -> String;

    /// Writes the inputs of row `row`, below [`rows`](Self::rows), and the target of each of them, or
    /// [`Batch::IGNORED`]. Both have as many elements as a sequence of the run.
    ///
    /// # Errors
    /// A row that cannot be made. The run ends after the step before, as for a file that cannot be read.
    fn write_row(
        &self,
        row: u64,
        tokens: &mut [u32],
        targets: &mut [u32],
    ) -> Result<(), Box<dyn Error + Send + Sync>>;
}

/// Rows that a program makes, for a vocabulary.
#[derive(Clone)]
pub struct MadeRows {
    source: Arc<dyn RowSource>,
    vocab: usize,
}

impl MadeRows {
    /// Creates the rows of `source` for a model with `vocab` token ids.
    pub fn new(source: Arc<dyn RowSource>, vocab: usize) -> MadeRows {
        MadeRows { source, vocab }
    }

    /// Returns the source.
    pub(super) fn source(&self) -> &dyn RowSource {
        &*self.source
    }

    /// Writes a row.
    ///
    /// # Errors
    /// As [`RowSource::write_row`], and an id beyond the vocabulary.
    pub(super) fn write_row(
        &self,
        row: u64,
        tokens: &mut [u32],
        targets: &mut [u32],
    ) -> Result<(), DataError> {
        let failed = |problem| {
            let name = self.source.name().to_owned();
            DataError::MadeRow { name, row, problem }
        };
        self.source.write_row(row, tokens, targets).map_err(|error| failed(error.to_string()))?;
        let is_beyond = |id: &&u32| **id as usize >= self.vocab;
        let of_targets = targets.iter().filter(|target| **target != Batch::IGNORED);
        match tokens.iter().chain(of_targets).find(is_beyond) {
            Some(id) => Err(failed(format!(
                "token id {id} is beyond the vocabulary of {}; give a larger --vocab, or other ids",
                self.vocab
            ))),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for MadeRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MadeRows").field(&self.source.name()).finish()
    }
}
