//! Files of tokens, memory-mapped or read in parts: opening one costs no memory, however large it is.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use super::byte_source::{ByteSource, LocalBytes};
use super::ids::{Encoding, Ids};
use super::token_layout::{HEAD_BYTES, OpenedTokens, TokenLayout};
use super::{DataError, DataFormat, DataInput, FileProblem, TokenizerRecord};

/// Tokens that are checked against the vocabulary when a file is opened. Later ones are checked when they are read,
/// so that opening a file of any size stays quick.
const CHECKED_AT_START: usize = 1 << 26;

/// A sequence of tokens whose ids are below a vocabulary size.
#[derive(Debug)]
pub struct TokenFile {
    content: Arc<dyn ByteSource>,
    /// The bytes of the ids.
    bytes: Range<usize>,
    /// Index of the first token in the file, if this is a part of it.
    first: usize,
    encoding: Encoding,
    vocab: usize,
    name: String,
    /// The tokenizer that has made the tokens; `None` if it is not known.
    tokenizer: Option<TokenizerRecord>,
    /// The index after the last token of each document; `None` without an index.
    document_ends: Option<Vec<usize>>,
}

impl TokenFile {
    /// Opens `path` for a model with `vocab` token ids.
    ///
    /// The content determines the [format](DataFormat): token ids, which are mapped, or text by bytes.
    ///
    /// # Errors
    /// As [`DataInput::open`] and [`of_input`](Self::of_input).
    pub fn open(path: &Path, vocab: usize) -> Result<TokenFile, DataError> {
        TokenFile::of_input(DataInput::open(path, None)?, vocab)
    }

    /// Reads a file of token ids, or text by bytes, for a model with `vocab` token ids.
    ///
    /// The width of raw ids is the one that was given, that of their record or their name; else the only one that the
    /// vocabulary and the ids allow: 32 bits for a `vocab` above 65536, and below it, if every second 16-bit half is
    /// zero.
    ///
    /// # Errors
    /// A file that is empty, torn in the middle of a token, has ids beyond the vocabulary, of twice the width or of
    /// either width; a header or an index that does not fit; text for a vocabulary below 256, and a format that only a
    /// tokenizer reads.
    pub fn of_input(input: DataInput, vocab: usize) -> Result<TokenFile, DataError> {
        let (path, dtype, format) = (input.path.clone(), input.dtype, input.format().clone());
        let name = path.display().to_string();
        if !format.is_tokens() && format != DataFormat::Text {
            let problem =
                "it holds documents; tokenize them first (tokenize, or tokenize_input)".to_owned();
            return Err(DataError::File(FileProblem { name, problem }));
        }
        let content = input.into_bytes()?;
        let len = content.len();
        if len == 0 {
            return Err(DataError::Empty { name });
        }
        let layout = if format.is_tokens() {
            let head = content.part(0..len.min(HEAD_BYTES))?;
            let file = OpenedTokens { path: &path, head: &head, len, vocab, dtype };
            TokenLayout::new(&format, &file)?
        } else {
            TokenLayout::of_text(len)
        };
        TokenFile::new(content, layout, vocab, name)
    }

    /// Wraps text in memory as byte tokens; `name` is its name in messages.
    ///
    /// # Errors
    /// An empty text, or a vocabulary below 256.
    pub fn from_text(text: Vec<u8>, vocab: usize, name: &str) -> Result<TokenFile, DataError> {
        let layout = TokenLayout::of_text(text.len());
        let content = Box::new(LocalBytes::Owned(text));
        TokenFile::new(content, layout, vocab, name.to_owned())
    }

    /// Wraps token ids in memory, for a vocabulary of `vocab`; `name` is their name in messages.
    ///
    /// # Errors
    /// No ids, and ids beyond the vocabulary.
    pub fn from_ids(ids: Ids, vocab: usize, name: &str) -> Result<TokenFile, DataError> {
        let layout = TokenLayout::without_index(ids.encoding, 0..ids.bytes.len());
        let content = Box::new(LocalBytes::Owned(ids.bytes));
        TokenFile::new(content, layout, vocab, name.to_owned())
    }

