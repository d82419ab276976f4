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
    /// Hashes of the parts of the file, if it is read in parts: in object storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<PartHashes>,
    /// The shards in the file.
    pub shards: Vec<SavedShard>,
}

/// Hashes of the parts of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartHashes {
    /// Length of every part but the last one, which may be shorter.
    pub bytes: u64,
    /// XXH3 hashes of the parts, 64 bits each in hexadecimal, one after the other.
    pub xxh3: String,
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
