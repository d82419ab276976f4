//! Checkpoints in object storage.
//!
//! ```text
//! URL/step-00000100/rank-00000-TOKEN.safetensors    shards of rank 0, and so on; the token is that of one attempt
//! URL/step-00000100/manifest.xxh3                   hash of the manifest
//! URL/step-00000100/manifest.json                   as on disk, and written last: the step exists if it does
//! URL/latest                                        the step of the newest checkpoint, and the run that saves here
//! URL/best                                          the step of the lowest validation loss, if runs keep it
//! ```
//!
//! Objects cannot be renamed, so each attempt to save a step has names of its own, and the manifest decides: a new one
//! takes the place of an older one of the same step in one write. Until then `manifest.xxh3` has the hashes of both.
//! Every write that decides something is on the condition that the object has the version that was read before, so that
//! a run which was paused, and has lost its folder to another one, cannot damage what that one has saved.

mod lease;
mod leftovers;
mod links;
mod object_storage;
mod shards;
mod temporary;

pub use object_storage::ObjectStorage;
pub use temporary::use_cache_folder;
