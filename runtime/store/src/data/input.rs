//! Files of data that are opened: their format, and their content as bytes or as a stream.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{Cursor, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use meshwright_os::{InputFile, kind_of_special_file};

use super::byte_source::{ByteSource, LocalBytes};
use super::distant_input::DistantInput;
use super::format::{HEAD_BYTES, TextSample};
use super::place::{PartReader, is_remote};
use super::token_layout::{has_index, tokens_of_index};
use super::{DataError, DataFormat, Encoding, FileProblem};

/// Parts of a file that are looked at, to see if it is text.
const SAMPLED_PARTS: usize = 16;

/// A file of data whose format is known.
pub struct DataInput {
    pub(super) path: PathBuf,
    pub(super) dtype: Option<Encoding>,
    format: DataFormat,
    /// The first bytes, which were read.
    head: Vec<u8>,
    rest: Content,
}

enum Content {
    File(InputFile),
    Stream(Box<dyn Read>),
    /// An object.
    Distant(Box<dyn ByteSource>),
}

impl DataInput {
    /// Opens a file, or a pipe once it has a writer, and determines its format. `dtype` is the width of raw ids, if it
    /// is given.
    ///
    /// # Errors
    /// A file that is missing, a pipe to which no program writes, a device, a socket and a folder; and a file of a kind
    /// that is not read, with the next step.
    pub fn open(path: &Path, dtype: Option<Encoding>) -> Result<DataInput, DataError> {
        if is_remote(path) {
            return DataInput::of_distant(DistantInput::open(path)?, dtype);
        }
        let io = |source| DataError::Io { path: path.to_owned(), source };
        // Megatron names its two files without their extensions.
        let mut index = path.as_os_str().to_owned();
        index.push(".idx");
        if !path.exists() && Path::new(&index).is_file() {
            return DataInput::open(index.as_ref(), dtype);
        }
        let mut file = open_data(path)?;
        let head = read_head(&mut file).map_err(io)?;
        if let Some(tokens) = tokens_of_index(path, &head)? {
            return DataInput::open(&tokens, dtype);
        }
        let is_regular = file.file().metadata().map_err(io)?.is_file();
        let input =
            DataInput::with_head(path, dtype, head, (Content::File(file), has_index(path)?))?;
        if let (Content::File(file), true, DataFormat::Text | DataFormat::JsonLines) =
            (&input.rest, is_regular, &input.format)
        {
            let file = file.file();
            let len = file.metadata().map_err(io)?.len() as usize;
            let sample = sample_parts(len, |part| {
                let mut bytes = vec![0; part.len()];
                let read = file.read_at(&mut bytes, part.start as u64).map_err(io)?;
                bytes.truncate(read);
                Ok(bytes.into())
            })?;
            sample.check(path).map_err(|problem| refuse(path, problem))?;
        }
        Ok(input)
    }

    /// Opens files as [`open`](Self::open), those in object storage several at a time.
    ///
    /// # Errors
    /// As [`open`](Self::open), of the first file that cannot be opened.
    pub fn open_all(paths: &[&Path], dtype: Option<Encoding>) -> Result<Vec<DataInput>, DataError> {
        let distant: Vec<&Path> = paths.iter().copied().filter(|path| is_remote(path)).collect();
        let mut distant = DistantInput::open_all(&distant).into_iter();
        let open = |path: &&Path| {
            if is_remote(path) {
                return DataInput::of_distant(distant.next().expect("it is opened")?, dtype);
            }
            DataInput::open(path, dtype)
        };
        paths.iter().map(open).collect()
    }

    fn of_distant(input: DistantInput, dtype: Option<Encoding>) -> Result<DataInput, DataError> {
        let DistantInput { path, head, source, has_index } = input;
        let (path, len) = (&*path, source.len());
        let rest = Content::Distant(source);
        let input = DataInput::with_head(path, dtype, head, (rest, has_index))?;
        if let (Content::Distant(source), DataFormat::Text | DataFormat::JsonLines) =
            (&input.rest, &input.format)
        {
            source.prepare(&sampled_parts(len).collect::<Vec<_>>());
            let sample = sample_parts(len, |part| source.part(part))?;
            sample.check(path).map_err(|problem| refuse(path, problem))?;
        }
        Ok(input)
    }

