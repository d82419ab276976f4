//! A safetensors file: written tensor by tensor, read box by box.
//!
//! The format is an 8-byte little-endian length, a JSON header of that length, and the tensors' bytes; see
//! <https://github.com/huggingface/safetensors>. The crate of that name checks and parses headers. Writing is
//! implemented here, as the file is hashed and synced in passing, and a model is never in memory as a whole.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use bytemuck::NoUninit;
use half::{bf16, f16};
use memmap2::Mmap;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::part_hashes::PartHasher;
use super::tensor_box::copy_common;
use super::{CheckpointError, PartHashes, StoredDtype, TensorBox, files};

const _: () = assert!(cfg!(target_endian = "little"), "tensors are written in their memory layout");

/// Most bytes of a file besides its tensors: the longest header that is read, and its length.
pub const MAX_HEADER_BYTES: u64 = 100_000_000 + size_of::<u64>() as u64;

/// The beginning of each header that is written.
const FIRST_MARK: &str = "{\"__metadata__\":{\"format\":\"pt\"";

/// Key of the writer in the header.
const WRITER: &str = "writer";

/// Numbers that are narrowed at a time.
const NARROWED: usize = 1 << 16;

/// Writes a file of tensors of one dtype, whose names and shapes are known at the start.
pub struct TensorWriter {
    file: BufWriter<File>,
    path: PathBuf,
    dtype: StoredDtype,
    hash: Box<Xxh3>,
    parts: Option<PartHasher>,
    bytes: u64,
    /// Tensors that are still to be written, last first.
    expected: Vec<(String, usize)>,
}

