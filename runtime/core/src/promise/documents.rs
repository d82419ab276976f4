//! Documents that a program gives to its tokens, which have to be the same on ranks that share the rows.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::panic::Location;

use xxhash_rust::xxh3::xxh3_64;

use crate::layout::AxisSet;
use meshwright_mesh::MeshShape;

use super::digests::hash_of;
use super::recorded::describe_agreement;

/// The documents that a rank has given to tokens in this step.
#[derive(Default)]
pub(super) struct StepDocuments {
    /// Hashes of different starts. Their number and order may differ between ranks: stages compute micro-batches in
    /// their own order, and a pass may be repeated.
    hashes: RefCell<BTreeSet<u64>>,
    given: Cell<GivenDocuments>,
}

/// All documents of a step.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct GivenDocuments {
    /// Hash of them; 0 if there are none.
    hash: u64,
    /// The axes over which any of them varies.
    varies: AxisSet,
    /// Line of the last ones.
    line: Option<&'static Location<'static>>,
}

impl StepDocuments {
    /// Notes documents with these starts, which vary over the axes `varies`.
    pub fn note(&self, starts: &[u32], varies: AxisSet, line: &'static Location<'static>) {
        self.hashes.borrow_mut().insert(xxh3_64(bytemuck::cast_slice(starts)));
        let varies = self.given.get().varies.union(varies);
        self.given.set(GivenDocuments { hash: 0, varies, line: Some(line) });
    }

    /// Returns the documents of the step, and begins to collect for the next step.
    pub fn take(&self) -> GivenDocuments {
        let hashes = self.hashes.take();
        let hash = if hashes.is_empty() { 0 } else { hash_of(hashes) };
        GivenDocuments { hash, ..self.given.take() }
    }
}

impl GivenDocuments {
    /// Number of words that [`words`](Self::words) returns.
    pub const WORDS: usize = 3;

    /// Returns the hash of all documents, which is 0 without any.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns the axes over which the documents vary.
    pub fn varies(&self) -> AxisSet {
        self.varies
    }

    /// Returns the words that other ranks compare with their own.
    pub fn words(&self) -> [u32; Self::WORDS] {
        [(self.hash >> 32) as u32, self.hash as u32, self.varies.number() as u32]
    }

    /// Compares the documents of this rank with the words of another one.
    ///
    /// # Panics
    /// If they differ, although the ranks have the same positions along the axes over which they vary.
    #[track_caller]
    pub fn compare_with(&self, words: &[u32], other: usize, rank: usize, shape: &MeshShape) {
        let hash = u64::from(words[0]) << 32 | u64::from(words[1]);
        let varies = self.varies.union(AxisSet::from_number(words[2] as usize));
        let position = |rank| shape.index_in_group(rank, varies);
        if hash == self.hash || position(other) != position(rank) {
            return;
        }
        let (with, without) = if self.hash == 0 { (other, rank) } else { (rank, other) };
        let difference = if self.hash == 0 || hash == 0 {
            format!("only rank {with} has given any to its tokens, and rank {without} has not")
        } else {
            format!("rank {rank} and rank {other} have given different ones to their tokens")
        };
        let line = match self.line {
            Some(line) => format!(" (the last by `with_documents` at {line})"),
            None => String::new(),
        };
        panic!(
            "the documents of a step{line} are declared {}, but {difference}: these ranks have the same rows, so each \
             of them gives its tokens the documents of all, also in a pipeline stage that reads no tokens",
            describe_agreement(varies)
        );
    }
}
