//! A model's parameters and what they are stored as: Hugging Face tensors, checkpoint entries.

use std::cell::Ref;

use crate::checkpoint::hf::{HfExport, HfFolder, LlamaConfig};
use crate::checkpoint::{Checkpoint, CheckpointError, Region, ShardEntry};
use crate::layout::AxisSet;
use crate::optim::{AdamW, Moments};
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
        param.with_data(|data| tensor.load(&values, data));
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
            (vector, []) | ([], vector) => (flattened(vector), None),
            (reads, writes) => (flattened(reads), Some(flattened(writes))),
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

/// Several dims, of which only the first may be split, as one.
fn flattened(extents: &[Extent]) -> Extent {
    let inner: usize = extents[1..].iter().map(|extent| extent.global).product();
    let first = extents[0];
    Extent {
        global: first.global * inner,
        local: first.local * inner,
        offset: first.offset * inner,
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

/// The kinds of tensors that a checkpoint holds for each parameter.
const PARAMETER: &str = "params";
const FIRST_MOMENT: &str = "adam_m";
const SECOND_MOMENT: &str = "adam_v";

/// Names and global shapes of all tensors of a checkpoint of these parameters: first all parameters, then the moments.
pub fn checkpoint_tensors(params: &[ParamRef]) -> impl Iterator<Item = (String, Vec<usize>)> {
    [PARAMETER, FIRST_MOMENT, SECOND_MOMENT].into_iter().flat_map(move |kind| {
        params.iter().map(move |param| (format!("{kind}.{}", param.path()), global_shape(param)))
    })
}

/// Lets `write` see what this rank saves of parameters and optimiser, where it lies: of what several ranks hold, the
/// first one's.
pub fn with_checkpoint_entries<T>(
    rank: &Rank,
    optimizer: &AdamW,
    write: impl FnOnce(&[ShardEntry<'_>]) -> T,
) -> T {
    let saved: Vec<(&Moments, ParamRef)> = optimizer
        .moments()
        .iter()
        .flat_map(|moments| moments.params().into_iter().map(move |param| (moments, param)))
        .filter(|(_, param)| rank.position(AxisSet::ALL.minus(param.varies())) == 0)
        .collect();
    let values: Vec<Ref<'_, [f32]>> = saved.iter().map(|(_, param)| param.data()).collect();
    let entries: Vec<ShardEntry<'_>> = saved
        .iter()
        .zip(&values)
        .flat_map(|((moments, param), values)| {
            let (first, second) = moments.of(param);
            [(PARAMETER, &**values), (FIRST_MOMENT, first), (SECOND_MOMENT, second)].map(
                |(kind, data)| ShardEntry {
                    name: format!("{kind}.{}", param.path()),
                    global_shape: global_shape(param),
                    region: region(param),
                    data,
                },
            )
        })
        .collect();
    write(&entries)
}

/// Reads this rank's part of parameters and optimiser.
pub fn load_checkpoint(
    checkpoint: &Checkpoint,
    optimizer: &mut AdamW,
) -> std::result::Result<(), CheckpointError> {
    for moments in optimizer.moments_mut() {
        for param in moments.params() {
            let read = |kind: &str, out: &mut [f32]| {
                checkpoint.read_into(
                    &format!("{kind}.{}", param.path()),
                    &global_shape(&param),
                    &region(&param),
                    out,
                )
            };
            let mut result = Ok(());
            param.with_data(|data| result = read(PARAMETER, data));
            result?;
            let (first, second) = moments.of_mut(&param);
            read(FIRST_MOMENT, first)?;
            read(SECOND_MOMENT, second)?;
        }
    }
    optimizer.set_steps(checkpoint.manifest().state.step);
    Ok(())
}

fn global_shape(param: &ParamRef) -> Vec<usize> {
    param.extents().iter().map(|extent| extent.global).collect()
}

fn region(param: &ParamRef) -> Region {
    let offset: Vec<usize> = param.extents().iter().map(|extent| extent.offset).collect();
    let shape: Vec<usize> = param.extents().iter().map(|extent| extent.local).collect();
    Region::new(&offset, &shape)
}
