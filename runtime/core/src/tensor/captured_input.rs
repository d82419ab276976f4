//! The input of captured passes: each replay uploads the tokens of its micro-batches, and their documents and key
//! ranges.

use std::panic::Location;
use std::sync::Arc;

use crate::autograd::TokenIds;
use crate::context::{DocumentIds, KeyBlock, Rank, extents_of};
use crate::layout::{Dims, Shape};
use meshwright_backend::{Buffer, GraphBuffer, GraphPool};
use meshwright_mesh::Extent;

use super::Tokens;
use super::key_ranges::KeyBlocks;

/// Input of a micro-batch.
pub struct InputPass<'a> {
    /// Sizes of the global batch.
    pub sizes: &'a [usize],
    /// Index of the micro-batch, and the number of micro-batches.
    pub micro_batch: [usize; 2],
    /// The token ids.
    pub tokens: &'a [u32],
    /// The targets.
    pub targets: &'a [u32],
    /// Starts of the documents of the tokens, if rows hold several.
    pub starts: Option<&'a [u32]>,
}

/// A micro-batch whose pass is captured.
pub struct InputCapture<'a> {
    pub(super) rank: &'a Rank,
    pub(super) recordings: &'a Arc<GraphPool>,
    pub(super) pass: &'a InputPass<'a>,
}

/// The memory from which a graph reads a micro-batch.
pub struct CapturedInput {
    /// [`CapturedInput::write_as`] for the shape of the tokens.
    write: WriteInput,
    tokens: GraphBuffer,
    targets: GraphBuffer,
    documents: Option<CapturedDocuments>,
    /// True for each ignored target.
    ignored: Vec<bool>,
}

type WriteInput = fn(&CapturedInput, &Rank, &InputPass<'_>);

/// The memory from which a graph reads the documents of a micro-batch.
struct CapturedDocuments {
    /// Starts, ends and positions of tokens.
    of_tokens: [GraphBuffer; 3],
    /// The keys that the queries of each block see, if ranks share the rows.
    key_ranges: Vec<(KeyBlock, [GraphBuffer; 2])>,
}

impl InputCapture<'_> {
    /// Creates the tokens and targets of a pass that will be captured, and uploads them with their documents.
    #[doc(hidden)]
    pub fn tokens_and_targets<S: Shape>(&self) -> ([Tokens<S>; 2], CapturedInput) {
        let InputCapture { rank, recordings, pass } = *self;
        let of = |ids| Tokens::<S>::from_micro_batch(rank, pass.sizes, pass.micro_batch, ids);
        let (mut tokens, targets) = (of(pass.tokens), of(pass.targets));
        if let Some(starts) = pass.starts {
            tokens = tokens.with_documents(starts);
        }
        let buffer = |ids: &Arc<Buffer>| recordings.buffer(ids.view());
        let documents = tokens.rank().documents_of(S::DIMS).map(|documents| {
            let seq = tokens.local_extents().last().expect("tokens have a sequence").global;
            // An upload by the pass itself would be part of the graph, with the documents of the capture.
            let ranges_of = |block: KeyBlock| {
                let ranges = documents.rows.key_ranges(rank, block.clone());
                (block, ranges.each_ref().map(buffer))
            };
            let blocks = rank.session_state::<KeyBlocks>().of_sequences(seq);
            let DocumentIds { starts, ends, places, .. } = &**documents;
            CapturedDocuments {
                of_tokens: [starts, ends, places].map(buffer),
                key_ranges: blocks.into_iter().map(ranges_of).collect(),
            }
        });
        let (of_tokens, of_targets) = (buffer(tokens.id_buffer()), buffer(targets.id_buffer()));
        let ignored = ignored_targets(pass.targets).collect();
        let input = CapturedInput {
            write: CapturedInput::write_as::<S>,
            tokens: of_tokens,
            targets: of_targets,
            documents,
            ignored,
        };
        ([tokens, targets], input)
    }
}

impl CapturedInput {
    /// Writes the micro-batch of the next replay.
    pub(super) fn write_input(&self, rank: &Rank, pass: &InputPass<'_>) {
        (self.write)(self, rank, pass);
    }

    fn write_as<S: Dims>(&self, rank: &Rank, pass: &InputPass<'_>) {
        let own = |whole| Tokens::<S>::own_positions(rank, pass.sizes, whole);
        self.tokens.write(&own(pass.tokens));
        self.targets.write(&own(pass.targets));
        if let (Some(documents), Some(starts)) = (&self.documents, pass.starts) {
            let extents = extents_of::<S>(&rank.with_whole_batch(), pass.sizes);
            documents.write(extents.last().expect("tokens have a sequence"), starts);
            rank.note_documents(starts, Tokens::<S>::VARIES_OF_ROWS, Location::caller());
        }
    }

    /// Returns true if the graph can be replayed on `pass`: it has to ignore the same targets.
    pub(super) fn takes_pass(&self, pass: &InputPass<'_>) -> bool {
        ignored_targets(pass.targets).eq(self.ignored.iter().copied())
    }
}

impl CapturedDocuments {
    fn write(&self, sequence: &Extent, starts: &[u32]) {
        let (of_tokens, rows) = DocumentIds::on_host(sequence, starts);
        let write = |(buffer, values): (&GraphBuffer, &Vec<u32>)| buffer.write(values);
        self.of_tokens.iter().zip(&of_tokens).for_each(write);
        for (block, buffers) in &self.key_ranges {
            buffers.iter().zip(&rows.find_key_ranges(block)).for_each(write);
        }
    }
}

fn ignored_targets(targets: &[u32]) -> impl Iterator<Item = bool> {
    targets.iter().map(|id| *id == TokenIds::IGNORED)
}
