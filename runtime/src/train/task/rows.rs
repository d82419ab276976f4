//! Rows of a micro-batch as tensors and token ids.

use crate::data::{MicroBatch, RowStreams, StreamRows};
use crate::layout::Shape;
use crate::tensor::{Rank, Targets, Tensor, Tokens};

/// The rows of this rank of a micro-batch.
///
/// Tensors and ids of them have the global batch as first dim. Ranks that share rows, such as ranks of `tp`, have the
/// same ones; a dim that is declared `@ cp` is divided over the ranks of `cp`.
pub struct Rows<'a> {
    rank: &'a Rank,
    batch: usize,
    data: &'a MicroBatch<'a>,
}

impl<'a> Rows<'a> {
    /// Creates the rows of a micro-batch of a global batch of `batch` rows.
    pub(crate) fn new(rank: &'a Rank, batch: usize, data: &'a MicroBatch<'a>) -> Rows<'a> {
        Rows { rank, batch, data }
    }

    /// Returns the rank.
    pub fn rank(&self) -> &'a Rank {
        self.rank
    }

    /// Returns the sizes of the tokens of the global batch, of sequences of `seq` tokens.
    pub(crate) fn sizes(&self, seq: usize) -> [usize; 2] {
        [self.batch, seq]
    }

    /// Returns the rows of tokens of a language model.
    pub(crate) fn data(&self) -> &'a MicroBatch<'a> {
        self.data
    }

    /// Creates the ids or targets of a stream, shaped as the batch and the sizes of the stream.
    ///
    /// # Panics
    /// If there is no such stream, or it has another number of dims than `S`.
    #[track_caller]
    pub fn tokens<S: Shape>(&self, stream: &str) -> Tokens<S> {
        let (sizes, rows) = self.stream(stream);
        let StreamRows::Ids(ids) = rows else {
            panic!("the stream `{stream}` has values, which `tensor` returns")
        };
        Tokens::from_micro_batch(self.rank, &sizes, self.data.place, ids)
    }

    /// Creates the values of a stream, shaped as the batch and the sizes of the stream. No gradient flows into them.
    ///
    /// # Panics
    /// As [`tokens`](Self::tokens).
    #[track_caller]
    pub fn tensor<S: Shape>(&self, stream: &str) -> Tensor<S> {
        let (sizes, rows) = self.stream(stream);
        let StreamRows::Values(values) = rows else {
            panic!("the stream `{stream}` has ids, which `tokens` returns")
        };
        Tensor::from_micro_batch(self.rank, &sizes, self.data.place, values)
    }

    /// Returns 0 for each row of the data, and [`IGNORED`](Tokens::IGNORED) for rows that fill up the last batch of a
    /// validation: targets of a loss that has no others, such as a mean square.
    #[track_caller]
    pub fn counted<S: Shape>(&self) -> Targets<S> {
        self.tokens(RowStreams::COUNTED)
    }

    /// Returns the global sizes of a stream, and its rows.
    fn stream(&self, name: &str) -> (Vec<usize>, StreamRows<'a>) {
        let (streams, data) = self.data.streams.as_ref().expect("the rows of a task have streams");
        let (index, sizes) = streams.find(name);
        ([&[self.batch], sizes].concat(), data[index])
    }
}
