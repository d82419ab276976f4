//! Cutting text into documents and pieces.

use std::io::Read;

/// Most bytes of a piece: small enough that many are in memory together, large enough that few documents are cut.
const PIECE: usize = 1 << 16;

/// The separation of a text into documents.
///
/// Documents are tokenized one by one, so nothing is ever merged across their border. A document of more than 64 KiB is
/// cut into pieces; each is tokenized like a document of its own. A piece ends
///
/// 1. after the last line break in its 64 KiB that stands between two characters which are not white space, where the
///    pre-tokenizers of GPT-2, Llama 3 and Qwen cut too, so that the ids are the same as of the whole document;
/// 2. without such a line break, before the last space after a character that is not white space;
/// 3. without such a space, after the last whole character.
///
/// Borders follow from the text alone, not from the number of cores or how the text arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextDocuments {
    /// The text that ends a document of plain text and belongs to none; `None` takes each file for one document.
    /// Documents without text are left out.
    pub separator: Option<String>,
    /// The key of the text in the lines of a JSONL file, and the column of the text in a Parquet file.
    pub key: String,
    /// The token that is put before each document.
    pub begin: Option<u32>,
    /// The token that is put after each document.
    pub end: Option<u32>,
    /// The tokens that are put after each line of a JSONL file and each row of a Parquet file, instead of `end`; for
    /// `None`, those of [`Tokenizer::default_end`](super::Tokenizer::default_end).
    pub record_end: Option<Vec<u32>>,
}

impl Default for TextDocuments {
    fn default() -> TextDocuments {
        let key = "text".to_owned();
        TextDocuments { separator: None, key, begin: None, end: None, record_end: None }
    }
}

/// A piece of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub text: Vec<u8>,
    /// Index of its first byte in the file.
    pub position: u64,
    /// Set for the first piece of a document.
    pub is_first: bool,
    /// Set for the last piece of a document.
    pub is_last: bool,
}

/// Cuts the text of a reader.
pub struct Pieces<'a, R> {
    reader: R,
    separator: Option<&'a [u8]>,
    size: usize,
    /// Text that was read; `..start` of it was returned.
    buffer: Vec<u8>,
    start: usize,
    /// Index of `buffer[0]` in the file.
    position: u64,
    at_end: bool,
    /// Set once a piece of the current document was returned.
    inside: bool,
}

