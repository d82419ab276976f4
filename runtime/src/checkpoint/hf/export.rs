//! Writing a Hugging Face folder.

use std::path::{Path, PathBuf};

use super::HfFormat;
use crate::checkpoint::tensors::TensorWriter;
use crate::checkpoint::{CheckpointError, files};

const WEIGHTS: &str = "model.safetensors";
const SETTINGS: &str = "config.json";

/// Writes a model tensor by tensor, so that it need never be in memory whole.
///
/// Files appear under their names once they are complete and on disk. What else is in the folder, such as a
/// tokenizer, stays.
pub struct HfExport {
    folder: PathBuf,
    format: HfFormat,
    weights: TensorWriter,
    /// Dropped last.
    _unfinished: Unfinished,
}

impl HfExport {
    /// Makes sure that `folder` can be written to, and creates it where needed. Called at the start of a run, it tells
    /// of a bad folder before any work is lost.
    ///
    /// # Errors
    /// When the folder cannot be created or written to.
    pub fn prepare(folder: &Path) -> Result<(), CheckpointError> {
        files::create_folder(folder)?;
        let probe = temporary(folder, "probe");
        files::write(&probe, b"")?;
        files::remove(&probe)
    }

    /// Begins an export to `folder`, which is created where needed.
    ///
    /// # Errors
    /// When the folder or a file cannot be written.
    pub fn create(folder: &Path, format: &HfFormat) -> Result<HfExport, CheckpointError> {
        files::create_folder(folder)?;
        let tensors = format.tensors.iter().map(|(name, shape)| (name.as_str(), &shape[..]));
        let unfinished = Unfinished { folder: folder.to_owned() };
        let weights = TensorWriter::create(&temporary(folder, WEIGHTS), tensors)?;
        Ok(HfExport {
            folder: folder.to_owned(),
            format: format.clone(),
            weights,
            _unfinished: unfinished,
        })
    }

    /// Writes the next tensor of [`HfFormat::tensors`], row after row.
    ///
    /// # Errors
    /// When it cannot be written.
    ///
    /// # Panics
    /// When it is another tensor's turn or the number of values is wrong: a fault of the calling code.
    pub fn write(&mut self, name: &str, values: &[f32]) -> Result<(), CheckpointError> {
        self.weights.write(name, values)
    }

    /// Completes the files and gives them their names.
    ///
    /// # Errors
    /// When they cannot be written.
    ///
    /// # Panics
    /// When a tensor was left out: a fault of the calling code.
    pub fn finish(self) -> Result<(), CheckpointError> {
        self.weights.finish()?;
        let settings = format!("{:#}\n", self.format.settings);
        files::write(&temporary(&self.folder, SETTINGS), settings.as_bytes())?;
        for name in [WEIGHTS, SETTINGS] {
            files::rename(&temporary(&self.folder, name), &self.folder.join(name))?;
        }
        // The index of an earlier, sharded model in this folder would contradict the new file.
        files::remove(&self.folder.join("model.safetensors.index.json"))
    }
}

/// Removes the files of an export that failed; those of one that succeeded have their names by then.
struct Unfinished {
    folder: PathBuf,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        for name in [WEIGHTS, SETTINGS] {
            // The failure that led here is what the user has to know.
            let _ = files::remove(&temporary(&self.folder, name));
        }
    }
}

fn temporary(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!(".tmp-{name}"))
}
