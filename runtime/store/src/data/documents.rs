//! Documents in the rows of a batch: where they begin, and the targets that cross their borders.

use std::iter;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{Batch, DataError, TokenFile};

/// Tokens that are searched for the end of a document when rows are not packed, so that files of any size open quickly.
const SEARCHED: usize = 1 << 26;

/// `--documents` and its settings: how rows are made of documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct DocumentOptions {
    /// The token that ends a document, and fills packed rows; a file with an index of documents states their ends.
    pub end: u32,
    /// Rows are packed with whole documents; otherwise they follow one another in the file, and cut documents.
    pub packs: bool,
    /// Targets that belong to the next document are not counted.
    pub masks_borders: bool,
}

impl DocumentOptions {
    /// Checks that documents of `file` can end with the token, and that they have targets.
    ///
    /// # Errors
    /// A token beyond the vocabulary, or none in the file; documents of one token each, if borders are masked.
    pub(super) fn check_file(&self, file: &TokenFile) -> Result<(), DataError> {
        let (end, vocab) = (self.end, file.vocab());
        if end as usize >= vocab {
            return Err(DataError::UnknownEnd { end, vocab });
        }
        let searched = if self.packs { file.len() } else { file.len().min(SEARCHED) };
        let mut is_found = false;
        // Only a token that ends no document, and is followed by another one, has a target inside of its document.
        let mut has_targets = !self.masks_borders;
        read_blocks(file, 0..searched, |first, block| {
            let ends = self.ends_in(file, first, block).count();
            is_found |= ends > 0;
            let followed = block.len().min(file.len() - 1 - first);
            has_targets =
                has_targets || self.ends_in(file, first, &block[..followed]).count() < followed;
            !(is_found && has_targets)
        })?;
        let name = || file.name().to_owned();
        match (is_found, has_targets) {
            (false, _) => Err(DataError::NoDocuments { name: name(), end, searched }),
            (true, false) => Err(DataError::NoTargets { name: name(), end, searched }),
            (true, true) => Ok(()),
        }
    }

    /// Returns the index of the first token of a document in `file` that has at least `at` tokens before it; `None` if
    /// none begins there.
    ///
    /// # Errors
    /// A token beyond the vocabulary.
    pub fn first_start(&self, file: &TokenFile, at: usize) -> Result<Option<usize>, DataError> {
        let mut found = None;
        read_blocks(file, at.saturating_sub(1)..file.len() - 1, |first, block| {
            let end = self.ends_in(file, first, block).next();
            found = end.map(|end| first + end + 1);
            found.is_none()
        })?;
        Ok(found)
    }

    /// Returns the indices among `tokens`, which begin at token `first` of the file, after which a document ends: by
    /// the index of the file, or else by the token.
    pub(super) fn ends_in<'a>(
        &self,
        file: &'a TokenFile,
        first: usize,
        tokens: &'a [u32],
    ) -> impl Iterator<Item = usize> + use<'a> {
        let end = self.end;
        let by_index = file.document_ends().map(|ends| {
            let of_tokens = |count: usize| ends.partition_point(|end| *end <= first + count);
            ends[of_tokens(0)..of_tokens(tokens.len())].iter().map(move |end| end - 1 - first)
        });
        let by_token = by_index.is_none().then(|| {
            tokens.iter().enumerate().filter(move |(_, token)| **token == end).map(|(at, _)| at)
        });
        by_index.into_iter().flatten().chain(by_token.into_iter().flatten())
    }

    /// Makes `tokens`, a row that begins at token `first` of the file, a row of documents: writes the position at which
    /// the document of each token begins, and ignores the targets after the last tokens of documents, if
    /// `masks_borders` is set.
    pub(super) fn separate(&self, file: &TokenFile, first: usize, parts: &mut RowParts<'_>) {
        let RowParts { tokens, targets, starts } = parts;
        let mut start = 0;
        for end in self.ends_in(file, first, tokens) {
            starts[start..=end].fill(start as u32);
            start = end + 1;
            if self.masks_borders {
                targets[end] = Batch::IGNORED;
            }
        }
        starts[start..].fill(start as u32);
    }
}

/// The parts of a row that is read.
pub(super) struct RowParts<'a> {
    pub tokens: &'a mut [u32],
    pub targets: &'a mut [u32],
    /// The position at which the document of each token begins.
    pub starts: &'a mut [u32],
}