    fn new(
        content: Box<dyn ByteSource>,
        layout: TokenLayout,
        vocab: usize,
        name: String,
    ) -> Result<TokenFile, DataError> {
        let TokenLayout { encoding, bytes, document_ends, tokenizer } = layout;
        if bytes.is_empty() {
            return Err(DataError::Empty { name });
        }
        if encoding == Encoding::Bytes && vocab < 256 {
            return Err(DataError::SmallVocabulary { name, vocab });
        }
        let content = Arc::from(content);
        let first = 0;
        let file =
            TokenFile { content, bytes, first, encoding, vocab, name, tokenizer, document_ends };
        file.check_start()?;
        Ok(file)
    }

    /// Number of tokens, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.bytes.len() / self.encoding.width()
    }

    /// Returns the encoding of the tokens.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// The vocabulary size that every token is below.
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// The name of the file, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the index after the last token of each document, in order; `None` if the file has no index.
    pub fn document_ends(&self) -> Option<&[usize]> {
        self.document_ends.as_deref()
    }

    /// Returns the tokenizer that has made the tokens; `None` if it is not known.
    pub fn tokenizer(&self) -> Option<&TokenizerRecord> {
        self.tokenizer.as_ref()
    }

    /// Returns the file with the tokenizer that has made its tokens.
    #[must_use]
    pub fn tokenized_by(self, tokenizer: TokenizerRecord) -> TokenFile {
        TokenFile { tokenizer: Some(tokenizer), ..self }
    }

    /// Returns the number of the stored bytes of the ids.
    pub(super) fn n_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns a part of the stored bytes of the ids.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(super) fn part(&self, range: Range<usize>) -> Result<Cow<'_, [u8]>, DataError> {
        let start = self.bytes.start;
        self.content.part(start + range.start..start + range.end)
    }

    /// Returns true if reads of the file take long, and are to be [prepared](Self::prepare).
    pub(super) fn is_distant(&self) -> bool {
        self.content.is_distant()
    }

    /// Fetches ranges of tokens that will be read.
    pub(super) fn prepare(&self, tokens: impl IntoIterator<Item = Range<usize>>) {
        if self.is_distant() {
            let (first, width) = (self.bytes.start, self.encoding.width());
            let bytes =
                |range: Range<usize>| first + range.start * width..first + range.end * width;
            self.content.prepare(&tokens.into_iter().map(bytes).collect::<Vec<_>>());
        }
    }

    /// Splits the tokens before the token at index `at`, which both parts have some of, without a copy of them.
    ///
    /// # Panics
    /// If a part would be empty: a fault of the calling code.
    pub fn split_at(self, at: usize) -> [TokenFile; 2] {
        assert!(0 < at && at < self.len(), "token {at} of {} splits nothing", self.len());
        let middle = self.bytes.start + at * self.encoding.width();
        let ends = self.document_ends.as_deref().map(|ends| {
            let (before, after) = ends.split_at(ends.partition_point(|end| *end <= at));
            [before.to_vec(), after.iter().map(|end| end - at).collect()]
        });
        let [before, after] = ends.map_or([None, None], |ends| ends.map(Some));
        let part = |from: usize, bytes: Range<usize>, document_ends| TokenFile {
            content: Arc::clone(&self.content),
            bytes,
            first: self.first + from,
            name: self.name.clone(),
            tokenizer: self.tokenizer.clone(),
            document_ends,
            ..self
        };
        let Range { start, end } = self.bytes;
        [part(0, start..middle, before), part(at, middle..end, after)]
    }

    /// Copies the tokens from `start` on into `out`.
    ///
    /// # Errors
    /// A token beyond the vocabulary, and a file that cannot be read.
    ///
    /// # Panics
    /// When the range is not inside the file: a fault of the calling code, since a
    /// [`Sampler`](super::Sampler) made for this file stays inside.
    pub fn read(&self, start: usize, out: &mut [u32]) -> Result<(), DataError> {
        self.decode(start, out)?;
        match out.iter().position(|id| *id as usize >= self.vocab) {
            Some(at) => Err(self.unknown_token(start + at)),
            None => Ok(()),
        }
    }

    /// Copies the ids from `start` on into `out`, also those beyond the vocabulary.
    pub(super) fn decode(&self, start: usize, out: &mut [u32]) -> Result<(), DataError> {
        let width = self.encoding.width();
        let bytes = &self.part(start * width..(start + out.len()) * width)?;
        // No vocabulary has the largest id, which stands for numbers that are no ids.
        match self.encoding {
            Encoding::Bytes | Encoding::U8 => fill_ids(out, bytes, |[a]: [u8; 1]| u32::from(a)),
            Encoding::U16 => fill_ids(out, bytes, |pair| u32::from(u16::from_le_bytes(pair))),
            Encoding::I16 => {
                fill_ids(out, bytes, |pair| {
                    u32::try_from(i16::from_le_bytes(pair)).unwrap_or(u32::MAX)
                });
            }
            Encoding::U32 | Encoding::I32 => fill_ids(out, bytes, u32::from_le_bytes),
            Encoding::U64 | Encoding::I64 => {
                fill_ids(out, bytes, |word| {
                    u32::try_from(u64::from_le_bytes(word)).unwrap_or(u32::MAX)
                });
            }
        }
        Ok(())
    }

    /// Checks that the file is as long as when it was opened.
    ///
    /// # Errors
    /// A file that has become shorter.
    pub fn check_length(&self) -> Result<(), DataError> {
        self.content.check_unchanged()
    }

    /// Checks the first tokens against the vocabulary on all cores.
    fn check_start(&self) -> Result<(), DataError> {
        // Ids of this width that are all in the vocabulary need no look.
        let is_unsigned = matches!(self.encoding, Encoding::Bytes | Encoding::U8 | Encoding::U16);
        if is_unsigned && self.vocab >= 1 << (8 * self.encoding.width()) {
            return Ok(());
        }
        const BLOCK: usize = 1 << 16;
        let at_most = if self.is_distant() { HEAD_BYTES / 8 } else { CHECKED_AT_START };
        let tokens = self.len().min(at_most);
        let bad = (0..tokens.div_ceil(BLOCK)).into_par_iter().find_map_first(|block| {
            let start = block * BLOCK;
            let mut ids = vec![0; BLOCK.min(tokens - start)];
            self.read(start, &mut ids).err()
        });
        bad.map_or(Ok(()), Err)
    }

    /// Returns the file with an index of documents.
    #[cfg(test)]
    pub(super) fn with_document_ends(self, ends: Vec<usize>) -> TokenFile {
        TokenFile { document_ends: Some(ends), ..self }
    }

    /// Returns the file with another vocabulary size, without a check of its tokens against it.
    #[cfg(test)]
    pub(super) fn with_vocab(self, vocab: usize) -> TokenFile {
        TokenFile { vocab, ..self }
    }

    fn unknown_token(&self, position: usize) -> DataError {
        let (name, vocab, encoding) = (self.name.clone(), self.vocab, self.encoding);
        let bytes = position * encoding.width()..(position + 1) * encoding.width();
        let id = match self.part(bytes) {
            Ok(bytes) => encoding.number(&bytes),
            Err(error) => return error,
        };
        let made_by = self.tokenizer.clone().filter(|_| encoding != Encoding::Bytes).map(Box::new);
        let position = self.first + position;
        DataError::UnknownToken { name, id, position, vocab, encoding, made_by }
    }
}

