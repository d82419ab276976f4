//! The slot of a parameter in a Hugging Face tensor, and copies between the two.

use crate::checkpoint::TensorBox;
use meshwright_core::tensor::{Extent, ParamRef};

use super::hf_name::HfName;
use super::tensor_dim::{TensorDim, regrouped};

/// The slot of a parameter, or of one weight of a stack, in its tensor, and this rank's shard of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct TensorSlot {
    entry: HfName,
    is_transposed: bool,
    pub is_fused: bool,
    stack: Stack,
    inputs: Option<Extent>,
    outputs: Extent,
    /// Outputs of other parameters before this one's.
    pub outputs_before: usize,
    /// Outputs of all parameters in the tensor.
    all_outputs: usize,
}

/// The weights of a parameter that a tensor holds.
#[derive(Debug, Clone, Copy)]
enum Stack {
    /// The parameter is a single weight.
    None,
    /// All weights of a stack, along the first dim of tensor and parameter.
    Whole(Extent),
    /// One weight of a stack, which has the extent.
    Weight { index: usize, of: Extent },
}

impl TensorSlot {
    /// Returns the slot of a parameter by its entry, with the number of outputs before it and of all outputs in a fused
    /// tensor. A stack has dims of its own in it.
    pub fn new(entry: &HfName, param: &ParamRef, fused_outputs: Option<(usize, usize)>) -> Self {
        let (inputs, outputs) = matrix_sides(param);
        let (outputs_before, all_outputs) = fused_outputs.unwrap_or((0, outputs.global));
        let stack = match param.stacked() {
            0 => Stack::None,
            _ => Stack::Whole(param.local_extents()[0]),
        };
        let (entry, is_transposed, is_fused) = (*entry, entry.transposed, entry.fused);
        TensorSlot {
            entry,
            is_transposed,
            is_fused,
            stack,
            inputs,
            outputs,
            outputs_before,
            all_outputs,
        }
    }

    /// Checks that the dims that the entry states are those of the parameter in other groups.
    ///
    /// # Errors
    /// The difference, as the end of a sentence about the parameter.
    pub fn check_dims(&self) -> Result<(), String> {
        match self.entry.dims() {
            [] => Ok(()),
            _ if self.is_fused || !matches!(self.stack, Stack::None) => {
                Err("shares a tensor or is a stack, for which no dims can be stated".to_owned())
            }
            stated => regrouped(&self.sides(), stated).map(drop),
        }
    }

    /// Returns the slots of the weights of a stack in tensors of their own; `None` if the parameter is not stacked.
    pub fn of_weights(self) -> Option<impl Iterator<Item = TensorSlot>> {
        let Stack::Whole(of) = self.stack else { return None };
        let slot = move |index| TensorSlot { stack: Stack::Weight { index, of }, ..self };
        Some((0..of.global).map(slot))
    }

    /// Returns the number of the weight of a stack, if the tensor holds only this one.
    pub fn weight(&self) -> Option<usize> {
        match self.stack {
            Stack::Weight { index, .. } => Some(index),
            _ => None,
        }
    }

    /// Returns true if this rank holds a part of the tensor.
    pub fn is_held(&self) -> bool {
        match self.stack {
            Stack::Weight { index, of } => (of.offset..of.offset + of.local).contains(&index),
            _ => true,
        }
    }

    /// Returns the shape of the whole tensor.
    pub fn tensor_shape(&self) -> Vec<usize> {
        self.dims().iter().map(|dim| dim.size).collect()
    }

    /// Returns this rank's part of the tensor, if it [holds](Self::is_held) one.
    pub fn local_box(&self) -> TensorBox {
        let dims = self.dims();
        let offset: Vec<usize> = dims.iter().map(|dim| dim.offset).collect();
        let shape: Vec<usize> = dims.iter().map(|dim| dim.len).collect();
        TensorBox::new(&offset, &shape)
    }

    /// Returns the dims of the tensor.
    fn dims(&self) -> Vec<TensorDim> {
        let sides = self.sides();
        match self.entry.dims() {
            [] => sides,
            // Other dims are refused when tensors are mapped.
            stated => regrouped(&sides, stated).unwrap_or(sides),
        }
    }

