//! Documents in the rows of a batch: where they begin, and the targets that cross their borders.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{Batch, DataError, TokenFile};

/// Tokens that are searched for the end of a document when rows are not packed, so that files of any size open quickly.
const SEARCHED: usize = 1 << 26;

/// `--documents` and its settings: how rows are made of documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct DocumentOptions {
    /// The token that ends a document.
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
            is_found |= block.contains(&end);
            let followed = block.len().min(file.len() - 1 - first);
            has_targets = has_targets || block[..followed].iter().any(|token| *token != end);
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
            let end = block.iter().position(|token| *token == self.end);
            found = end.map(|end| first + end + 1);
            found.is_none()
        })?;
        Ok(found)
    }

    /// Returns the position in the row at which the document of each of its `tokens` begins.
    pub(super) fn starts(&self, tokens: &[u32]) -> Vec<u32> {
        let mut start = 0;
        let of_token = |(position, token): (usize, &u32)| {
            let own = start;
            if *token == self.end {
                start = position as u32 + 1;
            }
            own
        };
        tokens.iter().enumerate().map(of_token).collect()
    }

    /// Ignores the targets after the last tokens of documents, if `masks_borders` is set.
    pub(super) fn mask_targets(&self, tokens: &[u32], targets: &mut [u32]) {
        if self.masks_borders {
            for (token, target) in tokens.iter().zip(targets) {
                if *token == self.end {
                    *target = Batch::IGNORED;
                }
            }
        }
    }
}

/// Reads the tokens `range` of `file` block by block, each with the index of its first token, until `visit` returns
/// false.
pub(super) fn read_blocks(
    file: &TokenFile,
    range: Range<usize>,
    mut visit: impl FnMut(usize, &[u32]) -> bool,
) -> Result<(), DataError> {
    const BLOCK: usize = 1 << 16;
    let mut block = vec![0; BLOCK.min(range.len())];
    for start in range.clone().step_by(BLOCK) {
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

    #[test]
    fn documents_begin_after_the_end_of_others() {
        assert_eq!(options(9, false).starts(&[1, 9, 9, 2, 3, 9]), [0, 0, 2, 3, 3, 3]);
        assert_eq!(options(7, false).starts(&[1, 9, 9]), [0, 0, 0]);
    }

    #[test]
    fn documents_are_found_from_a_token_on() {
        let file = TokenFile::from_text(b"ab.c..d.".to_vec(), 256, "text").unwrap();
        let options = options(u32::from(b'.'), false);
        let found = [0, 1, 3, 4, 5, 6, 7].map(|at| options.first_start(&file, at).unwrap());
        assert_eq!(found, [Some(3), Some(3), Some(3), Some(5), Some(5), Some(6), None]);
    }

    #[test]
    fn targets_of_other_documents_are_masked_if_asked() {
        let tokens = [1, 9, 9, 2];
        for (masks, expected) in
            [(false, [9, 9, 2, 3]), (true, [9, Batch::IGNORED, Batch::IGNORED, 3])]
        {
            let mut targets = [9, 9, 2, 3];
            options(9, masks).mask_targets(&tokens, &mut targets);
            assert_eq!(targets, expected);
        }
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
