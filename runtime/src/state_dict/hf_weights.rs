//! Import and export of a model's weights in the Hugging Face format.

use std::path::Path;

use crate::checkpoint::TensorSource;
use crate::checkpoint::hf::{HfExport, HfFolder, HfFormat};
use crate::comm::{CommFailure, Site};
use crate::tensor::{ParamRef, Rank};

use super::{HfMapping, HfName, StateDictError};

/// Loads this rank's shard of every parameter that it owns from a Hugging Face folder. `names` maps parameters to tensors.
///
/// # Errors
/// A parameter without a name, and a tensor that is missing, damaged or of another shape.
pub fn import_hf(
    folder: &HfFolder,
    names: &[HfName],
    params: &[ParamRef],
) -> Result<(), StateDictError> {
    for tensor in HfMapping::new(names, params)?.tensors() {
        for (slot, param) in tensor.parts.iter().filter(|(_, param)| param.is_owned()) {
            let values = folder.read(&tensor.name, &tensor.shape, &slot.local_box())?;
            let mut block = vec![0.0; param.local_len()];
            slot.copy_to_param(&values, &mut block);
            param.write(&block);
        }
    }
    Ok(())
}

/// Writes the model as a Hugging Face folder with the `config.json` of `format`. Every rank calls it, and rank 0 writes. Returns
/// when the files are complete: a rank that waits for them has the [time limit of files](crate::comm::FILE_TIME_LIMIT), and learns of a failure of rank 0.
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
    for tensor in HfMapping::new(names, params)?.tensors() {
        let len = if export.is_some() { tensor.shape.iter().product() } else { 0 };
        let mut values = vec![0.0; len];
        for (slot, param) in &tensor.parts {
            if let Some(whole) = param.gather_to_rank_0(rank) {
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