/// Reads the tokens `range` of `file` block by block, each with the index of its first token, until `visit` returns
/// false.
pub(super) fn read_blocks(
    file: &TokenFile,
    range: Range<usize>,
    mut visit: impl FnMut(usize, &[u32]) -> bool,
) -> Result<(), DataError> {
    const BLOCK: usize = 1 << 16;
    // Of a file that is far away.
    const PREPARED: usize = 32 * BLOCK;
    let mut block = vec![0; BLOCK.min(range.len())];
    for start in range.clone().step_by(BLOCK) {
        if (start - range.start).is_multiple_of(PREPARED) {
            file.prepare(iter::once(start..range.end.min(start + PREPARED)));
        }
        let block = &mut block[..BLOCK.min(range.end - start)];
        file.read(start, block)?;
        if !visit(start, block) {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(end: u32, masks_borders: bool) -> DocumentOptions {
        DocumentOptions { end, packs: false, masks_borders }
    }

    /// Returns starts and targets of a row with these tokens, from token `first` of the file on.
    fn separate(file: &TokenFile, first: usize, masks: bool) -> (Vec<u32>, Vec<u32>) {
        let len = file.len() - first;
        let (mut tokens, mut targets, mut starts) = (vec![0; len], vec![1; len], vec![0; len]);
        file.read(first, &mut tokens).unwrap();
        let (tokens, into_targets, into_starts) = (&mut tokens[..], &mut targets, &mut starts);
        let mut parts = RowParts { tokens, targets: into_targets, starts: into_starts };
        options(9, masks).separate(file, first, &mut parts);
        (starts, targets)
    }

    #[test]
    fn documents_are_found_from_a_token_on() {
        let file = TokenFile::from_text(b"ab.c..d.".to_vec(), 256, "text").unwrap();
        let options = options(u32::from(b'.'), false);
        let found = [0, 1, 3, 4, 5, 6, 7].map(|at| options.first_start(&file, at).unwrap());
        assert_eq!(found, [Some(3), Some(3), Some(3), Some(5), Some(5), Some(6), None]);
    }

    #[test]
    fn documents_begin_after_the_end_of_others() {
        let file = |tokens: &[u8]| TokenFile::from_text(tokens.to_vec(), 256, "numbers").unwrap();
        let row = separate(&file(&[1, 9, 9, 2, 3, 9]), 0, false);
        assert_eq!(row, (vec![0, 0, 2, 3, 3, 3], vec![1; 6]));
        let (starts, targets) = separate(&file(&[7, 1, 9, 9, 2]), 1, true);
        assert_eq!(
            (starts, targets),
            (vec![0, 0, 2, 3], vec![1, Batch::IGNORED, Batch::IGNORED, 1])
        );
        assert_eq!(separate(&file(&[1, 2]), 0, true).0, [0, 0]);
    }

    /// The token is the content of documents then.
    #[test]
    fn an_index_states_the_ends_of_documents() {
        let file = TokenFile::from_text(vec![1, 9, 9, 2, 3, 4], 256, "numbers").unwrap();
        let file = file.with_document_ends(vec![1, 4, 6]);
        assert_eq!(separate(&file, 0, false).0, [0, 1, 1, 1, 4, 4]);
        assert_eq!(
            separate(&file, 2, true),
            (vec![0, 0, 2, 2], vec![1, Batch::IGNORED, 1, Batch::IGNORED])
        );
        options(200, true).check_file(&file).unwrap();
        let packing = crate::data::Packing::new(&file, &options(200, true), 3).unwrap();
        assert_eq!((packing.rows(), packing.waste().documents, packing.padding(0)), (2, 3, 0));
    }

    /// A last token that nothing follows has no target either.
    #[test]
    fn one_token_documents_are_refused_with_masked_borders() {
        let end = u32::from(b'.');
        for (text, searched) in [("......", 6), (".....x", 6)] {
            let file = TokenFile::from_text(text.into(), 256, "dots").unwrap();
            for packs in [false, true] {
                let text = DocumentOptions { packs, ..options(end, true) }.check_file(&file);
                let expected = format!(
                    "--mask-borders: all documents in the first {searched} tokens of dots consist of one token, \
                     usually 46, so every target would be ignored; give --documents "
                );
                let text = text.unwrap_err().to_string();
                assert!(text.starts_with(&expected), "{text}");
                DocumentOptions { packs, ..options(end, false) }.check_file(&file).unwrap();
            }
        }
        let file = TokenFile::from_text(b"..x.".to_vec(), 256, "dots").unwrap();
        options(end, true).check_file(&file).unwrap();
    }

    #[test]
    fn ends_that_do_not_occur_are_refused() {
        let file = TokenFile::from_text(b"one two".to_vec(), 256, "words").unwrap();
        options(u32::from(b' '), false).check_file(&file).unwrap();
        for packs in [false, true] {
            let text =
                DocumentOptions { packs, ..options(10, false) }.check_file(&file).unwrap_err();
            let expected = "--documents: token 10 does not occur in the first 7 tokens of words";
            assert!(text.to_string().starts_with(expected), "{text}");
        }
        let text = options(256, false).check_file(&file).unwrap_err().to_string();
        assert!(
            text.starts_with("--documents: token 256 is beyond the vocabulary of 256"),
            "{text}"
        );
    }
}