impl TensorWriter {
    /// Creates the file and writes the header for `tensors`, which must then be written in this order. A name of its
    /// `writer` is added to the header.
    pub fn create<'a>(
        path: &Path,
        dtype: StoredDtype,
        writer: Option<&str>,
        tensors: impl IntoIterator<Item = (&'a str, &'a [usize])>,
    ) -> Result<TensorWriter, CheckpointError> {
        let file = files::change("create", path, || File::create(path))?;
        TensorWriter::begin(file, path, dtype, writer, tensors, None)
    }

    /// Writes the header of a new file, whose parts of `part_bytes` are hashed separately too; else as
    /// [`create`](Self::create).
    pub fn begin<'a>(
        file: File,
        path: &Path,
        dtype: StoredDtype,
        writer: Option<&str>,
        tensors: impl IntoIterator<Item = (&'a str, &'a [usize])>,
        part_bytes: Option<u64>,
    ) -> Result<TensorWriter, CheckpointError> {
        let mut infos = Vec::new();
        let mut expected = Vec::new();
        let mut end = 0;
        for (name, shape) in tensors {
            let len: usize = shape.iter().product();
            let data_offsets = (end, end + len * dtype.bytes());
            end = data_offsets.1;
            let info = TensorInfo { dtype: dtype.in_header(), shape: shape.to_vec(), data_offsets };
            infos.push((name.to_owned(), info));
            expected.push((name.to_owned(), len));
        }
        expected.reverse();
        let invalid = |error: String| CheckpointError::Io {
            action: "describe the tensors of",
            path: path.to_owned(),
            source: std::io::Error::other(error),
        };
        // Other readers expect this mark of tensors in the layout of PyTorch.
        let mark = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        let header =
            Metadata::new(Some(mark), infos).map_err(|error| invalid(error.to_string()))?;
        let mut header = serde_json::to_vec(&header).map_err(|error| invalid(error.to_string()))?;
        if let Some(writer) = writer {
            // A map of two marks would have them in a random order.
            let writer = format!(",\"{WRITER}\":\"{writer}\"");
            header.splice(FIRST_MARK.len()..FIRST_MARK.len(), writer.into_bytes());
        }
        header.resize(header.len().next_multiple_of(8), b' ');
        let file = BufWriter::with_capacity(1 << 18, file);
        let (path, hash, parts) =
            (path.to_owned(), Box::default(), part_bytes.map(PartHasher::new));
        let mut writer = TensorWriter { file, path, dtype, hash, parts, bytes: 0, expected };
        writer.put_bytes(&(header.len() as u64).to_le_bytes())?;
        writer.put_bytes(&header)?;
        Ok(writer)
    }

    /// Writes the next tensor, rounded to the dtype.
    ///
    /// # Errors
    /// A file that cannot be written, and a number that is beyond the dtype.
    ///
    /// # Panics
    /// If it is not the next one of [`TensorWriter::create`]: a fault of the calling code.
    pub fn write(&mut self, name: &str, values: &[f32]) -> Result<(), CheckpointError> {
        let next = self.expected.pop();
        assert_eq!(next, Some((name.to_owned(), values.len())), "the next tensor of a file");
        match self.dtype {
            StoredDtype::F32 => self.put_bytes(bytemuck::cast_slice(values)),
            StoredDtype::F16 => self.put_narrowed(name, values, f16::from_f32, f16::is_finite),
            StoredDtype::Bf16 => self.put_narrowed(name, values, bf16::from_f32, bf16::is_finite),
        }
    }

    fn put_narrowed<T: NoUninit>(
        &mut self,
        name: &str,
        values: &[f32],
        narrow: fn(f32) -> T,
        is_finite: fn(T) -> bool,
    ) -> Result<(), CheckpointError> {
        for values in values.chunks(NARROWED) {
            let narrowed: Vec<T> = values.iter().map(|value| narrow(*value)).collect();
            let mut pairs = values.iter().zip(&narrowed);
            if let Some((value, _)) = pairs.find(|(value, x)| value.is_finite() && !is_finite(**x))
            {
                let reason =
                    format!("has the number {value}, which is beyond {}; export f32", self.dtype);
                return Err(CheckpointError::tensor_error(&self.path, name, reason));
            }
            self.put_bytes(bytemuck::cast_slice(&narrowed))?;
        }
        Ok(())
    }

    /// Syncs the file, and returns its length in bytes and its hash.
    ///
    /// # Panics
    /// If a tensor was not written: a fault of the calling code.
    pub fn finish(self) -> Result<(u64, String), CheckpointError> {
        let path = self.path.clone();
        let written = self.finish_unsynced()?;
        files::change("write", &path, || written.file.sync_all())?;
        Ok((written.bytes, written.xxh3))
    }

    /// Completes the file, which is not synced.
    ///
    /// # Panics
    /// As [`finish`](Self::finish).
    pub fn finish_unsynced(self) -> Result<WrittenTensors, CheckpointError> {
        assert!(self.expected.is_empty(), "tensors {:?} were not written", self.expected);
        let file = files::change("write", &self.path, || {
            self.file.into_inner().map_err(std::io::IntoInnerError::into_error)
        })?;
        let (bytes, xxh3) = (self.bytes, hash_text(self.hash.digest128()));
        let parts = self.parts.map(PartHasher::finish);
        Ok(WrittenTensors { file, bytes, xxh3, parts })
    }

    fn put_bytes(&mut self, bytes: &[u8]) -> Result<(), CheckpointError> {
        self.hash.update(bytes);
        if let Some(parts) = &mut self.parts {
            parts.update(bytes);
        }
        self.bytes += bytes.len() as u64;
        self.file.write_all(bytes).map_err(CheckpointError::io_error("write", &self.path))
    }
}

/// A complete file.
pub struct WrittenTensors {
    pub file: File,
    /// The length of the file.
    pub bytes: u64,
    /// The hash of all bytes.
    pub xxh3: String,
    /// The hashes of its parts, if they are hashed separately.
    pub parts: Option<PartHashes>,
}

/// An open, memory-mapped file whose header has been checked.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    map: Mmap,
    header: Metadata,
    /// Offset of the tensors' bytes.
    data_start: usize,
}

impl TensorFile {
    /// Opens a file and checks its header against its length.
    pub fn open(path: &Path) -> Result<TensorFile, CheckpointError> {
        TensorFile::parse(path, map_file(path, &files::open_regular(path)?.into_file())?)
    }

    /// Opens a file that must have this length and hash.
    pub fn open_verified(
        path: &Path,
        bytes: u64,
        xxh3: &str,
    ) -> Result<TensorFile, CheckpointError> {
        let file = files::open_regular(path)?.into_file();
        // Before it is mapped: another file may be too long for the address space.
        let found = length_of(path, &file)?;
        if found != bytes {
            let reason = format!("it has {found} bytes, the manifest says {bytes}");
            return Err(CheckpointError::damaged(path, reason));
        }
        let map = map_file(path, &file)?;
        if hash_of(&map) != xxh3 {
            let reason = "its content differs from the hash in the manifest";
            return Err(CheckpointError::damaged(path, reason));
        }
        TensorFile::parse(path, map)
    }

