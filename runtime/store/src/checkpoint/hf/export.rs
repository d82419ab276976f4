//! Writing a Hugging Face folder.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::earlier_model::{self, WRITER};
use super::file_names::{CONFIG, INDEX, WEIGHTS};
use super::format::WeightFile;
use super::{HfFormat, SideFiles};
use crate::checkpoint::lock::{self, FolderLock};
use crate::checkpoint::tensors::TensorWriter;
use crate::checkpoint::{CheckpointError, files};
use meshwright_os::free_name;

/// Writes a model tensor by tensor, so that it is never in memory as a whole.
///
/// Files are renamed once all are complete and on disk. Other files in the folder are kept, the files of another
/// tokenizer under another name.
pub struct HfExport {
    folder: PathBuf,
    format: HfFormat,
    weights: Vec<WeightFile>,
    /// Index of the file of weights that is being written.
    part: usize,
    writer: TensorWriter,
    /// Tensors that are written.
    written: usize,
    /// Dropped last.
    _unfinished: UnfinishedExport,
}

impl HfExport {
    /// Checks that `folder` can be written to, creating it if needed. Called at the start of a run, so that a bad
    /// folder is reported before any work could be lost.
    ///
    /// # Errors
    /// A folder that cannot be created or written to, one in which a folder has the name of a file of the export, and
    /// one with another model than that which the format was read from, or an earlier export of a model with the same
    /// tensors.
    pub fn prepare(folder: &Path, format: &HfFormat) -> Result<(), CheckpointError> {
        files::create_folder(folder)?;
        for name in format.names().iter().map(String::as_str).chain([WEIGHTS, INDEX]) {
            files::check_replaceable(&folder.join(name))?;
        }
        earlier_model::check_replaceable(folder, format)?;
        files::probe(&temporary_path(folder, "probe"))
    }

    /// Returns the names of the files in `folder` that an earlier model there would be tokenized and sampled with, and
    /// which are none of this one. An export renames them to `NAME.1` and so on.
    pub fn stale_files(folder: &Path, format: &HfFormat) -> Vec<String> {
        let own = format.names();
        let mut names = SideFiles::names_in(folder);
        names.retain(|name| !own.contains(name));
        names
    }

    /// Locks `folder`, so that no other run exports to it while the lock exists: they would write over each other's
    /// files. Called by the first process of a run, after [`prepare`](Self::prepare).
    ///
    /// # Errors
    /// A folder to which another run exports, and a lock file that cannot be written.
    pub fn lock(folder: &Path) -> Result<ExportLock, CheckpointError> {
        Ok(ExportLock { _lock: FolderLock::acquire(folder, lock::EXPORT)? })
    }

    /// Begins an export to `folder`, creating it if needed.
    ///
    /// # Errors
    /// A folder or file that cannot be written.
    pub fn create(folder: &Path, format: &HfFormat) -> Result<HfExport, CheckpointError> {
        files::create_folder(folder)?;
        let unfinished = UnfinishedExport { folder: folder.to_owned(), names: format.names() };
        let weights = format.weight_files();
        let writer = create_part(folder, format, &weights[0])?;
        Ok(HfExport {
            folder: folder.to_owned(),
            format: format.clone(),
            weights,
            part: 0,
            writer,
            written: 0,
            _unfinished: unfinished,
        })
    }

    /// Writes the next tensor of the format, row by row, rounded to the dtype of the format.
    ///
    /// # Errors
    /// A tensor that cannot be written, or has a number that is beyond the dtype.
    ///
    /// # Panics
    /// If another tensor is next or the number of values is wrong: a fault of the calling code.
    pub fn write(&mut self, name: &str, values: &[f32]) -> Result<(), CheckpointError> {
        if self.written == self.weights[self.part].tensors.end
            && let Some(next) = self.weights.get(self.part + 1)
        {
            let next = create_part(&self.folder, &self.format, next)?;
            std::mem::replace(&mut self.writer, next).finish()?;
            self.part += 1;
        }
        self.written += 1;
        self.writer.write(name, values)
    }

    /// Completes and renames the files.
    ///
    /// # Errors
    /// Files that cannot be written.
    ///
    /// # Panics
    /// If a tensor was left out: a fault of the calling code.
    pub fn finish(self) -> Result<(), CheckpointError> {
        assert_eq!(self.written, self.format.tensors.len(), "number of tensors that were written");
        self.writer.finish()?;
        let write =
            |name: &str, content: &[u8]| files::write(&temporary_path(&self.folder, name), content);
        write(CONFIG, format!("{:#}\n", self.format.config()).as_bytes())?;
        for (name, content) in &self.format.side_files.files {
            write(name, content)?;
        }
        if self.weights.len() > 1 {
            write(INDEX, format!("{:#}\n", self.format.index()).as_bytes())?;
            // The files of an earlier export have the same names: there is no index while some of them are replaced.
            if self.folder.join(&self.weights[0].name).exists() {
                files::remove_path(&self.folder.join(INDEX))?;
            }
        }
        let names = self.format.names();
        for name in &names {
            files::rename_path(&temporary_path(&self.folder, name), &self.folder.join(name))?;
        }
        for name in HfExport::stale_files(&self.folder, &self.format) {
            let path = self.folder.join(name);
            files::rename_path(&path, &free_name(&path))?;
        }
        earlier_model::remove_weights(&self.folder, &names)
    }
}

impl HfFormat {
    /// Returns the names of the files that an export writes, in the order of their renaming. An index is the last one,
    /// because readers find the other files by it.
    fn names(&self) -> Vec<String> {
        let weights = self.weight_files();
        let index = (weights.len() > 1).then(|| INDEX.to_owned());
        let side_files = self.side_files.files.iter().map(|(name, _)| name.clone());
        let weights = weights.into_iter().map(|file| file.name);
        weights.chain([CONFIG.to_owned()]).chain(side_files).chain(index).collect()
    }

    /// Returns the index of several files of weights.
    fn index(&self) -> Value {
        let of_file = |file: WeightFile| {
            let name = Value::from(file.name);
            self.tensors[file.tensors].iter().map(move |(tensor, _)| (tensor.clone(), name.clone()))
        };
        let map: Map<String, Value> = self.weight_files().into_iter().flat_map(of_file).collect();
        let elements = self.tensors.iter().map(|(_, shape)| shape.iter().product::<usize>());
        let bytes = elements.sum::<usize>() * self.dtype.bytes();
        json!({ "metadata": { "total_size": bytes }, "weight_map": map })
    }
}

fn create_part(
    folder: &Path,
    format: &HfFormat,
    file: &WeightFile,
) -> Result<TensorWriter, CheckpointError> {
    let path = temporary_path(folder, &file.name);
    let tensors = &format.tensors[file.tensors.clone()];
    let tensors = tensors.iter().map(|(name, shape)| (name.as_str(), &shape[..]));
    TensorWriter::create(&path, format.dtype, Some(WRITER), tensors)
}

/// Lock of a folder to which a run exports its model.
#[derive(Debug)]
pub struct ExportLock {
    /// `None` if the file system has no locks.
    _lock: Option<FolderLock>,
}

/// Removes the temporary files of a failed export. Those of a successful one are renamed by then.
struct UnfinishedExport {
    folder: PathBuf,
    names: Vec<String>,
}

impl Drop for UnfinishedExport {
    fn drop(&mut self) {
        for name in &self.names {
            // The user has to see the failure of the export instead.
            let _ = files::remove_path(&temporary_path(&self.folder, name));
        }
    }
}

fn temporary_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!(".tmp-{name}"))
}
