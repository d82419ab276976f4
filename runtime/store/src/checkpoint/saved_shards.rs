//! The tensors of a checkpoint, and their shards in the files of ranks, as the manifest lists them.

use serde::{Deserialize, Serialize};

use super::TensorBox;

/// The global shape of a tensor of f32.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorShape {
    /// Size of every dim.
    pub shape: Vec<usize>,
}

/// The file of one rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankFile {
    /// Name of the file in the folder of the checkpoint.
    pub name: String,
    /// Length of the file.
    pub bytes: u64,
    /// XXH3 hash of its content, 128 bits in hexadecimal. Protects against accidents, not against forgery.
    pub xxh3: String,
    /// The shards in the file.
    pub shards: Vec<SavedShard>,
}

/// One box of one tensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedShard {
    /// Name of the tensor.
    pub tensor: String,
    /// Name of the tensor in the file.
    pub key: String,
    /// Shape of the whole tensor.
    pub global_shape: Vec<usize>,
    /// The box.
    #[serde(flatten)]
    pub tensor_box: TensorBox,
}
