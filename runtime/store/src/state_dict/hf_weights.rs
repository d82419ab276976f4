//! Import and export of a model's weights in the Hugging Face format.

use std::collections::HashMap;
use std::path::Path;

use crate::checkpoint::TensorSource;
use crate::checkpoint::hf::{HfExport, HfFolder, HfFormat};
use meshwright_comm::{CommFailure, Site};
use meshwright_core::tensor::{ParamRef, Rank};

use super::hf_mapping::{HfParam, HfTensor};
use super::{HfMapping, HfName, StateDictError};

/// Loads this rank's shard of every parameter that it owns from a Hugging Face folder. `names` maps parameters to
/// tensors. Parameters whose tensors are [new](HfFolder::is_new) stay as they are.
///
/// # Errors
/// A parameter without a name, and a tensor that is missing, damaged or of another shape.
pub fn import_hf(
    folder: &HfFolder,
    names: &[HfName],
    params: &[ParamRef],
) -> Result<(), StateDictError> {
    let mapping = HfMapping::new(names, params)?;
    let name_of = |(_, tensor): &(_, usize)| &mapping.tensors()[*tensor].name;
    let is_stored = |own: &&HfParam<'_>| !own.slots.iter().any(|slot| folder.is_new(name_of(slot)));
    let owned = mapping.params().iter().filter(|own| own.param.is_owned());
    for HfParam { param, slots } in owned.filter(is_stored) {
        let mut block = vec![0.0; param.local_len()];
        for (slot, tensor) in slots.iter().filter(|(slot, _)| slot.is_held()) {
            let HfTensor { name, shape, .. } = &mapping.tensors()[*tensor];
            let values = folder.read(name, shape, &slot.local_box())?;
            slot.copy_to_param(&values, &mut block);
        }
        param.write(&block);
    }
    Ok(())
}

/// Writes the model as a Hugging Face folder with the `config.json` of `format`. Every rank calls it, and rank 0
/// writes. Returns when the files are complete: a rank that waits for them has the [time limit of
/// files](meshwright_comm::FILE_TIME_LIMIT), and learns of a failure of rank 0.
///
/// # Errors
/// A parameter without a name, and a file that cannot be written.
///
/// # Panics
/// If ranks have applied different updates.
#[track_caller]
pub fn export_hf(
    rank: &Rank,
    folder: &Path,
    format: &HfFormat,
    names: &[HfName],
    params: &[ParamRef],
) -> Result<(), StateDictError> {
    rank.compare_last_updates();
    // The others wait for the files of rank 0.
    let _waits_for_files = rank.comms().extend_time_limit();
    let mut export = match rank.index() {
        0 => Some(HfExport::create(folder, format)?),
        _ => None,
    };
    // The blocks of the stacks in the tensor, whose other weights are in the next ones.
    let mut stacks: HashMap<&str, Option<Vec<f32>>> = HashMap::new();
    for tensor in HfMapping::new(names, params)?.tensors() {
        let len = if export.is_some() { tensor.shape.iter().product() } else { 0 };
        let mut values = vec![0.0; len];
        stacks.retain(|path, _| tensor.parts.iter().any(|(_, param)| param.path() == *path));
        for (slot, param) in &tensor.parts {
            let whole = match slot.weight() {
                None => param.gather_to_rank_0(rank),
                Some(weight) => {
                    let held = || param.is_first_owner().then(|| param.to_local_vec());
                    let block = stacks.entry(param.path()).or_insert_with(held);
                    param.gather_weight_to_rank_0(rank, weight, block.as_deref())
                }
            };
            if let Some(whole) = whole {
                slot.unsharded().copy_to_tensor(&whole, &mut values);
            }
        }
        if let Some(export) = &mut export {
            export.write(&tensor.name, &values)?;
        }
    }
    export.map_or(Ok(()), HfExport::finish)?;
    if let Err(error) = rank.comms().world().barrier(&Site::here("export")) {
        CommFailure::unwind(error);
    }
    Ok(())
}
