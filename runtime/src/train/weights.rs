//! A model's parameters and what they are stored as: Hugging Face tensors, checkpoint entries.

use crate::checkpoint::Region;
use crate::checkpoint::hf::{HfExport, HfFolder, LlamaConfig};
use crate::tensor::{Extent, ParamRef, Rank};

use super::{Error, HfName, Result};

/// Reads this rank's part of every parameter from a Hugging Face folder, where `names` says which tensor is whose.
///
/// # Errors
/// A parameter without a name, and a tensor that is missing, damaged or of another shape.
pub fn import_hf(folder: &HfFolder, names: &[HfName], params: &[ParamRef]) -> Result<()> {
    for param in params {
        let tensor = HfTensor::of(names, param)?;
        let values = folder
            .read(&tensor.name, &tensor.shape(), &tensor.region())
            .map_err(Error::of_flag("--init-from"))?;
        let mut block = vec![0.0; param.len()];
        tensor.load(&values, &mut block);
        param.write(&block);
    }
    Ok(())
}

/// Makes sure that a model can be exported as one of `config`, before it is trained.
///
/// # Errors
/// A parameter without a name, and a tensor of the format without a parameter.
pub fn check_export(config: &LlamaConfig, names: &[HfName], params: &[ParamRef]) -> Result<()> {
    exported(config, names, params).map(drop)
}

/// Writes the model as a Hugging Face folder: every rank takes part, the first one writes.
pub fn export_hf(
    rank: &Rank,
    folder: &std::path::Path,
    config: &LlamaConfig,
    names: &[HfName],
    params: &[ParamRef],
) -> Result<()> {
    let refused = || Error::of_flag("--export-hf");
    let mut export = match rank.index() {
        0 => Some(HfExport::create(folder, config).map_err(refused())?),
        _ => None,
    };
    for (tensor, param) in exported(config, names, params)? {
        let whole = param.gather(rank);
        if let Some(export) = &mut export {
            export.write(&tensor.name, &tensor.whole().stored(&whole)).map_err(refused())?;
        }
    }
    export.map_or(Ok(()), |export| export.finish().map_err(refused()))
}

/// The parameters in the order of the format, which must have a place for each of them.
fn exported<'a>(
    config: &LlamaConfig,
    names: &[HfName],
    params: &'a [ParamRef],
) -> Result<Vec<(HfTensor, &'a ParamRef)>> {
    let refused = |reason: String| Err(Error::Input(format!("--export-hf: {reason}")));
    let mut tensors: Vec<(HfTensor, &ParamRef)> = params
        .iter()
        .map(|param| Ok((HfTensor::of(names, param)?, param)))
        .collect::<Result<_>>()?;
    let mut ordered = Vec::with_capacity(tensors.len());
    for (name, _) in config.tensors() {
        let Some(index) = tensors.iter().position(|(tensor, _)| tensor.name == name) else {
            return refused(format!(
                "the model has no parameter for the tensor `{name}` of the format"
            ));
        };
        ordered.push(tensors.swap_remove(index));
    }
    match tensors.first() {
        Some((tensor, param)) => refused(format!(
            "the format has no tensor `{}`, which `HF_NAMES` gives for `{}`",
            tensor.name,
            param.path()
        )),
        None => Ok(ordered),
    }
}

/// A parameter as the format stores it: a vector, or a matrix `[rows, cols]`, of which `rows x cols` are this rank's.
struct HfTensor {
    name: String,
    transposed: bool,
    rows: Extent,
    cols: Option<Extent>,
}

impl HfTensor {
    fn of(names: &[HfName], param: &ParamRef) -> Result<HfTensor> {
        let found = names.iter().find_map(|entry| Some((entry, entry.matched(param.path())?)));
        let Some((entry, name)) = found else {
            return Err(Error::Input(format!(
                "`{}` has no entry in the model's `HF_NAMES`, so it can be neither imported nor exported",
                param.path()
            )));
        };
        let (reads, writes) = match param.extents().split_at(param.contracted()) {
            (vector, []) | ([], vector) => (Extent::flattened(vector), None),
            (reads, writes) => (Extent::flattened(reads), Some(Extent::flattened(writes))),
        };
        let (rows, cols) = match (writes, entry.transposed) {
            (Some(writes), true) => (writes, Some(reads)),
            (writes, _) => (reads, writes),
        };
        Ok(HfTensor { name, transposed: entry.transposed, rows, cols })
    }

    fn shape(&self) -> Vec<usize> {
        std::iter::once(self.rows).chain(self.cols).map(|extent| extent.global).collect()
    }

    fn region(&self) -> Region {
        let extents = || std::iter::once(self.rows).chain(self.cols);
        let offset: Vec<usize> = extents().map(|extent| extent.offset).collect();
        let shape: Vec<usize> = extents().map(|extent| extent.local).collect();
        Region::new(&offset, &shape)
    }

    /// The tensor as one rank would hold all of it.
    fn whole(&self) -> HfTensor {
        HfTensor {
            name: self.name.clone(),
            transposed: self.transposed,
            rows: Extent::whole(self.rows.global),
            cols: self.cols.map(|cols| Extent::whole(cols.global)),
        }
    }

    fn load(&self, values: &[f32], data: &mut [f32]) {
        match self.cols.filter(|_| self.transposed) {
            Some(cols) => transpose(self.rows.local, cols.local, values, data),
            None => data.copy_from_slice(values),
        }
    }

    fn stored(&self, data: &[f32]) -> Vec<f32> {
        let mut values = data.to_vec();
        if let Some(cols) = self.cols.filter(|_| self.transposed) {
            transpose(cols.local, self.rows.local, data, &mut values);
        }
        values
    }
}

/// `to[c, r] = from[r, c]`, in tiles that stay in the cache.
fn transpose(rows: usize, cols: usize, from: &[f32], to: &mut [f32]) {
    const TILE: usize = 32;
    for row_tile in (0..rows).step_by(TILE) {
        for col_tile in (0..cols).step_by(TILE) {
            for row in row_tile..rows.min(row_tile + TILE) {
                for col in col_tile..cols.min(col_tile + TILE) {
                    to[col * rows + row] = from[row * cols + col];
                }
            }
        }
    }
}
