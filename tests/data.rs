//! Synthetic training data as a function of the global position, so that every mesh reads the same samples.

use meshwright::layout::{AxisSet, Shape};
use meshwright::random;
use meshwright::tensor::{Extent, Rank, Targets, Tensor, Tokens};

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

impl TokenData {
    /// Returns this rank's tokens and targets of a micro-batch.
    pub fn block<S: Shape>(&self, rank: &Rank, turn: Turn) -> (Tokens<S>, Targets<S>) {
        let own = data_extent(self.batch, rank);
        let part = Extent::part(own.local, turn.index, turn.count);
        let first = own.offset + part.offset;
        let rows = first..first + part.local;
        let step = turn.step;
        let sequence = Extent::of(&S::DIMS[1], self.seq, rank);
        let places =
            || rows.clone().flat_map(|row| sequence.positions().map(move |place| (row, place)));
        let token = |row: usize, position: usize| {
            let key = random::subkey(random::key(step, "tokens"), (row * 1000 + position) as u64);
            (key % self.vocab as u64) as u32
        };
        let tokens: Vec<u32> = places().map(|(row, position)| token(row, position)).collect();
        let targets: Vec<u32> = places()
            .map(|(row, position)| {
                if self.masked && is_ignored(row, position, self.seq) {
                    Targets::<S>::IGNORED
                } else {
                    token(row, position + 1)
                }
            })
            .collect();
        let sizes = [self.batch, self.seq];
        let from_rows = |ids: &[u32]| Tokens::from_rows(rank, &sizes, part.offset, ids);
        (from_rows(&tokens), from_rows(&targets))
    }
}

/// A source of the micro-batches of a model.
pub trait BlockSource: Copy + Sync {
    /// Returns the tokens of a sequence.
    fn seq(&self) -> usize;
    /// Returns this rank's tokens and targets of a micro-batch.
    fn block<S: Shape>(&self, rank: &Rank, turn: Turn) -> (Tokens<S>, Targets<S>);
}

impl BlockSource for TokenData {
    fn seq(&self) -> usize {
        self.seq
    }

    fn block<S: Shape>(&self, rank: &Rank, turn: Turn) -> (Tokens<S>, Targets<S>) {
        TokenData::block(self, rank, turn)
    }
}

/// [`TokenData`] whose rows hold documents: one, a few of different lengths, or many of up to five tokens.
#[derive(Debug, Clone, Copy)]
pub struct PackedData(pub TokenData);

impl BlockSource for PackedData {
    fn seq(&self) -> usize {
        self.0.seq
    }

    fn block<S: Shape>(&self, rank: &Rank, turn: Turn) -> (Tokens<S>, Targets<S>) {
        let (tokens, targets) = self.0.block::<S>(rank, turn);
        let rows = tokens.local_extents()[0];
        let rows = rows.offset..rows.offset + rows.local;
        let starts: Vec<u32> = rows.flat_map(|row| document_starts(row, self.0.seq)).collect();
        (tokens.with_documents(&starts), targets)
    }
}

/// Returns, for each position of a row, that at which its document begins. Documents begin at an eighth and at half of a row, as
/// chunks of context-parallel ranks do, beside them, and in short steps.
fn document_starts(row: usize, seq: usize) -> impl Iterator<Item = u32> {
    let begins = move |position: usize| match row % 4 {
        0 => false,
        1 => [1, 6, seq / 2 - 1, seq - 1].contains(&position),
        2 => [seq / 8, seq / 2, seq / 2 + 1].contains(&position),
        _ => (position + row).is_multiple_of(5) || (position * row) % 7 == 6,
    };
    (0..seq).scan(0, move |start, position| {
        if begins(position) {
            *start = position as u32;
        }
        Some(*start)
    })
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

/// Returns this rank's range of sequences of a global batch.
fn data_extent(batch: usize, rank: &Rank) -> Extent {
    Extent::part(batch, rank.position(AxisSet::DATA), rank.degree_of(AxisSet::DATA))
}
