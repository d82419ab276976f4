//! Sources of data, and their rows.

use std::ops::Range;

use super::documents::RowParts;
use super::fingerprint::ids_fingerprint;
use super::row_source::MadeRows;
use super::{
    Batch, DataError, DocumentOptions, FileRecord, Order, Packing, PackingWaste, RowStreams,
    SourceRecord, StreamData, TaskRows, TokenFile,
};

/// A source of data: files whose rows follow one another, and their weight in a mixture.
#[derive(Debug)]
pub struct DataSource {
    /// The name in metrics and messages.
    pub name: String,
    /// The weight among all sources, whose sum is any number.
    pub weight: f64,
    /// The order of its samples; `None` for that of the run.
    pub order: Option<Order>,
    /// The files, in order. No row crosses their borders.
    pub files: Vec<TokenFile>,
    /// The rows that are made instead of read from files of tokens.
    pub made: Option<Made>,
}

/// Rows that are made.
#[derive(Debug, Clone)]
pub enum Made {
    /// Rows of tokens and targets, by a program.
    OfProgram(MadeRows),
    /// Rows of streams, by a task.
    RowStreams(TaskRows),
}

impl Made {
    fn name(&self) -> &str {
        match self {
            Made::OfProgram(rows) => rows.source().name(),
            Made::RowStreams(rows) => rows.name(),
        }
    }

    fn rows(&self) -> u64 {
        match self {
            Made::OfProgram(rows) => rows.source().rows(),
            Made::RowStreams(rows) => rows.rows(),
        }
    }

    fn fingerprint(&self) -> String {
        match self {
            Made::OfProgram(rows) => rows.source().fingerprint(),
            Made::RowStreams(rows) => rows.fingerprint(),
        }
    }
}

impl DataSource {
    /// Creates a source of one file, which has its name.
    pub fn of_file(file: TokenFile) -> DataSource {
        let name = file.name().to_owned();
        DataSource::of_files(name, vec![file])
    }

    /// Creates a source of files.
    pub fn of_files(name: String, files: Vec<TokenFile>) -> DataSource {
        DataSource { name, weight: 1.0, order: None, files, made: None }
    }

    /// Creates a source of rows that a program makes.
    pub fn of_rows(rows: MadeRows) -> DataSource {
        DataSource::of_made(Made::OfProgram(rows))
    }

    /// Creates a source of rows that a task makes of examples.
    pub fn of_task(rows: TaskRows) -> DataSource {
        DataSource::of_made(Made::RowStreams(rows))
    }

    fn of_made(made: Made) -> DataSource {
        let name = made.name().to_owned();
        DataSource { made: Some(made), ..DataSource::of_files(name, Vec::new()) }
    }

    /// Returns the number of tokens of all files.
    pub fn tokens(&self) -> usize {
        self.files.iter().map(TokenFile::len).sum()
    }
}

/// The rows of a source.
#[derive(Debug)]
pub(super) struct SourceRows {
    files: Vec<FileRows>,
    made: Option<Made>,
    rows: u64,
    seq: usize,
    /// Tokens of all data before this source.
    first_token: usize,
}

/// The rows of a file.
#[derive(Debug)]
struct FileRows {
    tokens: TokenFile,
    /// The rows, if they are packed with documents.
    packing: Option<Packing>,
    /// [`Packing::fingerprint`].
    packing_fingerprint: Option<String>,
    /// Rows of the files before this one.
    first_row: u64,
    /// Tokens of all data before this file.
    first_token: usize,
}

/// Rules by which rows are made of tokens.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowOptions {
    pub seq: usize,
    pub documents: Option<DocumentOptions>,
    /// Each target of a file is in a row: the last row of a file may be shorter than others. Otherwise the tokens after
    /// the last whole row are in none.
    pub has_short_rows: bool,
}

