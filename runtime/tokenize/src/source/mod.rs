//! The text of a file of any format, as pieces of documents.

mod compressed;
mod json_lines;
#[cfg_attr(not(feature = "parquet"), path = "no_parquet.rs")]
mod parquet;

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::Read;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use meshwright_store::data::{DataError, DataFormat, DataInput, FileProblem};

use super::TokenizeError;
use super::pieces::{Piece, Pieces, TextDocuments};
use json_lines::JsonLines;
use parquet::ParquetColumn;

/// A document of a file of records.
struct Record {
    text: String,
    /// The line or the row, from 1.
    number: u64,
}

/// The text of a file.
pub struct TextSource<'a> {
    content: Content<'a>,
    name: Arc<str>,
    consumed: Consumed,
}

enum Content<'a> {
    Text(Pieces<'a, Box<dyn Read>>),
    /// Records, and the pieces of the record that was read last.
    Records(Box<dyn Records>, VecDeque<Piece>),
}

/// A file whose records are documents.
trait Records {
    /// Reads the next record; `None` at the end.
    fn next_record(&mut self) -> Result<Option<Record>, TokenizeError>;

    /// Returns the name of a record in messages.
    fn name_of(&self, number: u64) -> String;
}

/// Bytes of the file that were read.
#[derive(Clone, Default)]
struct Consumed(Rc<Cell<u64>>);

impl<'a> TextSource<'a> {
    /// Opens the text of a file. Compressed text is decompressed while it is read.
    ///
    /// # Errors
    /// Token ids, a compressed file of another kind than text, and a file of records that cannot be read.
    pub fn open(
        input: DataInput,
        documents: &'a TextDocuments,
    ) -> Result<TextSource<'a>, TokenizeError> {
        let path = input.path().to_owned();
        let name: Arc<str> = path.display().to_string().into();
        let consumed = Consumed::default();
        let input = match input.format() {
            DataFormat::Gzip | DataFormat::Zstd => compressed::open(input, &consumed)?,
            _ => input,
        };
        let content = match input.format() {
            DataFormat::Text => Content::Text(Pieces::new(consumed.count(input), documents)),
            DataFormat::JsonLines => {
                let reader = consumed.count(input);
                let records = JsonLines::new(reader, &documents.key, name.to_string());
                Content::Records(Box::new(records), VecDeque::new())
            }
            DataFormat::Parquet => {
                let records = ParquetColumn::open(input, &documents.key, &path, &consumed)?;
                Content::Records(Box::new(records), VecDeque::new())
            }
            _ => {
                return Err(problem(&path, "it holds token ids already; give it to --data".into()));
            }
        };
        Ok(TextSource { content, name, consumed })
    }

    /// Returns true if each record of the file is a document.
    pub fn has_records(&self) -> bool {
        matches!(self.content, Content::Records(..))
    }

    /// Returns the number of bytes of the file that were read.
    pub fn consumed(&self) -> u64 {
        self.consumed.0.get()
    }

    /// Reads the next piece and its name in messages; `None` at the end. Documents without text are left out.
    pub fn next(&mut self) -> Result<Option<(Piece, Arc<str>)>, TokenizeError> {
        let (records, pieces) = match &mut self.content {
            Content::Text(pieces) => {
                let piece = pieces.next().map_err(|source| read_error(&self.name, source))?;
                return Ok(piece.map(|piece| (piece, self.name.clone())));
            }
            Content::Records(records, pieces) => (records, pieces),
        };
        while pieces.is_empty() {
            let Some(Record { text, number }) = records.next_record()? else { return Ok(None) };
            self.name = records.name_of(number).into();
            let whole = TextDocuments::default();
            let mut cut = Pieces::new(text.as_bytes(), &whole);
            let read = std::iter::from_fn(|| cut.next().transpose());
            *pieces = read.collect::<Result<_, _>>().map_err(|e| read_error(&self.name, e))?;
        }
        Ok(pieces.pop_front().map(|piece| (piece, self.name.clone())))
    }
}

impl Consumed {
    /// Returns the content of a file, whose bytes are counted when they are read; those of a file that is decompressed
    /// are counted already.
    fn count(&self, input: DataInput) -> Box<dyn Read> {
        let is_counted = Rc::strong_count(&self.0) > 1;
        let reader = input.into_reader();
        if is_counted { reader } else { self.count_reader(reader) }
    }

    fn count_reader(&self, reader: Box<dyn Read>) -> Box<dyn Read> {
        Box::new(Counted { reader, consumed: self.clone() })
    }
}

struct Counted {
    reader: Box<dyn Read>,
    consumed: Consumed,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.consumed.0.set(self.consumed.0.get() + count as u64);
        Ok(count)
    }
}

fn read_error(name: &str, source: std::io::Error) -> TokenizeError {
    TokenizeError::Read { name: name.to_owned(), source }
}

fn problem(path: &Path, problem: String) -> TokenizeError {
    TokenizeError::File(FileProblem { name: path.display().to_string(), problem })
}

/// The error of a text that was opened as data, without the name of a setting.
pub fn without_flag(error: DataError) -> TokenizeError {
    match error {
        DataError::File(problem) => TokenizeError::File(problem),
        DataError::Io { path, source } => read_error(&path.display().to_string(), source),
        DataError::SpecialFile { path, kind } => {
            let reason = format!("it is {kind}; write the text to a file, and name that");
            read_error(&path.display().to_string(), std::io::Error::other(reason))
        }
        other => TokenizeError::Data(other),
    }
}
