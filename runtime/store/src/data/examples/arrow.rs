//! Arrow files in the streaming IPC format, mapped: a record batch is decoded without a copy when one of its rows is
//! read first.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::read_record_batch;
use arrow_ipc::{MessageHeader, root_as_message};
use arrow_schema::SchemaRef;
use bytes::Bytes;
use memmap2::Mmap;

use super::arrow_row::{check_type, read_field};
use crate::data::fingerprint::hash_file_blocks;
use crate::data::{DataError, Example, ExampleSource, FileProblem};

/// First bytes of a message.
const CONTINUATION: [u8; 4] = [0xff; 4];

const DAMAGED: &str = "it is damaged or not complete; save the dataset again";

/// The rows of a file.
struct ArrowRows {
    name: String,
    folder: Arc<Path>,
    content: Buffer,
    schema: SchemaRef,
    batches: Vec<Batch>,
    fingerprint: String,
    /// The file, whose length is checked again.
    file: File,
}

/// A record batch in the file.
struct Batch {
    /// The first row, and the one after the last.
    rows: Range<u64>,
    /// Bytes of the header and of the columns.
    header: Range<usize>,
    body: Range<usize>,
    decoded: OnceLock<RecordBatch>,
}

/// Opens a file. Its rows are read when they are used.
///
/// # Errors
/// A file of another format, a damaged one, one without rows, and columns of types that are not read.
pub fn open_arrow(path: &Path) -> Result<Box<dyn ExampleSource>, DataError> {
    let io = |source| DataError::Io { path: path.to_owned(), source };
    let name = path.display().to_string();
    let problem = |problem: String| {
        DataError::File(FileProblem { name: path.display().to_string(), problem })
    };
    let file = File::open(path).map_err(io)?;
    let len = file.metadata().map_err(io)?.len();
    if len == 0 {
        return Err(DataError::Empty { name });
    }
    let fingerprint = format!("{:016x}", hash_file_blocks(&file, len).map_err(io)?);
    // SAFETY: the map is read only, and is read with its length of now. As for every mapped file, reading what another
    // program has cut off would end the process with a bus error; `read` looks before every row.
    let map = unsafe { Mmap::map(&file) }.map_err(io)?;
    let content = Buffer::from(Bytes::from_owner(map));
    let (schema, batches) = read_headers(&content).map_err(problem)?;
    for field in schema.fields() {
        check_type(field.data_type()).map_err(|kind| {
            problem(format!(
                "the column `{}` is of type {kind}, which is not read; remove it (remove_columns)",
                field.name()
            ))
        })?;
    }
    if batches.iter().all(|batch| batch.rows.is_empty()) {
        return Err(DataError::Empty { name });
    }
    let folder = path.parent().unwrap_or(Path::new("")).into();
    let rows = ArrowRows { name, folder, content, schema, batches, fingerprint, file };
    rows.decoded(&rows.batches[0]).map_err(problem)?;
    Ok(Box::new(rows))
}

