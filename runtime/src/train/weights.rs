//! A model's parameters and what they are stored as: Hugging Face tensors, checkpoint entries.

use std::collections::HashMap;

use crate::checkpoint::Region;
use crate::checkpoint::hf::{HfExport, HfFolder, HfFormat};
use crate::tensor::{Extent, ParamRef, Rank};

use super::family::numbered;
use super::{Error, HfName, Result};

/// Reads this rank's part of every parameter from a Hugging Face folder, where `names` says which tensor is whose.
///
/// # Errors
/// A parameter without a name, and a tensor that is missing, damaged or of another shape.
pub fn import_hf(folder: &HfFolder, names: &[HfName], params: &[ParamRef]) -> Result<()> {
    let table = Table::new(names, params);
    for param in params {
        let place = table.place(param)?;
        let values = folder
            .read(&place.name, &place.tensor_shape(), &place.region())
            .map_err(Error::of_flag("--init-from"))?;
        let mut block = vec![0.0; param.local_len()];
        place.load(&values, &mut block);
        param.write(&block);
    }
    Ok(())
}

/// Makes sure that a model can be exported in this format, before it is trained.
///
/// # Errors
/// A parameter without a name or of another size than the format has, and a tensor of the format without a parameter.
pub fn check_export(format: &HfFormat, names: &[HfName], params: &[ParamRef]) -> Result<()> {
    exported(format, names, params).map(drop)
}

/// Writes the model as a Hugging Face folder: every rank takes part, the first one writes.
pub fn export_hf(
    rank: &Rank,
    folder: &std::path::Path,
    format: &HfFormat,
    names: &[HfName],
    params: &[ParamRef],
) -> Result<()> {
    let refused = || Error::of_flag("--export-hf");
    let mut export = match rank.index() {
        0 => Some(HfExport::create(folder, format).map_err(refused())?),
        _ => None,
    };
    for Stored { name, len, parts } in exported(format, names, params)? {
        let mut tensor = vec![0.0; if export.is_some() { len } else { 0 }];
        for (place, param) in parts {
            let whole = param.gather(rank);
            if export.is_some() {
                place.whole().store(&whole, &mut tensor);
            }
        }
        if let Some(export) = &mut export {
            export.write(name, &tensor).map_err(refused())?;
        }
    }
    export.map_or(Ok(()), |export| export.finish().map_err(refused()))
}

/// A tensor of the format, and the parameters that it is made of.
struct Stored<'a> {
    name: &'a str,
    len: usize,
    parts: Vec<(Place, &'a ParamRef)>,
}

/// The tensors in the order of the format, which must have a place for each parameter.
fn exported<'a>(
    format: &'a HfFormat,
    names: &[HfName],
    params: &'a [ParamRef],
) -> Result<Vec<Stored<'a>>> {
    let refused = |reason: String| Err(Error::Input(format!("--export-hf: {reason}")));
    let table = Table::new(names, params);
    let mut parts_of: HashMap<String, Vec<(Place, &ParamRef)>> = HashMap::new();
    for param in params {
        let place = table.place(param)?;
        parts_of.entry(place.name.clone()).or_default().push((place, param));
    }
    let mut ordered = Vec::with_capacity(parts_of.len());
    for (name, shape) in format.tensors() {
        let Some(parts) = parts_of.remove(name) else {
            return refused(format!(
                "the model has no parameter for the tensor `{name}` of the format"
            ));
        };
        if let Some((place, param)) = parts.iter().find(|(place, _)| place.tensor_shape() != *shape)
        {
            return refused(format!(
                "`{}` makes the tensor `{name}` one of shape {:?}, where the format has {shape:?}",
                param.path(),
                place.tensor_shape()
            ));
        }
        let len = shape.iter().product();
        ordered.push(Stored { name, len, parts });
    }
    // The first in the order of the model, so that the message is always the same.
    let extra = params.iter().find_map(|param| {
        let mut parts = parts_of.values().flatten();
        parts.find(|(_, other)| other.path() == param.path())
    });
    match extra {
        Some((place, param)) => refused(format!(
            "the format has no tensor `{}`, which `HF_NAMES` gives for `{}`",
            place.name,
            param.path()
        )),
        None => Ok(ordered),
    }
}

/// Which tensor is whose.
struct Table<'a> {
    names: &'a [HfName],
    by_path: HashMap<&'a str, &'a ParamRef>,
}