impl SourceRows {
    /// Divides the files of a source into rows. `first_token` is the number of tokens of the sources before it.
    ///
    /// # Errors
    /// A source without a row, and a file without the end of a document, if rows are made of documents.
    pub fn new(
        source: DataSource,
        first_token: usize,
        options: &RowOptions,
    ) -> Result<SourceRows, DataError> {
        let RowOptions { seq, documents, has_short_rows } = *options;
        let DataSource { name, files, made, .. } = source;
        if let Some(rows) = made.as_ref().map(Made::rows) {
            if rows == 0 || documents.is_some() {
                let problem = if rows == 0 {
                    "has no rows"
                } else {
                    "has rows of its own, without --documents"
                };
                return Err(DataError::Mixture(format!("{name} {problem}")));
            }
            return Ok(SourceRows { files: Vec::new(), made, rows, seq, first_token });
        }
        let longest = files.iter().map(TokenFile::len).max().unwrap_or(0);
        let (mut first_row, mut next_token) = (0, first_token);
        let mut all = Vec::with_capacity(files.len());
        for tokens in files {
            documents.map_or(Ok(()), |documents| documents.check_file(&tokens))?;
            let packs = documents.filter(|documents| documents.packs);
            let packing = packs.map(|documents| Packing::new(&tokens, &documents, seq));
            let packing = packing.transpose()?;
            let targets = tokens.len() - 1;
            let rows = match &packing {
                Some(packing) => packing.rows(),
                None if has_short_rows => targets.div_ceil(seq),
                None => targets / seq,
            };
            let len = tokens.len();
            let packing_fingerprint = packing.as_ref().map(Packing::fingerprint);
            let first_token = next_token;
            all.push(FileRows { tokens, packing, packing_fingerprint, first_row, first_token });
            first_row += rows as u64;
            next_token += len;
        }
        let has_row = first_row > 0 && (longest > seq || documents.is_some_and(|own| own.packs));
        if !has_row {
            return Err(DataError::TooShort { name, tokens: longest, seq });
        }
        Ok(SourceRows { files: all, made: None, rows: first_row, seq, first_token })
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the tokens of all files, or those of all rows that are made.
    pub fn tokens(&self) -> usize {
        if self.made.is_some() {
            return (self.rows as usize).saturating_mul(self.seq);
        }
        self.files.iter().map(|file| file.tokens.len()).sum()
    }

    /// Returns the files.
    pub fn files(&self) -> impl ExactSizeIterator<Item = &TokenFile> {
        self.files.iter().map(|file| &file.tokens)
    }

    /// Returns the files that are too short for a row.
    pub fn files_without_rows(&self) -> impl Iterator<Item = &TokenFile> {
        let ends = self.files.iter().skip(1).map(|file| file.first_row).chain([self.rows]);
        let empty = self.files.iter().zip(ends).filter(|(file, end)| file.first_row == *end);
        empty.map(|(file, _)| &file.tokens)
    }

    /// Returns the padding and the cut documents of each file; nothing, if rows are not packed.
    pub fn packing_wastes(&self) -> impl Iterator<Item = PackingWaste> {
        self.files.iter().filter_map(|file| Some(file.packing.as_ref()?.waste()))
    }

    /// Returns the fingerprint of the packed rows of the first file; `None` if rows are not packed.
    pub fn packing_of_first(&self) -> Option<&str> {
        self.files.first()?.packing_fingerprint.as_deref()
    }

    /// Returns the number of padding tokens of a row; `None` if rows are not packed.
    pub fn padding(&self, row: u64) -> Option<usize> {
        if self.made.is_some() {
            return None;
        }
        let (file, row) = self.file_of(row);
        Some(file.packing.as_ref()?.padding(row))
    }

    /// Reads a row, and returns the index of its first token in all data.
    ///
    /// # Errors
    /// A token beyond the vocabulary, and a file that has become shorter.
    pub fn read_row(
        &self,
        row: u64,
        documents: Option<&DocumentOptions>,
        mut parts: RowParts<'_>,
    ) -> Result<usize, DataError> {
        if let Some(Made::OfProgram(made)) = &self.made {
            made.write_row(row, parts.tokens, parts.targets)?;
            return Ok(self.made_start(row));
        }
        let (file, row) = self.file_of(row);
        file.tokens.check_length()?;
        if let (Some(packing), Some(documents)) = (&file.packing, documents) {
            packing.read_row(&file.tokens, row, documents, parts)?;
            return Ok(file.first_token + packing.start(row));
        }
        let start = row * parts.tokens.len();
        let held = parts.tokens.len().min(file.tokens.len() - 1 - start);
        file.tokens.read(start, &mut parts.tokens[..held])?;
        file.tokens.read(start + 1, &mut parts.targets[..held])?;
        parts.targets[held..].fill(Batch::IGNORED);
        if let Some(documents) = documents {
            documents.separate(&file.tokens, start, &mut parts);
        }
        Ok(file.first_token + start)
    }

    /// Visits the tokens that a row is read from: the index of the file, the file, and a range.
    pub fn spans<'a>(
        &'a self,
        row: u64,
        mut visit: impl FnMut(usize, &'a TokenFile, Range<usize>),
    ) {
        if self.made.is_some() {
            return;
        }
        let (file, row) = self.file_of(row);
        let index = self.files.partition_point(|other| other.first_row <= file.first_row) - 1;
        let tokens = &file.tokens;
        match &file.packing {
            Some(packing) => packing.spans(row).for_each(|span| {
                visit(index, tokens, span.start..tokens.len().min(span.end + 1));
            }),
            None => {
                let start = row * self.seq;
                visit(index, tokens, start..tokens.len().min(start + self.seq + 1));
            }
        }
    }

    /// Returns the streams of its rows, if a task makes them.
    pub fn streams(&self) -> Option<&RowStreams> {
        match &self.made {
            Some(Made::RowStreams(rows)) => Some(rows.streams()),
            _ => None,
        }
    }

    /// Writes a row of an epoch, which a task makes, as row `index` of `data`. Returns its position in all data.
    ///
    /// # Errors
    /// An example that cannot be read, or made a row of.
    ///
    /// # Panics
    /// If no task makes the rows: a fault of the calling code.
    pub fn write_streams(
        &self,
        epoch: u64,
        row: u64,
        data: &mut [StreamData],
        index: usize,
    ) -> Result<usize, DataError> {
        let Some(Made::RowStreams(rows)) = &self.made else {
            unreachable!("a task makes the rows")
        };
        rows.write_row(epoch, row, data, index)?;
        Ok(self.made_start(row))
    }

    /// Returns the index of the first token of a row that is made.
    fn made_start(&self, row: u64) -> usize {
        self.first_token + row as usize * self.seq
    }

    /// Returns the record of the source for [`DataPosition`](super::DataPosition); `blocks` of its files are hashed.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn record(
        &self,
        name: &str,
        rows_of_block: u64,
        order: Order,
        blocks: usize,
    ) -> Result<SourceRecord, DataError> {
        let record = |file: &FileRows| {
            Ok(FileRecord {
                file: file.tokens.name().to_owned(),
                tokens: file.tokens.len(),
                ids: ids_fingerprint(&file.tokens, (blocks / self.files.len()).max(4))?,
                packing: file.packing_fingerprint.clone(),
            })
        };
        let files = match &self.made {
            Some(made) => vec![FileRecord {
                file: match made {
                    Made::OfProgram(_) => name.to_owned(),
                    Made::RowStreams(rows) => rows.described(),
                },
                tokens: self.tokens(),
                ids: made.fingerprint(),
                packing: None,
            }],
            None => self.files.iter().map(record).collect::<Result<_, DataError>>()?,
        };
        Ok(SourceRecord { name: name.to_owned(), rows: rows_of_block, order, files })
    }

    /// Returns the file of a row, and the row in it.
    fn file_of(&self, row: u64) -> (&FileRows, usize) {
        let file = self.files.partition_point(|file| file.first_row <= row) - 1;
        (&self.files[file], (row - self.files[file].first_row) as usize)
    }
}