fn fill_ids<const N: usize>(out: &mut [u32], bytes: &[u8], decode: impl Fn([u8; N]) -> u32) {
    for (id, chunk) in out.iter_mut().zip(bytes.as_chunks::<N>().0) {
        *id = decode(*chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::path::PathBuf;

    fn write(dir: &tempfile::TempDir, name: &str, bytes: &[u8]) -> PathBuf {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn u16s(ids: &[u16]) -> Vec<u8> {
        ids.iter().flat_map(|id| id.to_le_bytes()).collect()
    }

    fn u32s(ids: &[u32]) -> Vec<u8> {
        ids.iter().flat_map(|id| id.to_le_bytes()).collect()
    }

    fn all(file: &TokenFile) -> Vec<u32> {
        let mut out = vec![0; file.len()];
        file.read(0, &mut out).unwrap();
        out
    }

    #[test]
    fn id_width_follows_from_name_and_content() {
        let dir = tempfile::tempdir().unwrap();
        let open = |name, bytes: &[u8], vocab| TokenFile::open(&write(&dir, name, bytes), vocab);
        let ids: Vec<u32> = [1, 500, 3, 999].repeat(16);
        let narrow: Vec<u16> = ids.iter().map(|id| *id as u16).collect();
        for (name, bytes, vocab, encoding) in [
            ("a.bin", u16s(&narrow), 1000, Encoding::U16),
            ("b.bin", u32s(&ids), 1000, Encoding::U32),
            ("c.bin", u32s(&ids), 100_000, Encoding::U32),
            ("d.u32.bin", u32s(&ids), 1000, Encoding::U32),
            ("e.u16.bin", u16s(&narrow), 1000, Encoding::U16),
            ("f.u16.bin", u16s(&narrow), 100_000, Encoding::U16),
        ] {
            let file = open(name, &bytes, vocab).unwrap();
            assert_eq!((file.encoding(), all(&file)), (encoding, ids.clone()), "{name}");
        }
        // Both widths are possible.
        for bytes in [vec![0; 8], u32s(&[1, 500])] {
            let text = open("few.bin", &bytes, 1000).unwrap_err().to_string();
            assert!(
                text.contains("can be read as u16 and as u32 ids; state the width by"),
                "{text}"
            );
        }
        let text = open("text.txt", b"A\xff", 256).unwrap();
        assert_eq!((text.encoding(), all(&text)), (Encoding::Bytes, vec![65, 255]));
    }

    #[test]
    fn ids_of_twice_the_width_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let open = |name, bytes: &[u8]| TokenFile::open(&write(&dir, name, bytes), 1000);
        let ids: Vec<u32> = (0..200).collect();
        let wide: Vec<u32> = ids.iter().flat_map(|id| [*id, 0]).collect();
        for (name, bytes, expected) in [
            ("a.bin", u32s(&wide), "as u32, so they are probably u64; write them as u16 or u32"),
            ("b.u32.bin", u32s(&wide), "as u32, so they are probably u64"),
            ("c.u16.bin", u32s(&ids), "as u16, so they are probably u32; name it .u32.bin, or"),
        ] {
            let text = open(name, &bytes).unwrap_err().to_string();
            assert!(text.contains(name) && text.contains(expected), "{text}");
        }
        // A few ids may alternate with 0, and all may be 0.
        for bytes in [u32s(&[1, 0, 2, 0]), vec![0; 4000]] {
            open("d.u32.bin", &bytes).unwrap();
        }
    }

    #[test]
    fn files_are_mapped_and_not_read() {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in [("a.u16.bin", u16s(&[1, 2])), ("a.u32.bin", u32s(&[1, 2]))] {
            let file = TokenFile::open(&write(&dir, name, &bytes), 100).unwrap();
            let part = file.part(0..2).unwrap();
            assert!(matches!(part, Cow::Borrowed(_)), "{name}");
            assert_eq!(all(&file), [1, 2], "{name}");
        }
        // A terabyte with nothing in it but its last token.
        let path = dir.path().join("huge.u16.bin");
        let tokens = 1usize << 39;
        let huge = File::create(&path).unwrap();
        huge.set_len(2 * tokens as u64).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&huge, &[7, 0], 2 * tokens as u64 - 2).unwrap();
        let file = TokenFile::open(&path, 1 << 16).unwrap();
        assert_eq!(file.len(), tokens);
        let mut out = [9; 2];
        file.read(tokens - 2, &mut out).unwrap();
        assert_eq!(out, [0, 7]);
    }

    #[test]
    fn truncation_is_noticed_and_removal_is_harmless() {
        let dir = tempfile::tempdir().unwrap();
        let path = write(&dir, "a.bin", &u16s(&[1, 2, 3, 4]));
        let file = TokenFile::open(&path, 100).unwrap();
        file.check_length().unwrap();
        std::fs::rename(&path, dir.path().join("b.bin")).unwrap();
        file.check_length().unwrap();
        assert_eq!(all(&file), [1, 2, 3, 4]);
        File::options().write(true).open(dir.path().join("b.bin")).unwrap().set_len(6).unwrap();
        let text = file.check_length().unwrap_err().to_string();
        assert!(text.contains("a.bin had 8 bytes when the run began and has 6 now"), "{text}");
    }

    #[test]
    fn reads_from_the_middle() {
        let dir = tempfile::tempdir().unwrap();
        let path = write(&dir, "a.bin", &u16s(&[10, 11, 12, 13, 14]));
        let mut out = [0; 3];
        TokenFile::open(&path, 100).unwrap().read(1, &mut out).unwrap();
        assert_eq!(out, [11, 12, 13]);
    }

    #[test]
    fn parts_of_a_file_are_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = write(&dir, "a.bin", &u16s(&[10, 11, 12, 13, 14]));
        let [first, rest] = TokenFile::open(&path, 100).unwrap().split_at(2);
        let [middle, last] = rest.split_at(1);
        assert_eq!([first, middle].map(|part| all(&part)), [vec![10, 11], vec![12]]);
        assert_eq!((last.len(), all(&last)), (2, vec![13, 14]));
        // Positions are those in the file.
        let text = last.with_vocab(14).read(0, &mut [0; 2]).unwrap_err().to_string();
        assert!(text.contains("token id 14 at position 4"), "{text}");
    }

    #[test]
    fn every_bad_file_is_refused_with_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let message = |path: &Path, vocab| TokenFile::open(path, vocab).unwrap_err().to_string();
        let missing = dir.path().join("missing.bin");
        let text = message(&missing, 10);
        assert!(text.contains("cannot read") && text.contains("missing.bin"), "{text}");
        let text = message(dir.path(), 10);
        assert!(text.contains("cannot read") && text.contains("directory"), "{text}");
        for name in ["empty.bin", "empty.txt"] {
            let text = message(&write(&dir, name, b""), 300);
            assert!(text.contains(&format!("{name} is empty")), "{text}");
        }
        let text = message(&write(&dir, "odd.bin", &[1, 0, 2]), 10);
        assert!(text.contains("odd.bin has 3 bytes") && text.contains("2-byte tokens"), "{text}");
        let text = message(&write(&dir, "odd.u32.bin", &[1, 0, 2, 0, 1, 1]), 10);
        assert!(text.contains("has 6 bytes") && text.contains("4-byte tokens"), "{text}");
        let text = message(&write(&dir, "small.txt", b"abc"), 255);
        assert!(text.contains("at least 256; the model has 255"), "{text}");
        let text = message(&write(&dir, "wide.bin", &u16s(&[1, 2, 77, 3, 99])), 50);
        assert!(text.contains("wide.bin has token id 77 at position 2"), "{text}");
        assert!(text.contains("beyond the vocabulary of 50"), "{text}");
    }

    #[test]
    fn unchecked_tokens_are_checked_when_read() {
        let file = TokenFile::from_text(vec![7; 100], 256, "text").unwrap().with_vocab(5);
        let text = file.read(40, &mut [0; 10]).unwrap_err().to_string();
        assert!(text.contains("token id 7 at position 40"), "{text}");
    }
}