    /// Returns the stack and the sides of the matrix, in the order of the tensor.
    fn sides(&self) -> Vec<TensorDim> {
        let of = |extent: &Extent| {
            let Extent { global: size, offset, local: len, .. } = *extent;
            TensorDim { size, offset, len }
        };
        let first_output = self.outputs_before + self.outputs.offset;
        let len = self.outputs.local;
        let outputs = TensorDim { size: self.all_outputs, offset: first_output, len };
        let sides = match (&self.inputs, self.is_transposed) {
            (None, _) => vec![outputs],
            (Some(inputs), false) => vec![of(inputs), outputs],
            (Some(inputs), true) => vec![outputs, of(inputs)],
        };
        match &self.stack {
            Stack::Whole(stack) => [vec![of(stack)], sides].concat(),
            _ => sides,
        }
    }

    /// Returns the slot of the unsharded parameter.
    pub fn unsharded(&self) -> TensorSlot {
        let stack = match self.stack {
            Stack::Whole(stack) => Stack::Whole(Extent::whole(stack.global)),
            other => other,
        };
        TensorSlot {
            stack,
            inputs: self.inputs.map(|inputs| Extent::whole(inputs.global)),
            outputs: Extent::whole(self.outputs.global),
            ..*self
        }
    }

    /// Copies the local box of the tensor to the parameter's block.
    pub fn copy_to_param(&self, values: &[f32], block: &mut [f32]) {
        let len = self.inputs.map_or(1, |inputs| inputs.local) * self.outputs.local;
        let first = match self.stack {
            Stack::Weight { index, of } => index - of.offset,
            _ => 0,
        };
        let weights = values.chunks_exact(len.max(1));
        let weights = weights.zip(block[first * len..].chunks_exact_mut(len.max(1)));
        weights.for_each(|(values, block)| self.copy_weight_to_param(values, block));
    }

    fn copy_weight_to_param(&self, values: &[f32], block: &mut [f32]) {
        match self.inputs.filter(|_| self.is_transposed) {
            Some(inputs) => transpose(self.outputs.local, inputs.local, values, block),
            None => block.copy_from_slice(values),
        }
    }

    /// Copies the parameter's block to its slot in the tensor; of a slot of one [`weight`](Self::weight), the block of
    /// that.
    pub fn copy_to_tensor(&self, block: &[f32], tensor: &mut [f32]) {
        let len = self.inputs.map_or(1, |inputs| inputs.local) * self.outputs.local;
        let row = self.inputs.map_or(1, |inputs| inputs.global) * self.all_outputs;
        let first = match self.stack {
            Stack::Whole(stack) => stack.offset,
            _ => 0,
        };
        let weights = tensor.chunks_exact_mut(row.max(1)).skip(first);
        let weights = block.chunks_exact(len.max(1)).zip(weights);
        weights.for_each(|(block, tensor)| self.copy_weight_to_tensor(block, tensor));
    }

    fn copy_weight_to_tensor(&self, block: &[f32], tensor: &mut [f32]) {
        let rows = self.inputs.map_or(1, |inputs| inputs.local);
        let (width, first) = (self.outputs.local, self.outputs_before + self.outputs.offset);
        match self.inputs.filter(|_| self.is_transposed) {
            Some(inputs) => {
                let outputs = &mut tensor[first * inputs.global..][..block.len()];
                transpose(inputs.local, width, block, outputs);
            }
            None => {
                for row in 0..rows {
                    let to = &mut tensor[row * self.all_outputs + first..][..width];
                    to.copy_from_slice(&block[row * width..][..width]);
                }
            }
        }
    }
}

/// Returns inputs and outputs of a parameter, or of each of its stacked weights: the rows and columns of its row-major
/// block. A vector has outputs only.
pub(super) fn matrix_sides(param: &ParamRef) -> (Option<Extent>, Extent) {
    match param.weight_sides().map(|side| &param.local_extents()[side]) {
        [vector, []] | [[], vector] => (None, Extent::flattened(vector)),
        [inputs, outputs] => (Some(Extent::flattened(inputs)), Extent::flattened(outputs)),
    }
}

/// Transposes a matrix, `to[c, r] = from[r, c]`, in tiles that stay in the cache.
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
