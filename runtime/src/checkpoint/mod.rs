//! Checkpoints: the whole training state as sharded safetensors with a manifest, and Hugging Face folders.
//!
//! A folder of checkpoints looks like this:
//!
//! ```text
//! DIR/step-00000100/manifest.json               shapes, boxes, hashes, step, seed, data position, settings
//! DIR/step-00000100/manifest.xxh3               hash of the manifest
//! DIR/step-00000100/rank-00000.safetensors      what rank 0 holds, and so on
//! DIR/latest -> step-00000100
//! ```
//!
//! Saving ([`Writer`]) fills a hidden folder that is renamed once it is complete and on disk; `latest` moves after
//! that. So a crash at any moment leaves the checkpoints before it whole. Loading ([`Checkpoint`]) compares every
//! byte with its hash, refuses what differs by name, and turns to the checkpoint before. Shards are boxes of global
//! tensors, so any mesh can read what any other has written.

mod error;
mod files;
pub mod hf;
mod load;
mod manifest;
mod region;
mod save;
mod tensors;

pub use error::CheckpointError;
pub use load::Checkpoint;
pub use manifest::{Manifest, RankFile, Shard, TensorShape, TrainState};
pub use region::Region;
pub use save::{ShardEntry, Writer};

#[cfg(test)]
mod tests;
