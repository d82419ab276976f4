//! The manifest: tensors, shards and files of a checkpoint.

use std::collections::BTreeMap;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::place::storage_of;
use super::saved_shards::{RankFile, TensorShape};
use super::shard_check::{check_files, check_tensors};
use super::tensors::hash_of;
use super::{CheckpointError, EvaluationRecord, RunHistory, names};
use crate::data::DataPosition;

const FORMAT: &str = "meshwright-checkpoint";
const VERSION: u32 = 1;

/// Most bytes of a manifest: manifests of tens of thousands of ranks have less.
const MAX_BYTES: u64 = 16 << 30;
/// Most bytes of the file of its hash.
const MAX_HASH_BYTES: u64 = 4 << 10;

/// The state of a run besides its tensors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainState {
    /// Completed steps.
    pub step: u64,
    /// Seed of initialization, dropout and sample order.
    pub seed: u64,
    /// The mesh of the run, in the format of `--mesh`.
    pub mesh: String,
    /// The order of its axes, in the format of `--mesh-order`, if it is not the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh_order: Option<String>,
    /// Position in the data; `None` if the training loop has data of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<DataPosition>,
    /// The runs that have led to the checkpoint.
    #[serde(default)]
    pub history: RunHistory,
    /// The evaluations so far, if the run has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluation: Option<EvaluationRecord>,
    /// Steps so far whose updates were left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped: u64,
    /// All settings of the run, for the record.
    pub config: serde_json::Value,
    /// The rest of the state of a training loop of a program; `None` if the trainer has saved it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_loop: Option<LoopState>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The state of a training loop of a program that the trainer's does not have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoopState {
    /// Steps that the optimizer has applied.
    pub updates: u64,
    /// Name of the optimizer.
    pub optimizer: String,
    /// Values of the program.
    pub values: serde_json::Value,
}

/// The content of `manifest.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Always `meshwright-checkpoint`.
    pub format: String,
    /// Version of the layout of files and manifest.
    pub version: u32,
    /// The state of the run.
    #[serde(flatten)]
    pub state: TrainState,
    /// Every tensor's global shape.
    pub tensors: BTreeMap<String, TensorShape>,
    /// The files of all ranks.
    pub files: Vec<RankFile>,
}

impl Manifest {
    /// Returns the kind of a tensor: the first segment of its name, which tells parameters, the states of the optimizer
    /// and the moving average apart.
    pub fn kind_of(tensor: &str) -> &str {
        tensor.split_once('.').map_or(tensor, |(kind, _)| kind)
    }

    /// Combines the files of all ranks.
    ///
    /// # Errors
    /// [`CheckpointError::Shards`] if the shards of a tensor overlap, leave a gap or disagree on its shape.
    pub(super) fn new(
        state: TrainState,
        files: Vec<RankFile>,
    ) -> Result<Manifest, CheckpointError> {
        let mut tensors = BTreeMap::new();
        for shard in files.iter().flat_map(|file| &file.shards) {
            let shape = TensorShape { shape: shard.global_shape.clone() };
            tensors.entry(shard.tensor.clone()).or_insert(shape);
        }
        let manifest = Manifest { format: FORMAT.into(), version: VERSION, state, tensors, files };
        check_tensors(&manifest.tensors, &manifest.files)?;
        Ok(manifest)
    }

    /// Returns the content of the files of the manifest and of its hash, to be written to the folder `dir`.
    pub(super) fn to_text(&self, dir: &Path) -> Result<(Vec<u8>, String), CheckpointError> {
        let mut text = serde_json::to_vec_pretty(self).map_err(|error| {
            CheckpointError::io_error("describe a checkpoint in", dir)(std::io::Error::other(error))
        })?;
        text.push(b'\n');
        let hash = hash_of(&text);
        Ok((text, hash))
    }

    /// Reads and checks the manifest of the checkpoint in `folder`.
    ///
    /// # Errors
    /// A file that is missing, damaged, altered or of another format.
    pub fn read(folder: &Path) -> Result<Manifest, CheckpointError> {
        let storage = storage_of(folder)?;
        let read = |name, limit| storage.read_text(folder, name, limit);
        let (path, text) = (folder.join(names::MANIFEST), read(names::MANIFEST, MAX_BYTES)?);
        let damaged = |reason: String| CheckpointError::damaged(&path, reason);
        let hash = hash_of(&text);
        let hashes = read(names::MANIFEST_HASH, MAX_HASH_BYTES)?;
        // In object storage, there are two hashes while one manifest replaces another.
        let mut hashes = hashes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        if !hashes.any(|own| own == hash.as_bytes()) {
            let reason = format!("its content differs from the hash in {}", names::MANIFEST_HASH);
            return Err(damaged(reason));
        }
        let manifest: Manifest =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if manifest.format != FORMAT || manifest.version != VERSION {
            let (format, version) = (&manifest.format, manifest.version);
            let reason = format!(
                "it is of format {format} version {version}; this version reads {FORMAT} version {VERSION}"
            );
            return Err(CheckpointError::settings(&path, reason));
        }
        let TrainState { step, skipped, .. } = manifest.state;
        if skipped > step {
            return Err(damaged(format!("{skipped} of its {step} steps were left out")));
        }
        let checked = check_tensors(&manifest.tensors, &manifest.files);
        checked.map_err(|error| damaged(error.to_string()))?;
        check_files(&manifest.files).map_err(damaged)?;
        Ok(manifest)
    }

    /// Reads the history of the checkpoint in `folder`, without checks. `None` if there is no manifest, or it cannot be
    /// read.
    pub(super) fn read_history(folder: &Path) -> Option<RunHistory> {
        #[derive(Deserialize)]
        struct Part {
            #[serde(default)]
            history: RunHistory,
        }
        Some(read_part::<Part>(folder)?.history)
    }

    /// Returns true if the checkpoint in `folder` was saved for its [lowest loss only](EvaluationRecord::is_only_best).
    pub(super) fn is_only_best(folder: &Path) -> bool {
        #[derive(Deserialize)]
        struct Part {
            evaluation: EvaluationRecord,
        }
        read_part::<Part>(folder).is_some_and(|part| part.evaluation.is_only_best)
    }
}

/// Reads a part of the manifest in `folder`, without checks.
fn read_part<T: DeserializeOwned>(folder: &Path) -> Option<T> {
    let text = storage_of(folder).ok()?.read_text(folder, names::MANIFEST, MAX_BYTES).ok()?;
    serde_json::from_slice(&text).ok()
}
