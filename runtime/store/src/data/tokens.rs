//! Files of tokens, memory-mapped: opening one costs no memory, however large it is.

use std::fs::{self, File};
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;
use rayon::prelude::*;

use super::ids::{Encoding, Ids};
use super::lfs::is_lfs_pointer;
use super::{DataError, TokenizerRecord};
use meshwright_os::{InputFile, kind_of_special_file};

/// Tokens that are checked against the vocabulary when a file is opened. Later ones are checked when they are read,
/// so that opening a file of any size stays quick.
const CHECKED_AT_START: usize = 1 << 26;

/// Fewest ids of a file that is refused because every second one is 0.
const MIN_ALTERNATING: usize = 64;

/// A sequence of tokens whose ids are below a vocabulary size.
#[derive(Debug)]
pub struct TokenFile {
    content: Arc<FileContent>,
    /// The bytes of the content that are its tokens.
    range: Range<usize>,
    encoding: Encoding,
    vocab: usize,
    name: String,
    /// The tokenizer that has made the tokens of a text; `None` for token ids.
    tokenizer: Option<TokenizerRecord>,
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
    /// A name that ends in `.bin` is a file of little-endian ids, any other is text by bytes. Ids are 16 bits wide
    /// when the name ends in `.u16.bin`, and 32 bits when it ends in `.u32.bin`, when `vocab` is above 65536, or when
    /// the content shows it: every second 16-bit half is zero, and not all of them are. Otherwise they are 16 bits
    /// wide.
    ///
    /// # Errors
    /// A file that is missing, a device or a socket, empty, torn in the middle of a token, has ids beyond the
    /// vocabulary or of twice the width, and text for a vocabulary below 256.
    pub fn open(path: &Path, vocab: usize) -> Result<TokenFile, DataError> {
        let name = path.display().to_string();
        let io = |source| DataError::Io { path: path.to_owned(), source };
        let mut input = open_data(path)?;
        let metadata = input.file().metadata().map_err(io)?;
        let content = if metadata.is_file() && metadata.len() > 0 {
            // SAFETY: the map is read only, and is read with its length of now. As for every mapped file, reading what
            // another program has cut off would end the process with a bus error; `check_length` looks before every
            // batch, which leaves the moment in between.
            let map = unsafe { Mmap::map(input.file()) }.map_err(io)?;
            FileContent::Mapped(map, input.into_file())
        } else {
            let mut bytes = Vec::new();
            input.read_to_end(&mut bytes).map_err(io)?;
            FileContent::Owned(bytes)
        };
        if is_lfs_pointer(content.bytes()) {
            return Err(DataError::LfsPointer { name });
        }
        if path.extension().is_none_or(|ext| ext != "bin") {
            return TokenFile::new(content, Encoding::Bytes, vocab, name);
        }
        let encoding = Encoding::of_file(path, content.bytes(), vocab);
        let is_long = content.bytes().len() >= MIN_ALTERNATING * encoding.width();
        if is_long && encoding.alternates_with_zero(content.bytes()) {
            return Err(DataError::OtherWidth { name, width: encoding.width() });
        }
        TokenFile::new(content, encoding, vocab, name)
    }

    /// Wraps text in memory as byte tokens; `name` is its name in messages.
    ///
    /// # Errors
    /// An empty text, or a vocabulary below 256.
    pub fn from_text(text: Vec<u8>, vocab: usize, name: &str) -> Result<TokenFile, DataError> {
        TokenFile::new(FileContent::Owned(text), Encoding::Bytes, vocab, name.to_owned())
    }

    /// Wraps token ids in memory, for a vocabulary of `vocab`; `name` is their name in messages.
    ///
    /// # Errors
    /// No ids, and ids beyond the vocabulary.
    pub fn from_ids(ids: Ids, vocab: usize, name: &str) -> Result<TokenFile, DataError> {
        TokenFile::new(FileContent::Owned(ids.bytes), ids.encoding, vocab, name.to_owned())
    }

