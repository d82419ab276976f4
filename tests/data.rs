//! Synthetic training data as a function of the global position, so that every mesh reads the same samples.

use std::ops::Range;

use meshwright::data::rows_of_rank;
use meshwright::layout::{AxisSet, Shape};
use meshwright::random;
use meshwright::tensor::{Rank, Targets, Tensor, Tokens};

/// The index of a micro-batch.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    /// The step, from 0.
    pub step: u64,
    /// The micro-batch, from 0.
    pub index: usize,
    /// Micro-batches per step.
    pub count: usize,
}

/// A global batch of token sequences.
#[derive(Debug, Clone, Copy)]
pub struct TokenData {
    /// Sequences over all ranks.
    pub batch: usize,
    /// Tokens of a sequence.
    pub seq: usize,
    /// Number of token ids.
    pub vocab: usize,
    /// True to ignore targets: none of sequence 0, a prefix of sequence 1, every third of sequence 2, all of sequence
    /// 3, and so on, so that data ranks count different numbers of tokens, some none.
    pub masked: bool,
}

/// Batches of training steps.
pub trait Batches: Copy + Sync {
    /// Tokens of a sequence.
    fn seq(&self) -> usize;

    /// Returns this rank's tokens and targets of a micro-batch.
    fn block<S: Shape>(&self, rank: &Rank, turn: Turn) -> (Tokens<S>, Targets<S>);
}

impl Batches for TokenData {
    fn seq(&self) -> usize {
        self.seq
    }

    fn block<S: Shape>(&self, rank: &Rank, turn: Turn) -> (Tokens<S>, Targets<S>) {
        TokenData::block(self, rank, turn)
    }
}

/// The same tokens and targets, in rows of several documents: one, some that begin at the borders of chunks of `cp`,
/// some that do not, and many of one token.
#[derive(Debug, Clone, Copy)]
pub struct PackedData(pub TokenData);

impl PackedData {
    /// Returns the start of the document of each token of a row.
    pub fn starts(&self, row: usize) -> Vec<u32> {
        let quarter = (self.0.seq / 4).max(1);
        let begins = |position: usize| match row % 4 {
            0 => false,
            1 => position.is_multiple_of(quarter),
            2 => position % 5 == 3,
            _ => position < quarter + 1 || position == 2 * quarter + 1,
        };
        let mut start = 0;
        let start_of = |position| {
            if begins(position) {
                start = position as u32;
            }
            start
        };
        (0..self.0.seq).map(start_of).collect()
    }
}

impl Batches for PackedData {
    fn seq(&self) -> usize {
        self.0.seq
    }

    fn block<S: Shape>(&self, rank: &Rank, turn: Turn) -> (Tokens<S>, Targets<S>) {
        let (tokens, targets) = self.0.block(rank, turn);
        let starts: Vec<u32> = self.0.rows(rank, turn).flat_map(|row| self.starts(row)).collect();
        (tokens.with_documents(&starts), targets)
    }
}

impl TokenData {
    /// Returns the rows of the global batch that this rank has of a micro-batch.
    fn rows(&self, rank: &Rank, turn: Turn) -> Range<usize> {
        let (position, ranks) = (rank.position(AxisSet::DATA), rank.degree_of(AxisSet::DATA));
        rows_of_rank(self.batch, turn.count, position, ranks).swap_remove(turn.index)
    }

    /// Returns this rank's tokens and targets of a micro-batch.
    pub fn block<S: Shape>(&self, rank: &Rank, turn: Turn) -> (Tokens<S>, Targets<S>) {
        let rows = self.rows(rank, turn);
        let (step, seq) = (turn.step, self.seq);
        let row_positions =
            || rows.clone().flat_map(move |row| (0..seq).map(move |position| (row, position)));
        let token = |row: usize, position: usize| {
            let key = random::subkey(random::key(step, "tokens"), (row * 1000 + position) as u64);
            (key % self.vocab as u64) as u32
        };
        let tokens: Vec<u32> =
            row_positions().map(|(row, position)| token(row, position)).collect();
        let targets: Vec<u32> = row_positions()
            .map(|(row, position)| {
                if self.masked && is_ignored(row, position, self.seq) {
                    Targets::<S>::IGNORED
                } else {
                    token(row, position + 1)
                }
            })
            .collect();
        let sizes = [self.batch, self.seq];
        let place = [turn.index, turn.count];
        let from_rows = |ids: &[u32]| Tokens::from_micro_batch(rank, &sizes, place, ids);
        (from_rows(&tokens), from_rows(&targets))
    }
}

fn is_ignored(row: usize, position: usize, seq: usize) -> bool {
    match row % 4 {
        0 => false,
        1 => position < seq / 2,
        2 => position.is_multiple_of(3),
        _ => true,
    }
}

/// Returns a tensor of numbers in [-1, 1), as a function of `name` and the index in the global tensor.
pub fn numbers<S: Shape>(rank: &Rank, name: &str, sizes: &[usize]) -> Tensor<S> {
    let key = random::key(0, name);
    Tensor::from_fn(rank, sizes, |index| {
        let key = index.iter().fold(key, |key, position| random::subkey(key, *position as u64));
        (key >> 40) as f32 / (1 << 23) as f32 - 1.0
    })
}