    /// Determines the format of a stream; `name` is its name in messages.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn of_stream(
        name: &Path,
        dtype: Option<Encoding>,
        mut stream: Box<dyn Read>,
    ) -> Result<DataInput, DataError> {
        let head = read_head(&mut stream)
            .map_err(|source| DataError::Io { path: name.to_owned(), source })?;
        DataInput::with_head(name, dtype, head, (Content::Stream(stream), has_index(name)?))
    }

    fn with_head(
        path: &Path,
        dtype: Option<Encoding>,
        head: Vec<u8>,
        (rest, has_index): (Content, bool),
    ) -> Result<DataInput, DataError> {
        // An empty file has no tokens, whatever it is called.
        let format = if head.is_empty() {
            DataFormat::Text
        } else {
            DataFormat::recognize(path, &head, dtype, has_index).map_err(DataError::File)?
        };
        Ok(DataInput { path: path.to_owned(), dtype, format, head, rest })
    }

    /// The format.
    pub fn format(&self) -> &DataFormat {
        &self.format
    }

    /// Returns true if there is no content.
    pub fn is_empty(&self) -> bool {
        self.head.is_empty()
    }

    /// The path of the file, or the name of the stream.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the input with another name in messages.
    #[must_use]
    pub fn named(self, path: &Path) -> DataInput {
        DataInput { path: path.to_owned(), ..self }
    }

    /// Returns the regular file, positioned anywhere.
    pub fn regular_file(&self) -> Option<&File> {
        let Content::File(file) = &self.rest else { return None };
        let file = file.file();
        file.metadata()
            .is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0)
            .then_some(file)
    }

    /// Returns the content as bytes that are read at any place: a regular file is mapped, others are read.
    pub(super) fn into_bytes(self) -> Result<Box<dyn ByteSource>, DataError> {
        let path = self.path.clone();
        let io = |source| DataError::Io { path: path.clone(), source };
        if let Some(file) = self.regular_file() {
            let file = file.try_clone().map_err(io)?;
            return Ok(Box::new(LocalBytes::map(file, path.clone()).map_err(io)?));
        }
        if let Content::Distant(source) = self.rest {
            return Ok(source);
        }
        let mut bytes = Vec::new();
        self.into_reader().read_to_end(&mut bytes).map_err(io)?;
        Ok(Box::new(LocalBytes::Owned(bytes)))
    }

    /// Returns a reader of the whole content.
    pub fn into_reader(self) -> Box<dyn Read> {
        let head = Cursor::new(self.head);
        match self.rest {
            Content::File(file) => Box::new(head.chain(file)),
            Content::Stream(stream) => Box::new(head.chain(stream)),
            Content::Distant(source) => Box::new(PartReader::new(source)),
        }
    }
}

/// Opens a file of data, or a pipe once it has a writer. Devices, which may have no end, and sockets are refused before
/// they are opened.
fn open_data(path: &Path) -> Result<InputFile, DataError> {
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

fn read_head(reader: &mut impl Read) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    reader.take(HEAD_BYTES as u64).read_to_end(&mut head)?;
    Ok(head)
}

/// Looks at parts of a file of `len` bytes.
fn sample_parts<'a>(
    len: usize,
    read: impl Fn(Range<usize>) -> Result<Cow<'a, [u8]>, DataError>,
) -> Result<TextSample, DataError> {
    let mut sample = TextSample::default();
    for part in sampled_parts(len) {
        sample.add(&read(part)?);
    }
    Ok(sample)
}

/// Returns parts of a file of `len` bytes at equal distances.
fn sampled_parts(len: usize) -> impl Iterator<Item = Range<usize>> {
    let last = len.saturating_sub(HEAD_BYTES);
    let parts = 0..SAMPLED_PARTS.min(len.div_ceil(HEAD_BYTES));
    parts
        .map(move |part| last / (SAMPLED_PARTS - 1) * part)
        .map(move |start| start..len.min(start + HEAD_BYTES))
}

fn refuse(path: &Path, problem: String) -> DataError {
    DataError::File(FileProblem { name: path.display().to_string(), problem })
}