impl<'a, R: Read> Pieces<'a, R> {
    pub fn new(reader: R, documents: &'a TextDocuments) -> Pieces<'a, R> {
        Pieces::of_size(reader, documents, PIECE)
    }

    fn of_size(reader: R, documents: &'a TextDocuments, size: usize) -> Pieces<'a, R> {
        let separator = documents.separator.as_deref().map(str::as_bytes);
        let separator = separator.filter(|separator| !separator.is_empty());
        let (buffer, start, position) = (Vec::new(), 0, 0);
        Pieces { reader, separator, size, buffer, start, position, at_end: false, inside: false }
    }

    /// Reads the next piece; `None` at the end.
    pub fn next(&mut self) -> std::io::Result<Option<Piece>> {
        loop {
            self.fill_buffer()?;
            let unread = &self.buffer[self.start..];
            if unread.is_empty() && !self.inside {
                return Ok(None);
            }
            let (len, skipped, is_last) = self.next_border(unread);
            let piece = Piece {
                text: unread[..len].to_vec(),
                position: self.position + self.start as u64,
                is_first: !self.inside,
                is_last,
            };
            self.start += len + skipped;
            let is_document = self.inside || len > 0;
            self.inside = !is_last;
            if is_document {
                return Ok(Some(piece));
            }
        }
    }

    /// Returns the length of the first piece of `unread`, the length of the separator after it, and true if a document
    /// ends there.
    fn next_border(&self, unread: &[u8]) -> (usize, usize, bool) {
        let window = &unread[..unread.len().min(self.size)];
        if let Some(separator) = self.separator {
            // A separator may begin with the last byte of the window, or right after it.
            let reach = unread.len().min(self.size + separator.len());
            if let Some(at) = find_word(&unread[..reach], separator) {
                return (at, separator.len(), true);
            }
        }
        // A separator that begins inside the window is whole in the text read so far, except at the end of the file.
        if self.at_end && unread.len() <= self.size {
            (unread.len(), 0, true)
        } else {
            (cut_position(window, &unread[window.len()..]), 0, false)
        }
    }

    /// Reads until a piece and the separator after it are in the buffer, or the file ends.
    fn fill_buffer(&mut self) -> std::io::Result<()> {
        let wanted = self.size + self.separator.map_or(0, <[u8]>::len) + 1;
        if self.at_end || self.buffer.len() - self.start >= wanted {
            return Ok(());
        }
        self.buffer.drain(..self.start);
        self.position += self.start as u64;
        self.start = 0;
        // Several pieces per read, so that little is moved.
        let missing = (4 * wanted - self.buffer.len()) as u64;
        let read = self.reader.by_ref().take(missing).read_to_end(&mut self.buffer)?;
        self.at_end = (read as u64) < missing;
        Ok(())
    }
}

fn find_word(text: &[u8], word: &[u8]) -> Option<usize> {
    let first = word[0];
    let mut from = 0;
    while let Some(at) = text[from..].iter().position(|byte| *byte == first) {
        let at = from + at;
        if text[at..].starts_with(word) {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

/// Returns the position at which `window`, followed by `after`, is cut: at least after its first byte.
fn cut_position(window: &[u8], after: &[u8]) -> usize {
    let at = |index: usize| window.get(index).or_else(|| after.get(index - window.len())).copied();
    let is_dark = |index: usize| at(index).is_some_and(|byte| !byte.is_ascii_whitespace());
    let after_line = (2..=window.len())
        .rev()
        .find(|end| window[end - 1] == b'\n' && is_dark(end - 2) && is_dark(*end));
    let before_space =
        || (1..window.len()).rev().find(|end| window[*end] == b' ' && is_dark(end - 1));
    let is_inside_character = |index: usize| at(index).is_some_and(|byte| byte & 0xc0 == 0x80);
    let after_character = || (1..=window.len()).rev().find(|end| !is_inside_character(*end));
    after_line.or_else(before_space).or_else(after_character).unwrap_or(window.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns one byte at a time.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let len = out.len().min(self.0.len()).min(1);
            out[..len].copy_from_slice(&self.0[..len]);
            self.0 = &self.0[len..];
            Ok(len)
        }
    }

    fn all<R: Read>(mut pieces: Pieces<'_, R>) -> Vec<Piece> {
        std::iter::from_fn(|| pieces.next().unwrap()).collect()
    }

    fn pieces(text: &str, separator: Option<&str>, size: usize) -> Vec<Piece> {
        let separator = separator.map(str::to_owned);
        let documents = TextDocuments { separator, ..TextDocuments::default() };
        let found = all(Pieces::of_size(text.as_bytes(), &documents, size));
        let slow = all(Pieces::of_size(Slow(text.as_bytes()), &documents, size));
        assert_eq!(found, slow, "how the text arrives makes no difference");
        let mut is_first = true;
        for piece in &found {
            assert_eq!(piece.is_first, is_first);
            is_first = piece.is_last;
        }
        for piece in &found {
            let start = piece.position as usize;
            assert_eq!(&text.as_bytes()[start..start + piece.text.len()], piece.text);
        }
        found
    }

    /// The pieces with `|` after the last one of a document.
    fn texts(text: &str, separator: Option<&str>, size: usize) -> Vec<String> {
        let show = |piece: Piece| {
            let end = if piece.is_last { "|" } else { "" };
            String::from_utf8(piece.text).unwrap() + end
        };
        pieces(text, separator, size).into_iter().map(show).collect()
    }

    #[test]
    fn a_file_is_one_document() {
        assert_eq!(texts("one\n\ntwo\n", None, 100), ["one\n\ntwo\n|"]);
        assert_eq!(texts("", None, 100), [""; 0]);
        assert_eq!(texts("12345", None, 5), ["12345|"]);
    }

    #[test]
    fn separators_end_documents_and_belong_to_none() {
        assert_eq!(texts("a\nbc\n\n\nd", Some("\n"), 100), ["a|", "bc|", "d|"]);
        assert_eq!(texts("aXYbXXYcX", Some("XY"), 100), ["a|", "bX|", "cX|"]);
        assert_eq!(texts("XYXY", Some("XY"), 100), [""; 0]);
        assert_eq!(texts("a\nb", Some(""), 100), ["a\nb|"]);
    }

    #[test]
    fn separators_are_found_at_any_piece_end() {
        for len in 0..20 {
            for size in 2..9 {
                let text = format!("{}<e>{}", "a".repeat(len), "b".repeat(len));
                let joined = texts(&text, Some("<e>"), size).concat();
                let expected = format!("{0}|{1}|", "a".repeat(len), "b".repeat(len));
                assert_eq!(joined, if len == 0 { "" } else { &expected }, "{len} {size}");
            }
        }
    }

    #[test]
    fn long_documents_are_cut_where_tokens_end() {
        // After a line break between two dark characters, though a later one is there.
        assert_eq!(texts("ab\ncd\n\nef gh", None, 8), ["ab\n", "cd\n\nef", " gh|"]);
        // Before a space, which belongs to the word after it.
        assert_eq!(texts("abc def  ghi", None, 10), ["abc def", "  ghi|"]);
        assert_eq!(texts("abc def gh", None, 6), ["abc", " def", " gh|"]);
        // Between characters.
        assert_eq!(texts("ääää", None, 3), ["ä", "ä", "ä", "ä|"]);
        assert_eq!(texts("abcdefg", None, 3), ["abc", "def", "g|"]);
        // The line break at the very end of the window counts when the next character is dark.
        assert_eq!(texts("abc\ndef", None, 4), ["abc\n", "def|"]);
        assert_eq!(texts("abc\n\ndef", None, 4), ["abc\n", "\ndef|"]);
    }

    #[test]
    fn nothing_is_lost_and_no_piece_is_too_long() {
        let text: String = (0..400).map(|n| ["word ", "\n", "é", "x", "  "][n * n % 5]).collect();
        for size in 4..60 {
            let found = pieces(&text, None, size);
            assert!(found.iter().all(|piece| piece.text.len() <= size), "{size}");
            let (last, rest) = found.split_last().unwrap();
            assert!(last.is_last && rest.iter().all(|piece| !piece.is_last), "{size}");
            let joined: Vec<u8> = found.into_iter().flat_map(|piece| piece.text).collect();
            assert_eq!(joined, text.as_bytes(), "{size}");
        }
    }

    #[test]
    fn a_document_that_ends_with_a_piece_ends_once() {
        // The separator comes right after a full window.
        assert_eq!(texts("abcd;ef", Some(";"), 4), ["abcd|", "ef|"]);
        assert_eq!(texts("abcd;", Some(";"), 4), ["abcd|"]);
    }
}
