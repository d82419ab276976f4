//! Documents of a block of tokens: where the document of each token begins and ends.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use crate::backend::{Band, Buffer, Category};
use crate::context::Rank;
use crate::mesh::Extent;

/// Documents of the tokens of a block: for each token, three positions, u32 and shaped as the block.
pub(crate) struct DocumentIds {
    /// Position in the row at which the token's document begins.
    pub(crate) starts: Arc<Buffer>,
    /// Position in the row after the document's last token.
    pub(crate) ends: Arc<Buffer>,
    /// Position of the token in its document.
    pub(crate) places: Arc<Buffer>,
    /// The document of each token.
    pub(crate) rows: Rc<VisibleRows>,
}

/// The positions that the query of each token of whole rows may see, on the host: those from a start to an end in its row.
///
/// A rank that has some positions of its rows only knows those of the others from here, so none are exchanged.
pub(crate) struct VisibleRows {
    /// Positions of a row.
    pub(crate) seq: usize,
    pub(crate) starts: Vec<u32>,
    pub(crate) ends: Vec<u32>,
    key_ranges: RefCell<Vec<(KeyBlock, [Arc<Buffer>; 2])>>,
}

/// Queries and keys of a sequence, by their positions in it, and the positions that a query sees.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KeyBlock {
    pub(crate) queries: Extent,
    pub(crate) keys: Extent,
    /// The keys of the block, by their number among `keys`.
    pub(crate) part: Range<usize>,
    pub(crate) band: Band,
}

impl DocumentIds {
    /// Copies documents of rows to the device, for the tokens of `sequence` that this rank holds; `starts` are those of whole
    /// rows, and positions in the row.
    ///
    /// # Panics
    /// If `starts` are not those of documents that follow one another.
    #[track_caller]
    pub(crate) fn new(rank: &Rank, sequence: &Extent, starts: &[u32]) -> DocumentIds {
        let [starts, ends, places] = DocumentIds::blocks(sequence.global, starts);
        let upload = |rows: &[u32]| {
            let own = sequence.of_rows(rows);
            Arc::new(rank.allocator().copy_of(&own, Category::Activations))
        };
        DocumentIds {
            starts: upload(&starts),
            ends: upload(&ends),
            places: upload(&places),
            rows: Rc::new(VisibleRows::new(sequence.global, starts, ends)),
        }
    }

    /// Returns starts, ends and places of the tokens of `sequence` in each row.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    #[track_caller]
    pub(crate) fn own_blocks(sequence: &Extent, starts: &[u32]) -> [Vec<u32>; 3] {
        DocumentIds::blocks(sequence.global, starts).map(|rows| sequence.of_rows(&rows))
    }

    /// Returns starts, ends and places of rows of `seq` tokens.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    #[track_caller]
    fn blocks(seq: usize, starts: &[u32]) -> [Vec<u32>; 3] {
        assert!(
            starts.len().is_multiple_of(seq.max(1)),
            "{} starts of documents are not those of whole rows of {seq} tokens",
            starts.len()
        );
        let (mut ends, mut places) = (vec![0; starts.len()], vec![0; starts.len()]);
        let rows = starts.chunks_exact(seq.max(1)).zip(ends.chunks_exact_mut(seq.max(1)));
        for ((row, (starts, ends)), places) in
            rows.enumerate().zip(places.chunks_exact_mut(seq.max(1)))
        {
            let mut end = seq as u32;
            for position in (0..seq).rev() {
                let start = starts[position];
                let previous = position.checked_sub(1).map(|before| starts[before]);
                let begins = start as usize == position;
                assert!(
                    begins || previous == Some(start),
                    "the token at position {position} of row {row} cannot be in a document that begins at {start}: a \
                     token begins a document, or is in that of the token before it"
                );
                (ends[position], places[position]) = (end, position as u32 - start);
                if begins {
                    end = position as u32;
                }
            }
        }
        [starts.to_vec(), ends, places]
    }
}

impl VisibleRows {
    /// Creates those of rows of `seq` positions.
    pub(crate) fn new(seq: usize, starts: Vec<u32>, ends: Vec<u32>) -> VisibleRows {
        VisibleRows { seq, starts, ends, key_ranges: RefCell::default() }
    }

    /// Returns, for each query of a block, the first key that it sees and the end of those that it sees, u32 `[batch, queries]`
    /// and by their number in the block. `find` computes them the first time; all layers share them, and their backward.
    pub(crate) fn key_ranges(
        &self,
        rank: &Rank,
        block: KeyBlock,
        find: impl FnOnce(&KeyBlock, &VisibleRows) -> [Vec<u32>; 2],
    ) -> [Arc<Buffer>; 2] {
        let known = self.key_ranges.borrow();
        if let Some((_, ranges)) = known.iter().find(|(of, _)| *of == block) {
            return ranges.each_ref().map(Arc::clone);
        }
        drop(known);
        let upload =
            |ids: Vec<u32>| Arc::new(rank.allocator().copy_of(&ids, Category::Activations));
        let ranges = find(&block, self).map(upload);
        self.key_ranges.borrow_mut().push((block, ranges.each_ref().map(Arc::clone)));
        ranges
    }

    /// Returns the number of blocks whose ranges have been computed.
    #[cfg(test)]
    pub(crate) fn computed_blocks(&self) -> usize {
        self.key_ranges.borrow().len()
    }
}

/// State of a rank: set when a layer reads the documents of tokens.
#[derive(Default)]
pub(crate) struct DocumentUse(pub(crate) Cell<bool>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_and_places_follow_from_starts() {
        let [starts, ends, places] = DocumentIds::blocks(5, &[0, 0, 2, 2, 4, 0, 1, 2, 2, 2]);
        assert_eq!(starts, [0, 0, 2, 2, 4, 0, 1, 2, 2, 2]);
        assert_eq!(ends, [2, 2, 4, 4, 5, 1, 2, 5, 5, 5]);
        assert_eq!(places, [0, 1, 0, 1, 0, 0, 0, 0, 1, 2]);
        assert!(DocumentIds::blocks(0, &[]).iter().all(Vec::is_empty));
    }

    #[test]
    fn starts_that_are_not_of_documents_are_refused() {
        for (starts, expected) in [
            (vec![0, 0, 1], "position 2 of row 0 cannot be in a document that begins at 1"),
            (vec![0, 2, 2], "position 1 of row 0 cannot be in a document that begins at 2"),
            (vec![1, 1, 1], "position 0 of row 0 cannot be in a document that begins at 1"),
            (
                vec![0, 0, 0, 3, 3, 3],
                "position 0 of row 1 cannot be in a document that begins at 3",
            ),
            (vec![0, 0], "2 starts of documents are not those of whole rows of 3 tokens"),
        ] {
            let caught = std::panic::catch_unwind(|| DocumentIds::blocks(3, &starts)).unwrap_err();
            let message = caught.downcast_ref::<String>().unwrap();
            assert!(message.contains(expected), "{starts:?}: {message}");
        }
    }
}
