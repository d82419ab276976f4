//! Documents of a block of tokens: where the document of each token begins and ends.

use std::rc::Rc;
use std::sync::Arc;

use crate::layout::DimInfo;
use meshwright_backend::Buffer;
use meshwright_mesh::Extent;

use super::visible_rows::VisibleRows;

/// Documents of the tokens of a block: for each token, three positions, u32 and shaped as the block.
pub struct DocumentIds {
    /// Dims of the tokens, and their local extents.
    pub(crate) dims: &'static [DimInfo],
    pub(crate) extents: Vec<Extent>,
    /// Position in the row at which the token's document begins.
    pub(crate) starts: Arc<Buffer>,
    /// Position in the row after the document's last token.
    pub(crate) ends: Arc<Buffer>,
    /// Position of the token in its document.
    pub(crate) places: Arc<Buffer>,
    /// The document of each token.
    pub(crate) rows: Rc<VisibleRows>,
}

impl DocumentIds {
    /// Returns true if both are documents of the same rows, at the same borders.
    pub(super) fn are_equal(&self, other: &DocumentIds) -> bool {
        std::ptr::eq(self, other)
            || (self.extents == other.extents && self.rows.starts == other.rows.starts)
    }

    /// Returns starts, ends and positions of the tokens of `sequence` in each row, and the positions that the queries
    /// of whole rows may see.
    ///
    /// # Panics
    /// If `starts` are not the starts of documents that follow one another.
    #[track_caller]
    pub(crate) fn on_host(sequence: &Extent, starts: &[u32]) -> ([Vec<u32>; 3], VisibleRows) {
        let blocks = DocumentIds::blocks(sequence.global, starts);
        let own = blocks.each_ref().map(|rows| sequence.of_rows(rows));
        let [starts, ends, _] = blocks;
        (own, VisibleRows::new(sequence.global, starts, ends))
    }

    /// Returns starts, ends and positions of the tokens of rows of `seq` tokens.
    ///
    /// # Panics
    /// As [`on_host`](Self::on_host).
    #[track_caller]
    fn blocks(seq: usize, starts: &[u32]) -> [Vec<u32>; 3] {
        assert!(
            starts.len().is_multiple_of(seq.max(1)),
            "{} starts of documents do not fill whole rows of {seq} tokens",
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
                     token begins a document, or continues the document of the token before it"
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
            (vec![0, 0], "2 starts of documents do not fill whole rows of 3 tokens"),
        ] {
            let caught = std::panic::catch_unwind(|| DocumentIds::blocks(3, &starts)).unwrap_err();
            let message = caught.downcast_ref::<String>().unwrap();
            assert!(message.contains(expected), "{starts:?}: {message}");
        }
    }
}