/// Finds the schema and all record batches.
fn read_headers(content: &[u8]) -> Result<(SchemaRef, Vec<Batch>), String> {
    if content.starts_with(b"ARROW1") {
        return Err("it is in the file format of Arrow (or Feather), not in the streaming format; save it by \
                    save_to_disk of datasets"
            .to_owned());
    }
    let word = |at: usize| content.get(at..at + 4).and_then(|word| word.try_into().ok());
    let (mut at, mut rows) = (0, 0);
    let (mut schema, mut batches) = (None, Vec::new());
    while at < content.len() {
        if word(at) != Some(CONTINUATION) {
            return Err(DAMAGED.to_owned());
        }
        let len = word(at + 4).map(u32::from_le_bytes).ok_or(DAMAGED)? as usize;
        if len == 0 {
            break;
        }
        let header = at + 8..at + 8 + len;
        let message = content.get(header.clone()).ok_or(DAMAGED)?;
        let message = root_as_message(message).map_err(|error| format!("{DAMAGED} ({error})"))?;
        let body_len = usize::try_from(message.bodyLength()).map_err(|_| DAMAGED)?;
        let end = header.end.checked_add(body_len).filter(|end| *end <= content.len());
        let body = header.end..end.ok_or(DAMAGED)?;
        at = body.end;
        match message.header_type() {
            MessageHeader::Schema => {
                let found = message.header_as_schema().ok_or(DAMAGED)?;
                let found =
                    try_fb_to_schema(found).map_err(|error| format!("{DAMAGED} ({error})"))?;
                schema = Some(Arc::new(found));
            }
            MessageHeader::RecordBatch => {
                let batch = message.header_as_record_batch().ok_or(DAMAGED)?;
                let count = u64::try_from(batch.length()).map_err(|_| DAMAGED)?;
                // Arrow does not check them.
                let is_inside = |buffer: &arrow_ipc::Buffer| {
                    let [offset, len] = [buffer.offset(), buffer.length()].map(u64::try_from);
                    let end = offset.ok().zip(len.ok()).and_then(|(at, len)| at.checked_add(len));
                    end.is_some_and(|end| end <= body_len as u64) && buffer.offset() % 8 == 0
                };
                if !batch.buffers().is_some_and(|buffers| buffers.iter().all(is_inside)) {
                    return Err(DAMAGED.to_owned());
                }
                let decoded = OnceLock::new();
                batches.push(Batch { rows: rows..rows + count, header, body, decoded });
                rows += count;
            }
            _ => {
                return Err("it has columns with dictionaries, which are not read; store their values (in pandas by \
                            astype(str))"
                    .to_owned());
            }
        }
    }
    Ok((schema.ok_or(DAMAGED)?, batches))
}

impl ArrowRows {
    /// Returns a record batch, which is decoded at its first use.
    fn decoded<'a>(&self, batch: &'a Batch) -> Result<&'a RecordBatch, String> {
        if let Some(decoded) = batch.decoded.get() {
            return Ok(decoded);
        }
        let message = root_as_message(&self.content[batch.header.clone()]);
        let message = message.map_err(|error| error.to_string())?;
        let header = message.header_as_record_batch().ok_or("the header is damaged")?;
        let body = self.content.slice_with_length(batch.body.start, batch.body.len());
        let (schema, none) = (Arc::clone(&self.schema), HashMap::new());
        // The reader of Arrow checks damaged lengths by assertions.
        let decoded = catch_unwind(AssertUnwindSafe(|| {
            read_record_batch(&body, header, schema, &none, None, &message.version())
        }));
        let decoded = decoded.map_err(|_| DAMAGED)?.map_err(|error| error.to_string())?;
        Ok(batch.decoded.get_or_init(|| decoded))
    }

    fn read_row(&self, index: u64) -> Result<Example, String> {
        let now = self.file.metadata().map_err(|error| error.to_string())?.len();
        if now < self.content.len() as u64 {
            return Err("the file was cut off while it was read".to_owned());
        }
        let batch = self.batches.partition_point(|batch| batch.rows.end <= index);
        let batch = &self.batches[batch];
        let (columns, row) = (self.decoded(batch)?, (index - batch.rows.start) as usize);
        let fields = self.schema.fields().iter().zip(columns.columns());
        let field = |(field, column): (&arrow_schema::FieldRef, &arrow_array::ArrayRef)| {
            (field.name().clone(), read_field(column, row))
        };
        Ok(Example::new(fields.map(field)).in_folder(Arc::clone(&self.folder)))
    }
}

impl ExampleSource for ArrowRows {
    fn name(&self) -> &str {
        &self.name
    }

    fn examples(&self) -> u64 {
        self.batches.last().map_or(0, |batch| batch.rows.end)
    }

    fn fingerprint(&self) -> String {
        self.fingerprint.clone()
    }

    fn read(&self, index: u64) -> io::Result<Example> {
        self.read_row(index).map_err(|reason| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("row {} of {}: {reason}", index + 1, self.name),
            )
        })
    }
}