impl<'a> Table<'a> {
    fn new(names: &'a [HfName], params: &'a [ParamRef]) -> Table<'a> {
        let by_path = params.iter().map(|param| (param.path(), param)).collect();
        Table { names, by_path }
    }

    fn place(&self, param: &ParamRef) -> Result<Place> {
        let path = param.path();
        let found = self.names.iter().find_map(|entry| Some((entry, entry.numbers(path)?)));
        let Some((entry, numbers)) = found else {
            return Err(Error::Input(format!(
                "`{path}` has no entry in the model's `HF_NAMES`, so it can be neither imported nor exported"
            )));
        };
        let (reads, writes) = sides(param);
        let (before, outputs) = match entry.fused {
            true => self.beside(entry, &numbers),
            false => (0, writes.global),
        };
        Ok(Place {
            name: numbered(entry.name, &numbers),
            transposed: entry.transposed,
            reads,
            writes,
            before,
            outputs,
        })
    }

    /// How many outputs stand before those of `entry` in the tensor that it shares, and how many there are in all.
    fn beside(&self, entry: &HfName, numbers: &[&str]) -> (usize, usize) {
        let (mut before, mut all) = (0, 0);
        for other in self.names.iter().filter(|other| other.name == entry.name) {
            if other.path == entry.path {
                before = all;
            }
            let param = self.by_path.get(numbered(other.path, numbers).as_str());
            all += param.map_or(0, |param| sides(param).1.global);
        }
        (before, all)
    }
}

/// What a parameter reads, if it does, and what it writes: the rows and columns of its row-major block. A vector is
/// written only.
fn sides(param: &ParamRef) -> (Option<Extent>, Extent) {
    match param.local_extents().split_at(param.contracted()) {
        (vector, []) | ([], vector) => (None, Extent::flattened(vector)),
        (reads, writes) => (Some(Extent::flattened(reads)), Extent::flattened(writes)),
    }
}

/// Where a parameter lies in the tensor that stores it, and which part of that is this rank's.
struct Place {
    name: String,
    transposed: bool,
    reads: Option<Extent>,
    writes: Extent,
    /// Outputs of other parameters before its own.
    before: usize,
    /// Outputs of all parameters in the tensor.
    outputs: usize,
}

impl Place {
    /// Dims of the whole tensor.
    fn tensor_shape(&self) -> Vec<usize> {
        self.ordered(self.reads.map(|reads| reads.global), self.outputs)
    }

    /// This rank's part of the tensor.
    fn region(&self) -> Region {
        let offset =
            self.ordered(self.reads.map(|reads| reads.offset), self.before + self.writes.offset);
        let shape = self.ordered(self.reads.map(|reads| reads.local), self.writes.local);
        Region::new(&offset, &shape)
    }

    /// Numbers of the two sides in the order in which the tensor has them.
    fn ordered(&self, reads: Option<usize>, writes: usize) -> Vec<usize> {
        match (reads, self.transposed) {
            (None, _) => vec![writes],
            (Some(reads), false) => vec![reads, writes],
            (Some(reads), true) => vec![writes, reads],
        }
    }

    /// The place as one rank would see it that holds all of the parameter.
    fn whole(&self) -> Place {
        Place {
            name: self.name.clone(),
            reads: self.reads.map(|reads| Extent::whole(reads.global)),
            writes: Extent::whole(self.writes.global),
            ..*self
        }
    }

    /// From the part of the tensor to the parameter's block.
    fn load(&self, values: &[f32], block: &mut [f32]) {
        match self.reads.filter(|_| self.transposed) {
            Some(reads) => transpose(self.writes.local, reads.local, values, block),
            None => block.copy_from_slice(values),
        }
    }

    /// From the parameter's block to its place in the tensor.
    fn store(&self, block: &[f32], tensor: &mut [f32]) {
        let rows = self.reads.map_or(1, |reads| reads.local);
        let (width, first) = (self.writes.local, self.before + self.writes.offset);
        match self.reads.filter(|_| self.transposed) {
            Some(reads) => {
                let outputs = &mut tensor[first * reads.global..][..block.len()];
                transpose(reads.local, width, block, outputs);
            }
            None => {
                for row in 0..rows {
                    let to = &mut tensor[row * self.outputs + first..][..width];
                    to.copy_from_slice(&block[row * width..][..width]);
                }
            }
        }
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
