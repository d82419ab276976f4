//! A safetensors file: written tensor by tensor, read box by box.
//!
//! The format is an 8-byte little-endian length, a JSON header of that length, and the tensors' bytes; see
//! <https://github.com/huggingface/safetensors>. The crate of that name checks and parses headers. Writing is
//! implemented here, as the file is hashed and synced in passing, and a model is never in memory as a whole.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::tensor_box::{Stored, copy_common};
use super::{CheckpointError, TensorBox, files};

const _: () = assert!(cfg!(target_endian = "little"), "tensors are written in their memory layout");

/// Most bytes of a file besides its tensors: the longest header that is read, and its length.
pub const MAX_HEADER_BYTES: u64 = 100_000_000 + size_of::<u64>() as u64;

/// Writes a file of f32 tensors, whose names and shapes are known at the start.
pub struct TensorWriter {
    file: BufWriter<File>,
    path: PathBuf,
    hash: Box<Xxh3>,
    bytes: u64,
    /// Tensors that are still to be written, last first.
    expected: Vec<(String, usize)>,
}

impl TensorWriter {
    /// Creates the file and writes the header for `tensors`, which must then be written in this order.
    pub fn create<'a>(
        path: &Path,
        tensors: impl IntoIterator<Item = (&'a str, &'a [usize])>,
    ) -> Result<TensorWriter, CheckpointError> {
        let mut infos = Vec::new();
        let mut expected = Vec::new();
        let mut end = 0;
        for (name, shape) in tensors {
            let len: usize = shape.iter().product();
            let data_offsets = (end, end + len * Stored::F32.bytes());
            end = data_offsets.1;
            let info = TensorInfo { dtype: Dtype::F32, shape: shape.to_vec(), data_offsets };
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
        header.resize(header.len().next_multiple_of(8), b' ');
        let file = files::change("create", path, || File::create(path))?;
        let file = BufWriter::with_capacity(1 << 18, file);
        let path = path.to_owned();
        let mut writer = TensorWriter { file, path, hash: Box::default(), bytes: 0, expected };
        writer.put_bytes(&(header.len() as u64).to_le_bytes())?;
        writer.put_bytes(&header)?;
        Ok(writer)
    }

    /// Writes the next tensor.
    ///
    /// # Panics
    /// If it is not the next one of [`TensorWriter::create`]: a fault of the calling code.
    pub fn write(&mut self, name: &str, values: &[f32]) -> Result<(), CheckpointError> {
        let next = self.expected.pop();
        assert_eq!(next, Some((name.to_owned(), values.len())), "the next tensor of a file");
        self.put_bytes(bytemuck::cast_slice(values))
    }

    /// Syncs the file, and returns its length in bytes and its hash.
    ///
    /// # Panics
    /// If a tensor was not written: a fault of the calling code.
    pub fn finish(mut self) -> Result<(u64, String), CheckpointError> {
        assert!(self.expected.is_empty(), "tensors {:?} were not written", self.expected);
        files::change("write", &self.path, || self.file.flush())?;
        files::change("write", &self.path, || self.file.get_ref().sync_all())?;
        Ok((self.bytes, hash_text(self.hash.digest128())))
    }

    fn put_bytes(&mut self, bytes: &[u8]) -> Result<(), CheckpointError> {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        self.file.write_all(bytes).map_err(CheckpointError::io_error("write", &self.path))
    }
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
        let stored = match info.dtype {
            Dtype::F32 => Stored::F32,
            Dtype::F16 => Stored::F16,
            Dtype::BF16 => Stored::Bf16,
            other => {
                return Err(fail(format!("has dtype {other}; only F32, F16 and BF16 are read")));
            }
        };
        Ok(copy_common(self.bytes_of(name, info)?, stored, held, out, requested))
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
        let mut writer = TensorWriter::create(path, shapes).unwrap();
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
    fn full_disk_is_reported_with_the_path() {
        let mut writer = TensorWriter::create(Path::new("/dev/full"), [("x", &[4][..])]).unwrap();
        let written = writer.write("x", &[0.0; 4]).and_then(|()| writer.finish().map(drop));
        let text = written.unwrap_err().to_string();
        assert!(text.contains("cannot write /dev/full: No space left on device"), "{text}");
    }
}
