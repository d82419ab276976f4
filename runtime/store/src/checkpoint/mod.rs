//! Sharded checkpoints: the whole training state as safetensors with a manifest; and Hugging Face folders.
//!
//! A folder of checkpoints looks like this:
//!
//! ```text
//! DIR/step-00000100/manifest.json               shapes, boxes, hashes, step, seed, data position, settings
//! DIR/step-00000100/manifest.xxh3               hash of the manifest
//! DIR/step-00000100/rank-00000.safetensors      shards of rank 0, and so on
//! DIR/latest -> step-00000100
//! DIR/best -> step-00000050                     the one of the lowest validation loss, if runs keep it
//! DIR/.lock                                     held by the run that saves here, as long as it runs
//! DIR/run.log                                   events of `meshwright run`, if it supervises the run
//! DIR/.tmp-step-00000200                        an incomplete checkpoint
//! DIR/.replaced-step-00000200                   a complete one, while a new one of the same step takes its place
//! ```
//!
//! Saving ([`CheckpointWriter`]) fills a temporary folder that is renamed once it is complete and on disk; then
//! `latest` moves. So a crash at any time leaves earlier checkpoints intact: also one of the same step, which is
//! loaded from its other name until the new one has its place, and which the next run ([`CheckpointFolder`]) renames
//! back. Loading ([`Checkpoint`]) compares every byte with its hash, reports damaged files by name, and falls back to
//! the previous checkpoint. Shards are boxes of global tensors, so a checkpoint can be loaded on any mesh.

mod disk;
mod error;
mod evaluation;
#[cfg(any(test, feature = "faults"))]
#[doc(hidden)]
pub mod faults;
mod files;
mod folder;
pub mod hf;
mod history;
mod load;
mod locate;
mod lock;
mod manifest;
mod names;
mod newest;
#[cfg(feature = "remote")]
mod objects;
mod part_hashes;
mod place;
mod rank_files;
mod run_log;
mod save;
mod saved_shards;
mod shard_check;
mod storage;
mod tensor_box;
mod tensor_source;
mod tensors;

pub use error::CheckpointError;
pub use evaluation::{BestLoss, EvaluationRecord};
pub use folder::{CheckpointFolder, best_step};
pub use history::{ResumedRun, RunHistory};
pub use load::Checkpoint;
pub use manifest::{LoopState, Manifest, TrainState};
pub use names::{is_name_of_checkpoints, step_of_path};
pub use newest::NewestCheckpoint;
#[cfg(feature = "remote")]
pub use objects::use_cache_folder;
pub use run_log::{RunEvent, RunEventKind, RunLog};
pub use save::{CheckpointWriter, Keep, ShardEntry};
pub use saved_shards::{PartHashes, RankFile, SavedShard, TensorShape};
pub use tensor_box::{StoredDtype, TensorBox};
pub use tensor_source::TensorSource;

#[cfg(test)]
mod tests;