    fn parse(path: &Path, map: Mmap) -> Result<TensorFile, CheckpointError> {
        files::refuse_lfs_pointer(path, &map)?;
        let damaged = |reason: String| {
            let length = map.len();
            let reason = format!("{reason} ({length} bytes; truncated, or not a safetensors file)");
            CheckpointError::damaged(path, reason)
        };
        let (header_len, header) =
            SafeTensors::read_metadata(&map).map_err(|error| damaged(error.to_string()))?;
        let data_start = header_len + size_of::<u64>();
        Ok(TensorFile { path: path.to_owned(), map, header, data_start })
    }

    /// Returns the names of all tensors, in no order.
    pub fn names(&self) -> Vec<String> {
        self.header.offset_keys()
    }

    /// Returns the shape of the tensor `name`, if there is one.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.header.info(name).map(|info| info.shape.as_slice())
    }

    /// Returns the dtype of the tensor `name`, if it is one that weights have.
    pub fn dtype(&self, name: &str) -> Option<StoredDtype> {
        StoredDtype::of_header(self.header.info(name)?.dtype)
    }

    /// Returns the name of the writer in the header.
    pub fn writer(&self) -> Option<&str> {
        self.header.metadata().as_ref()?.get(WRITER).map(String::as_str)
    }

    /// Returns all numbers of the tensor `name`, which may be of a dtype that weights do not have: whole numbers of a
    /// byte, or truth values.
    pub fn numbers(&self, name: &str) -> Result<Vec<f32>, CheckpointError> {
        match self.header.info(name) {
            Some(info) if matches!(info.dtype, Dtype::U8 | Dtype::BOOL) => {
                Ok(self.bytes_of(name, info)?.iter().map(|byte| f32::from(*byte)).collect())
            }
            info => {
                let whole = TensorBox::whole(info.map_or(&[], |info| &info.shape));
                let mut out = vec![0.0; whole.len()];
                self.copy_common(name, &whole, &mut out, &whole)?;
                Ok(out)
            }
        }
    }

    fn bytes_of(&self, name: &str, info: &TensorInfo) -> Result<&[u8], CheckpointError> {
        let (start, end) = info.data_offsets;
        let bytes = self.map.get(self.data_start..).and_then(|data| data.get(start..end));
        bytes.ok_or_else(|| {
            let reason = format!("is at {start}..{end}, beyond the file");
            CheckpointError::tensor_error(&self.path, name, reason)
        })
    }

    /// Copies the intersection of the tensor `name`, which is the box `held` of a global tensor, with `requested`, and
    /// returns its number of elements.
    pub fn copy_common(
        &self,
        name: &str,
        held: &TensorBox,
        out: &mut [f32],
        requested: &TensorBox,
    ) -> Result<usize, CheckpointError> {
        let fail = |reason: String| CheckpointError::tensor_error(&self.path, name, reason);
        let info = self.header.info(name).ok_or_else(|| fail("is missing".into()))?;
        if info.shape != held.shape {
            return Err(fail(format!("has shape {:?}, expected {:?}", info.shape, held.shape)));
        }
        let Some(stored) = StoredDtype::of_header(info.dtype) else {
            let dtype = info.dtype;
            return Err(fail(format!("has dtype {dtype}; only F32, F16 and BF16 are read")));
        };
        Ok(copy_common(self.bytes_of(name, info)?, stored, held, out, requested))
    }
}

impl StoredDtype {
    fn in_header(self) -> Dtype {
        match self {
            StoredDtype::F32 => Dtype::F32,
            StoredDtype::F16 => Dtype::F16,
            StoredDtype::Bf16 => Dtype::BF16,
        }
    }

    fn of_header(dtype: Dtype) -> Option<StoredDtype> {
        let all = [StoredDtype::F32, StoredDtype::F16, StoredDtype::Bf16];
        all.into_iter().find(|stored| stored.in_header() == dtype)
    }
}

/// Returns the length of a file, which is not empty.
fn length_of(path: &Path, file: &File) -> Result<u64, CheckpointError> {
    match file.metadata().map_err(CheckpointError::io_error("read", path))?.len() {
        0 => Err(CheckpointError::damaged(path, "it is empty")),
        length => Ok(length),
    }
}

fn map_file(path: &Path, file: &File) -> Result<Mmap, CheckpointError> {
    length_of(path, file)?;
    // SAFETY: the map is read only; as for every mapped file, the file must not be shortened while it is open.
    unsafe { Mmap::map(file) }.map_err(CheckpointError::io_error("read", path))
}

