//! Files of tokens, memory-mapped: opening one costs no memory, however large it is.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;
use rayon::prelude::*;

use super::ids::{Encoding, Ids};
use super::token_layout::{OpenedTokens, TokenLayout};
use super::{DataError, DataFormat, DataInput, FileProblem, TokenizerRecord};

/// Tokens that are checked against the vocabulary when a file is opened. Later ones are checked when they are read,
/// so that opening a file of any size stays quick.
const CHECKED_AT_START: usize = 1 << 26;

/// A sequence of tokens whose ids are below a vocabulary size.
#[derive(Debug)]
pub struct TokenFile {
    content: Arc<FileContent>,
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

#[derive(Debug)]
enum FileContent {
    /// The mapping, and the file, whose length is checked again.
    Mapped(Mmap, File),
    Owned(Vec<u8>),
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
        let content = FileContent::of_input(input)?;
        let bytes = content.bytes();
        if bytes.is_empty() {
            return Err(DataError::Empty { name });
        }
        let layout = if format.is_tokens() {
            TokenLayout::new(&format, &OpenedTokens { path: &path, bytes, vocab, dtype })?
        } else {
            TokenLayout::of_text(bytes.len())
        };
        TokenFile::new(content, layout, vocab, name)
    }

    /// Wraps text in memory as byte tokens; `name` is its name in messages.
    ///
    /// # Errors
    /// An empty text, or a vocabulary below 256.
    pub fn from_text(text: Vec<u8>, vocab: usize, name: &str) -> Result<TokenFile, DataError> {
        let layout = TokenLayout::of_text(text.len());
        TokenFile::new(FileContent::Owned(text), layout, vocab, name.to_owned())
    }

    /// Wraps token ids in memory, for a vocabulary of `vocab`; `name` is their name in messages.
    ///
    /// # Errors
    /// No ids, and ids beyond the vocabulary.
    pub fn from_ids(ids: Ids, vocab: usize, name: &str) -> Result<TokenFile, DataError> {
        let layout = TokenLayout::without_index(ids.encoding, 0..ids.bytes.len());
        TokenFile::new(FileContent::Owned(ids.bytes), layout, vocab, name.to_owned())
    }

    fn new(
        content: FileContent,
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
        let content = Arc::new(content);
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

    /// The stored bytes of the ids.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.content.bytes()[self.bytes.clone()]
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
    /// A token beyond the vocabulary.
    ///
    /// # Panics
    /// When the range is not inside the file: a fault of the calling code, since a
    /// [`Sampler`](super::Sampler) made for this file stays inside.
    pub fn read(&self, start: usize, out: &mut [u32]) -> Result<(), DataError> {
        self.decode(start, out);
        match out.iter().position(|id| *id as usize >= self.vocab) {
            Some(at) => Err(self.unknown_token(start + at)),
            None => Ok(()),
        }
    }

    /// Copies the ids from `start` on into `out`, also those beyond the vocabulary.
    pub(super) fn decode(&self, start: usize, out: &mut [u32]) {
        let width = self.encoding.width();
        let bytes = &self.bytes()[start * width..(start + out.len()) * width];
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
    }

    /// Checks that a mapped file is as long as when it was opened. Reading the part that was cut off would end the
    /// process.
    ///
    /// # Errors
    /// A file that has become shorter.
    pub fn check_length(&self) -> Result<(), DataError> {
        let FileContent::Mapped(map, file) = &*self.content else { return Ok(()) };
        let path = || std::path::PathBuf::from(&self.name);
        let now = file.metadata().map_err(|source| DataError::Io { path: path(), source })?.len();
        if now < map.len() as u64 {
            Err(DataError::Shortened { name: self.name.clone(), bytes: map.len(), now })
        } else {
            Ok(())
        }
    }

    /// Checks the first tokens against the vocabulary on all cores.
    fn check_start(&self) -> Result<(), DataError> {
        // Ids of this width that are all in the vocabulary need no look.
        let is_unsigned = matches!(self.encoding, Encoding::Bytes | Encoding::U8 | Encoding::U16);
        if is_unsigned && self.vocab >= 1 << (8 * self.encoding.width()) {
            return Ok(());
        }
        const BLOCK: usize = 1 << 16;
        let tokens = self.len().min(CHECKED_AT_START);
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
        let id = encoding.number(&self.bytes()[position * encoding.width()..]);
        let made_by = self.tokenizer.clone().filter(|_| encoding != Encoding::Bytes).map(Box::new);
        let position = self.first + position;
        DataError::UnknownToken { name, id, position, vocab, encoding, made_by }
    }
}

impl FileContent {
    /// Maps a regular file, and reads others.
    fn of_input(input: DataInput) -> Result<FileContent, DataError> {
        let path = input.path().to_owned();
        let io = |source| DataError::Io { path: path.clone(), source };
        if let Some(file) = input.regular_file() {
            let file = file.try_clone().map_err(io)?;
            // SAFETY: the map is read only, and is read with its length of now. As for every mapped file, reading what
            // another program has cut off would end the process with a bus error; `check_length` looks before every
            // batch, which leaves the moment in between.
            let map = unsafe { Mmap::map(&file) }.map_err(io)?;
            return Ok(FileContent::Mapped(map, file));
        }
        let mut bytes = Vec::new();
        input.into_reader().read_to_end(&mut bytes).map_err(io)?;
        Ok(FileContent::Owned(bytes))
    }

    fn bytes(&self) -> &[u8] {
        match self {
            FileContent::Mapped(map, _) => map,
            FileContent::Owned(bytes) => bytes,
        }
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
            assert!(matches!(*file.content, FileContent::Mapped(..)), "{name}");
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
