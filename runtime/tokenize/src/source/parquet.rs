//! Parquet: the text of a document in each row of a column.

use std::collections::VecDeque;
use std::io::Read;
use std::path::Path;

use bytes::Bytes;
use parquet::basic::{ConvertedType, LogicalType, Type};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::errors::ParquetError;
use parquet::file::reader::FileReader;
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::schema::types::ColumnDescriptor;

use meshwright_store::data::DataInput;

use super::{Consumed, Record, Records, TokenizeError, problem, read_error};

/// Most bytes of a file that is compressed as a whole, or a pipe: it is held in memory.
const MAX_HELD: u64 = 1 << 30;

/// Rows that are read together.
const ROWS: usize = 256;

/// A column of a file.
pub struct ParquetColumn {
    file: Box<dyn FileReader>,
    column: usize,
    key: String,
    name: String,
    /// Number of groups of rows that were opened, and the reader of the last one.
    groups: usize,
    reader: Option<ColumnReaderImpl<ByteArrayType>>,
    /// Rows that were read.
    rows: VecDeque<ByteArray>,
    /// Number of rows that were returned.
    number: u64,
    consumed: Consumed,
}

impl ParquetColumn {
    /// Opens the column of text called `key`. A file that is compressed as a whole, or a pipe, is held in memory.
    ///
    /// # Errors
    /// A damaged file, a column that does not exist or has no text, and more content than fits in memory.
    pub fn open(
        input: DataInput,
        key: &str,
        path: &Path,
        consumed: &Consumed,
    ) -> Result<ParquetColumn, TokenizeError> {
        let name = path.display().to_string();
        let file: Result<Box<dyn FileReader>, ParquetError> = match input.regular_file() {
            Some(file) => {
                let file = file.try_clone().map_err(|source| read_error(&name, source))?;
                SerializedFileReader::new(file).map(|file| Box::new(file) as _)
            }
            None => {
                let mut bytes = Vec::new();
                let mut limited = input.into_reader().take(MAX_HELD + 1);
                let read = limited.read_to_end(&mut bytes);
                read.map_err(|source| read_error(&name, source))?;
                if bytes.len() as u64 > MAX_HELD {
                    let gibibytes = MAX_HELD >> 30;
                    return Err(problem(
                        path,
                        format!(
                            "its Parquet content has more than {gibibytes} GiB, which is held in memory if it is \
                                 compressed or a pipe; unpack it to a file"
                        ),
                    ));
                }
                SerializedFileReader::new(Bytes::from(bytes)).map(|file| Box::new(file) as _)
            }
        };
        let file = file.map_err(|error| problem(path, damaged(&error)))?;
        let column = find_column(file.as_ref(), key).map_err(|reason| problem(path, reason))?;
        Ok(ParquetColumn {
            file,
            column,
            key: key.to_owned(),
            name,
            groups: 0,
            reader: None,
            rows: VecDeque::new(),
            number: 0,
            consumed: consumed.clone(),
        })
    }

    /// Reads the next rows; none at the end.
    fn read_rows(&mut self) -> Result<(), String> {
        while self.rows.is_empty() {
            let Some(reader) = &mut self.reader else {
                if !self.begin_group().map_err(|error| damaged(&error))? {
                    return Ok(());
                }
                continue;
            };
            let (mut values, mut levels) = (Vec::new(), Vec::new());
            let read = reader.read_records(ROWS, Some(&mut levels), None, &mut values);
            let (rows, n_values, _) = read.map_err(|error| damaged(&error))?;
            if rows == 0 {
                self.reader = None;
            } else if n_values < rows {
                let null = levels.iter().position(|level| *level == 0).unwrap_or(0);
                let row = self.number + null as u64 + 1;
                return Err(format!(
                    "`{}` is null in row {row}; leave such rows out, such as by pandas: \
                     table.dropna(subset=['{0}']).to_parquet('out.parquet')",
                    self.key
                ));
            }
            self.rows.extend(values);
        }
        Ok(())
    }

    /// Opens the next group of rows; returns false at the end.
    fn begin_group(&mut self) -> Result<bool, ParquetError> {
        if self.groups == self.file.num_row_groups() {
            return Ok(false);
        }
        let group = self.file.get_row_group(self.groups)?;
        let bytes = group.metadata().compressed_size();
        self.consumed.0.set(self.consumed.0.get() + bytes.max(0) as u64);
        match group.get_column_reader(self.column)? {
            ColumnReader::ByteArrayColumnReader(reader) => self.reader = Some(reader),
            _ => return Err(ParquetError::General("a column changes its type".into())),
        }
        self.groups += 1;
        Ok(true)
    }
}

impl Records for ParquetColumn {
    fn next_record(&mut self) -> Result<Option<Record>, TokenizeError> {
        self.read_rows().map_err(|reason| problem(self.name.as_ref(), reason))?;
        let Some(value) = self.rows.pop_front() else { return Ok(None) };
        self.number += 1;
        match std::str::from_utf8(value.data()) {
            Ok(text) => Ok(Some(Record { text: text.to_owned(), number: self.number })),
            Err(_) => {
                let reason =
                    format!("`{}` is not UTF-8 text; write the column as strings", self.key);
                Err(problem(self.name_of(self.number).as_ref(), reason))
            }
        }
    }

    fn name_of(&self, number: u64) -> String {
        format!("{}, row {number}", self.name)
    }
}

/// Returns the index of the column of text called `key`.
fn find_column(file: &dyn FileReader, key: &str) -> Result<usize, String> {
    let schema = file.metadata().file_metadata().schema_descr();
    let columns = schema.columns();
    let name = |column: &ColumnDescriptor| column.path().string();
    let Some(index) = columns.iter().position(|column| name(column) == key) else {
        if columns.iter().any(|column| name(column).starts_with(&format!("{key}."))) {
            return Err(format!(
                "the column `{key}` holds lists or structures, not strings; name the column of the text by --text-key"
            ));
        }
        let names: Vec<String> = columns.iter().map(|column| name(column)).collect();
        return Err(format!(
            "it has no column `{key}`; its columns are {}; name the one with the text by --text-key",
            names.join(", ")
        ));
    };
    let column = &columns[index];
    let is_text =
        matches!(column.logical_type_ref(), None | Some(LogicalType::String | LogicalType::Json))
            && matches!(
                column.converted_type(),
                ConvertedType::NONE | ConvertedType::UTF8 | ConvertedType::JSON
            )
            && column.physical_type() == Type::BYTE_ARRAY;
    if !is_text || column.max_rep_level() > 0 {
        let repeated = if column.max_rep_level() > 0 { "lists of " } else { "" };
        let stated = column.logical_type_ref().map(|stated| format!("{stated:?}"));
        return Err(format!(
            "the column `{key}` holds {repeated}{}, not strings; name the column of the text by --text-key",
            stated.unwrap_or_else(|| column.physical_type().to_string())
        ));
    }
    Ok(index)
}

fn damaged(error: &ParquetError) -> String {
    let error = error.to_string();
    let reason = error.split_once("error: ").map_or(error.as_str(), |(_, reason)| reason);
    format!(
        "it cannot be read as Parquet ({reason}); it is truncated or damaged, or has an unusual codec: get the file \
             again, or write it by snappy, zstd or gzip"
    )
}