/// Returns the hash of bytes in the format of manifests: XXH3, 128 bits, hexadecimal.
pub fn hash_of(bytes: &[u8]) -> String {
    hash_text(xxh3_128(bytes))
}

fn hash_text(hash: u128) -> String {
    format!("{hash:032x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path) -> (u64, String) {
        let shapes: [(&str, &[usize]); 3] = [("b", &[2, 2]), ("a", &[]), ("empty", &[0, 3])];
        let mut writer =
            TensorWriter::create(path, StoredDtype::F32, Some("test"), shapes).unwrap();
        writer.write("b", &[1.0, f32::NAN, -0.0, f32::MIN_POSITIVE / 2.0]).unwrap();
        writer.write("a", &[7.5]).unwrap();
        writer.write("empty", &[]).unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn files_read_back_bit_for_bit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.safetensors");
        let (bytes, hash) = write(&path);
        let file = TensorFile::open_verified(&path, bytes, &hash).unwrap();
        assert_eq!(bytes, std::fs::metadata(&path).unwrap().len());
        assert_eq!(file.writer(), Some("test"));
        let mut out = [0.0; 4];
        let whole = TensorBox::whole(&[2, 2]);
        assert_eq!(file.copy_common("b", &whole, &mut out, &whole).unwrap(), 4);
        let bits = [1.0, f32::NAN, -0.0, f32::MIN_POSITIVE / 2.0].map(f32::to_bits);
        assert_eq!(out.map(f32::to_bits), bits);

        let content = std::fs::read(&path).unwrap();
        let reference = SafeTensors::deserialize(&content).unwrap();
        assert_eq!(reference.tensor("a").unwrap().data(), 7.5f32.to_le_bytes());
        assert_eq!(reference.tensor("empty").unwrap().shape(), [0, 3]);
    }

    #[test]
    fn damaged_files_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.safetensors");
        write(&path);
        let file = TensorFile::open(&path).unwrap();
        let read = |name, shape: &[usize]| {
            let tensor_box = TensorBox::whole(shape);
            file.copy_common(name, &tensor_box, &mut vec![0.0; tensor_box.len()], &tensor_box)
        };
        let text = read("c", &[1]).unwrap_err().to_string();
        assert!(text.ends_with("x.safetensors: tensor `c` is missing"), "{text}");
        let text = read("b", &[4]).unwrap_err().to_string();
        assert!(text.contains("tensor `b` has shape [2, 2], expected [4]"), "{text}");

        let content = std::fs::read(&path).unwrap();
        for cut in [0, 5, 20, content.len() - 1] {
            std::fs::write(&path, &content[..cut]).unwrap();
            let text = TensorFile::open(&path).unwrap_err().to_string();
            assert!(text.contains("x.safetensors is damaged: "), "{text}");
        }
    }

    #[test]
    fn halves_are_rounded_to_even_and_never_overflow() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.safetensors");
        // Halfway between two numbers of bf16.
        let halfway = 1.0 + 1.0 / 256.0;
        let values = [1.0, halfway, f32::INFINITY, -65_504.0];
        for (dtype, second) in [(StoredDtype::Bf16, 1.0), (StoredDtype::F16, halfway)] {
            let mut writer = TensorWriter::create(&path, dtype, None, [("x", &[4][..])]).unwrap();
            writer.write("x", &values).unwrap();
            writer.finish().unwrap();
            let file = TensorFile::open(&path).unwrap();
            assert_eq!(file.dtype("x"), Some(dtype));
            let last = if dtype == StoredDtype::F16 { -65_504.0 } else { -65_536.0 };
            assert_eq!(file.numbers("x").unwrap(), [1.0, second, f32::INFINITY, last]);
        }
        let mut writer =
            TensorWriter::create(&path, StoredDtype::F16, None, [("x", &[1][..])]).unwrap();
        let text = writer.write("x", &[7e4]).unwrap_err().to_string();
        assert!(
            text.ends_with("tensor `x` has the number 70000, which is beyond f16; export f32"),
            "{text}"
        );
    }

    #[test]
    fn full_disk_is_reported_with_the_path() {
        let mut writer =
            TensorWriter::create(Path::new("/dev/full"), StoredDtype::F32, None, [("x", &[4][..])])
                .unwrap();
        let written = writer.write("x", &[0.0; 4]).and_then(|()| writer.finish().map(drop));
        let text = written.unwrap_err().to_string();
        assert!(text.contains("cannot write /dev/full: No space left on device"), "{text}");
    }
}
