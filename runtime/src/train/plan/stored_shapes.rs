//! The tensors of a folder, compared with the first layers of a model before the whole model is declared.

use crate::checkpoint::CheckpointError;
use crate::checkpoint::hf::HfFolder;
use crate::nn::{Build, Sizes};
use crate::state_dict::{HfMapping, HfName};
use crate::tensor::{ParamRef, Rank};
use crate::train::{Error, Result};

use super::declaration::declare_first_layers;

const FLAG: &str = "--init-from";

/// Parameters of the first layers of a model, and the folder that it starts from.
///
/// Sizes of a `config.json` that contradict the stored tensors are a mistake of the file, whatever memory they need.
pub struct StoredShapes<'a> {
    weights: &'a HfFolder,
    names: &'a [HfName],
    params: Vec<ParamRef>,
}

impl<'a> StoredShapes<'a> {
    /// Declares the first layers of a model of these sizes: one, or one pattern of their kinds.
    ///
    /// # Errors
    /// Sizes that do not fit the model or the mesh, and more weights in a stack, such as experts, than the folder has
    /// tensors.
    pub fn new<M: Build>(
        rank: &Rank,
        sizes: &Sizes,
        (weights, names): (&'a HfFolder, &'a [HfName]),
    ) -> Result<StoredShapes<'a>> {
        let params = declare_first_layers::<M>(rank, sizes)?;
        let held = weights.len();
        let has_own_tensors = |param: &&ParamRef| {
            let is_name = |name: &HfName| name.stacked && name.matched(param.path()).is_some();
            param.stacked() > 0 && names.iter().any(is_name)
        };
        for param in params.iter().filter(has_own_tensors) {
            let stacked = param.local_extents()[0].global;
            if stacked > held {
                let reason = format!(
                    "by its config.json, `{}` consists of {stacked} weights, but the folder holds {held} tensors in \
                     all",
                    param.path()
                );
                let error = CheckpointError::Settings { path: weights.folder().to_owned(), reason };
                return Err(Error::of_flag(FLAG)(error));
            }
        }
        Ok(StoredShapes { weights, names, params })
    }

    /// Compares the shapes of the stored tensors of the first layers with those that the sizes make.
    ///
    /// # Errors
    /// Tensors of other shapes.
    pub fn check(&self) -> Result<()> {
        let tensors = hf_tensors(self.names, &self.params, FLAG)?;
        self.weights.check_shapes(&tensors).map_err(Error::of_flag(FLAG))
    }
}

/// Returns name and shape of each tensor of a model in the Hugging Face layout; `flag` needs them.
///
/// # Errors
/// Names that do not fit the model.
pub fn hf_tensors(
    names: &[HfName],
    params: &[ParamRef],
    flag: &'static str,
) -> Result<Vec<(String, Vec<usize>)>> {
    let mapping = HfMapping::new(names, params).map_err(Error::of_flag(flag))?;
    Ok(mapping.shapes())
}