    fn new(
        content: FileContent,
        encoding: Encoding,
        vocab: usize,
        name: String,
    ) -> Result<TokenFile, DataError> {
        let (bytes, width) = (content.bytes().len(), encoding.width());
        if bytes == 0 {
            return Err(DataError::Empty { name });
        }
        if !bytes.is_multiple_of(width) {
            return Err(DataError::Torn { name, bytes, width });
        }
        if encoding == Encoding::Bytes && vocab < 256 {
            return Err(DataError::SmallVocabulary { name, vocab });
        }
        let tokenizer = (encoding == Encoding::Bytes).then(TokenizerRecord::bytes);
        let (content, range) = (Arc::new(content), 0..bytes);
        let file = TokenFile { content, range, encoding, vocab, name, tokenizer };
        file.check_start()?;
        Ok(file)
    }

    /// Number of tokens, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.range.len() / self.encoding.width()
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

    /// Returns the tokenizer that has made the tokens of a text; `None` if the file has token ids.
    pub fn tokenizer(&self) -> Option<&TokenizerRecord> {
        self.tokenizer.as_ref()
    }

    /// Returns the file with the tokenizer that has made its tokens.
    #[must_use]
    pub fn tokenized_by(self, tokenizer: TokenizerRecord) -> TokenFile {
        TokenFile { tokenizer: Some(tokenizer), ..self }
    }

    /// The stored bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.content.bytes()[self.range.clone()]
    }

    /// Splits the tokens before the token at index `at`, which both parts have some of, without a copy.
    ///
    /// # Panics
    /// If a part would be empty: a fault of the calling code.
    pub fn split_at(self, at: usize) -> [TokenFile; 2] {
        assert!(0 < at && at < self.len(), "token {at} of {} splits nothing", self.len());
        let TokenFile { range, .. } = &self;
        let middle = range.start + at * self.encoding.width();
        let part = |range: Range<usize>| TokenFile {
            content: Arc::clone(&self.content),
            range,
            name: self.name.clone(),
            tokenizer: self.tokenizer.clone(),
            ..self
        };
        [range.start..middle, middle..range.end].map(part)
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
            Some(at) => Err(self.unknown_token(out[at], start + at)),
            None => Ok(()),
        }
    }

    /// Copies the ids from `start` on into `out`, also those beyond the vocabulary.
    pub(super) fn decode(&self, start: usize, out: &mut [u32]) {
        let width = self.encoding.width();
        let bytes = &self.bytes()[start * width..(start + out.len()) * width];
        match self.encoding {
            Encoding::Bytes => fill_ids(out, bytes, |[a]: [u8; 1]| u32::from(a)),
            Encoding::U16 => fill_ids(out, bytes, |pair| u32::from(u16::from_le_bytes(pair))),
            Encoding::U32 => fill_ids(out, bytes, u32::from_le_bytes),
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
        if self.vocab >= 1 << (8 * self.encoding.width()).min(32) {
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

    /// Returns the file with another vocabulary size, without a check of its tokens against it.
    #[cfg(test)]
    pub(super) fn with_vocab(self, vocab: usize) -> TokenFile {
        TokenFile { vocab, ..self }
    }

    fn unknown_token(&self, id: u32, position: usize) -> DataError {
        let (name, vocab, width) = (self.name.clone(), self.vocab, self.encoding.width());
        let position = self.range.start / width + position;
        DataError::UnknownToken { name, id, position, vocab, width }
    }
}

/// Opens a file of data, or a pipe once it has a writer. Devices, which may have no end, and sockets are refused before
/// they are opened.
///
/// # Errors
/// A file that is missing, a pipe to which no program writes, a device, a socket and a folder.
pub fn open_data(path: &Path) -> Result<InputFile, DataError> {
    let io = |source| DataError::Io { path: path.to_owned(), source };
    let file_type = fs::metadata(path).map_err(io)?.file_type();
    if file_type.is_dir() {
        return Err(io(std::io::ErrorKind::IsADirectory.into()));
    }
    match kind_of_special_file(file_type) {
        Some(kind) => Err(DataError::SpecialFile { path: path.to_owned(), kind }),
        None => InputFile::open(path).map_err(io),
    }
}

impl FileContent {
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
        let ids = [1, 500, 3, 999];
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
            assert_eq!((file.encoding(), all(&file)), (encoding, ids.to_vec()), "{name}");
        }
        assert_eq!(open("zeros.bin", &[0; 8], 1000).unwrap().encoding(), Encoding::U16);
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
            ("c.u16.bin", u32s(&ids), "as u16, so they are probably u32; name it .u32.bin"),
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
