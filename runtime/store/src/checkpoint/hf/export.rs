//! Writing a Hugging Face folder.

use std::path::{Path, PathBuf};

use super::{HfFormat, SideFiles};
use crate::checkpoint::lock::{self, FolderLock};
use crate::checkpoint::tensors::TensorWriter;
use crate::checkpoint::{CheckpointError, files};
use meshwright_os::free_name;

const WEIGHTS: &str = "model.safetensors";
const SETTINGS: &str = "config.json";
/// Index of a model of several files, which an export removes.
const INDEX: &str = "model.safetensors.index.json";

/// Writes a model tensor by tensor, so that it is never in memory as a whole.
///
/// Files are renamed once they are complete and on disk. Other files in the folder are kept, the files of another
/// tokenizer under another name.
pub struct HfExport {
    folder: PathBuf,
    format: HfFormat,
    weights: TensorWriter,
    /// Dropped last.
    _unfinished: UnfinishedExport,
}

impl HfExport {
    /// Checks that `folder` can be written to, creating it if needed. Called at the start of a run, so that a bad
    /// folder is reported before any work could be lost.
    ///
    /// # Errors
    /// A folder that cannot be created or written to, and one in which a folder has the name of a file of the export.
    pub fn prepare(folder: &Path, format: &HfFormat) -> Result<(), CheckpointError> {
        files::create_folder(folder)?;
        for name in format.names().chain([INDEX]) {
            files::check_replaceable(&folder.join(name))?;
        }
        files::probe(&temporary_path(folder, "probe"))
    }

    /// Returns the names of the files in `folder` that an earlier model there would be tokenized and sampled with, and
    /// which are none of this one. An export renames them to `NAME.1` and so on.
    pub fn stale_files(folder: &Path, format: &HfFormat) -> Vec<String> {
        let mut names = SideFiles::names_in(folder);
        names.retain(|name| format.names().all(|own| own != name));
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
        let tensors = format.tensors.iter().map(|(name, shape)| (name.as_str(), &shape[..]));
        let names = format.names().map(str::to_owned).collect();
        let unfinished = UnfinishedExport { folder: folder.to_owned(), names };
        let weights = TensorWriter::create(&temporary_path(folder, WEIGHTS), tensors)?;
        Ok(HfExport {
            folder: folder.to_owned(),
            format: format.clone(),
            weights,
            _unfinished: unfinished,
        })
    }

    /// Writes the next tensor of the format, row by row.
    ///
    /// # Errors
    /// A tensor that cannot be written.
    ///
    /// # Panics
    /// If another tensor is next or the number of values is wrong: a fault of the calling code.
    pub fn write(&mut self, name: &str, values: &[f32]) -> Result<(), CheckpointError> {
        self.weights.write(name, values)
    }

    /// Completes and renames the files.
    ///
    /// # Errors
    /// Files that cannot be written.
    ///
    /// # Panics
    /// If a tensor was left out: a fault of the calling code.
    pub fn finish(self) -> Result<(), CheckpointError> {
        self.weights.finish()?;
        let settings = format!("{:#}\n", self.format.settings);
        files::write(&temporary_path(&self.folder, SETTINGS), settings.as_bytes())?;
        for (name, content) in &self.format.side_files.files {
            files::write(&temporary_path(&self.folder, name), content)?;
        }
        for name in self.format.names() {
            files::rename_path(&temporary_path(&self.folder, name), &self.folder.join(name))?;
        }
        for name in HfExport::stale_files(&self.folder, &self.format) {
            let path = self.folder.join(name);
            files::rename_path(&path, &free_name(&path))?;
        }
        // The index of an earlier, sharded model in this folder would contradict the new file.
        files::remove_path(&self.folder.join(INDEX))
    }
}

impl HfFormat {
    /// Returns the names of the files that an export writes.
    fn names(&self) -> impl Iterator<Item = &str> {
        let side_files = self.side_files.files.iter().map(|(name, _)| name.as_str());
        [WEIGHTS, SETTINGS].into_iter().chain(side_files)
    }
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
