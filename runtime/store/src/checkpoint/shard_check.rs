//! Checks of the shards and files that a manifest lists. Its numbers and names may be any: a file can be damaged, or
//! forged.

use std::collections::{BTreeMap, HashSet};

use super::saved_shards::{RankFile, SavedShard, TensorShape};
use super::tensors::MAX_HEADER_BYTES;
use super::{CheckpointError, TensorBox, names};

/// Checks that the shards of every tensor are disjoint boxes that cover it.
pub fn check_tensors(
    tensors: &BTreeMap<String, TensorShape>,
    files: &[RankFile],
) -> Result<(), CheckpointError> {
    let mut by_tensor: BTreeMap<&str, Vec<(&SavedShard, &str)>> = BTreeMap::new();
    for file in files {
        for shard in &file.shards {
            by_tensor.entry(&shard.tensor).or_default().push((shard, &file.name));
        }
    }
    for (name, tensor) in tensors {
        let shards = by_tensor.remove(name.as_str()).unwrap_or_default();
        check_cover(&tensor.shape, shards)
            .map_err(|reason| CheckpointError::Shards { name: name.clone(), reason })?;
    }
    match by_tensor.into_keys().next() {
        None => Ok(()),
        Some(name) => {
            let reason = "the manifest does not list the tensor".into();
            Err(CheckpointError::Shards { name: name.into(), reason })
        }
    }
}

/// Checks the names of the files, which no path may be, and that their lengths follow from their shards, which have
/// been [checked](check_tensors).
pub fn check_files(files: &[RankFile]) -> Result<(), String> {
    let mut seen = HashSet::new();
    for file in files {
        let name = &file.name;
        if !names::is_rank_file(name) {
            return Err(format!(
                "it names {name:?}, and files of ranks are rank-NNNNN.safetensors"
            ));
        }
        if !seen.insert(name) {
            return Err(format!("it names {name} twice"));
        }
        let elements: u128 = file.shards.iter().map(|shard| shard.tensor_box.len() as u128).sum();
        let (least, bytes) = (elements * size_of::<f32>() as u128, u128::from(file.bytes));
        if bytes < least || bytes > least + u128::from(MAX_HEADER_BYTES) {
            return Err(format!(
                "it says that {name} has {bytes} bytes, but its shards have {least}"
            ));
        }
        if file.parts.as_ref().is_some_and(|parts| !parts.fits(file.bytes)) {
            return Err(format!(
                "the hashes of the parts of {name} are not those of {bytes} bytes"
            ));
        }
    }
    Ok(())
}

/// Checks that `shards` are disjoint boxes that cover a tensor of `shape`.
fn check_cover(shape: &[usize], mut shards: Vec<(&SavedShard, &str)>) -> Result<(), String> {
    let Some(elements) = TensorBox::whole(shape).checked_len() else {
        return Err(format!("its shape {shape:?} has more elements than can be counted"));
    };
    for (shard, file) in &shards {
        if shard.global_shape != shape {
            return Err(format!(
                "{file} says its shape is {:?}, another file says {shape:?}",
                shard.global_shape
            ));
        }
        if !shard.tensor_box.is_inside(shape) {
            return Err(format!("{file} holds {}, outside its shape {shape:?}", shard.tensor_box));
        }
    }
    let held: u128 = shards.iter().map(|(shard, _)| shard.tensor_box.len() as u128).sum();
    shards.retain(|(shard, _)| !shard.tensor_box.is_empty());
    // Sorted by first index, a box can only overlap boxes that begin before its end.
    shards.sort_by(|a, b| a.0.tensor_box.cmp(&b.0.tensor_box));
    for (i, (shard, file)) in shards.iter().enumerate() {
        for (other, other_file) in &shards[i + 1..] {
            if !shape.is_empty() && other.tensor_box.offset[0] >= shard.tensor_box.end(0) {
                break;
            }
            if let Some(common) = shard.tensor_box.intersection(&other.tensor_box) {
                return Err(format!("{file} and {other_file} both hold {common}"));
            }
        }
    }
    if elements as u128 == held {
        Ok(())
    } else {
        Err(format!("the files hold {held} elements of a tensor of shape {shape:?}"))
    }
}
