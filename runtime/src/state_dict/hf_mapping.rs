//! The Hugging Face tensors of a declared model.

use std::collections::HashMap;

use crate::checkpoint::TensorBox;
use crate::tensor::{Extent, ParamRef};

use super::StateDictError;
use super::hf_name::{HfName, numbered};

/// The Hugging Face tensors of a declared model, in the order in which the model declares their first parameter.
pub struct HfMapping<'a> {
    tensors: Vec<HfTensor<'a>>,
}

/// A tensor, and the parameters that it consists of.
pub(super) struct HfTensor<'a> {
    pub name: String,
    pub shape: Vec<usize>,
    /// Several if the tensor is fused.
    pub parts: Vec<(TensorSlot, &'a ParamRef)>,
}

impl<'a> HfMapping<'a> {
    /// Maps `params`, all parameters of a model, by its table of names.
    ///
    /// # Errors
    /// A parameter without a name, and parameters that share a tensor without being fused or whose shapes do not fit
    /// together.
    pub fn new(names: &[HfName], params: &'a [ParamRef]) -> Result<HfMapping<'a>, StateDictError> {
        let by_path = params.iter().map(|param| (param.path(), param)).collect();
        let table = NameTable { names, by_path };
        let mut tensors: Vec<HfTensor<'a>> = Vec::new();
        let mut index_of: HashMap<String, usize> = HashMap::new();
        for param in params {
            let (name, slot) = table.tensor_slot(param)?;
            let shape = slot.tensor_shape();
            match index_of.get(&name) {
                Some(index) => tensors[*index].add(slot, shape, param)?,
                None => {
                    index_of.insert(name.clone(), tensors.len());
                    tensors.push(HfTensor { name, shape, parts: vec![(slot, param)] });
                }
            }
        }
        Ok(HfMapping { tensors })
    }

    /// Returns name and shape of every tensor.
    pub fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        self.tensors.iter().map(|tensor| (tensor.name.clone(), tensor.shape.clone())).collect()
    }

    pub(super) fn tensors(&self) -> &[HfTensor<'a>] {
        &self.tensors
    }
}

impl<'a> HfTensor<'a> {
    fn add(
        &mut self,
        slot: TensorSlot,
        shape: Vec<usize>,
        param: &'a ParamRef,
    ) -> Result<(), StateDictError> {
        let (first, other) = &self.parts[0];
        let (path, other, name) = (param.path(), other.path(), &self.name);
        if !(first.is_fused && slot.is_fused) {
            return Err(StateDictError::Mapping(format!(
                "`HF_NAMES` maps both `{other}` and `{path}` to the tensor `{name}`; mark them as fused, or name another \
                 tensor"
            )));
        }
        if shape != self.shape {
            return Err(StateDictError::Mapping(format!(
                "`{path}` makes the tensor `{name}` one of shape {shape:?}, but `{other}` one of shape {:?}",
                self.shape
            )));
        }
        let begins_alike =
            |part: &&(TensorSlot, &ParamRef)| part.0.outputs_before == slot.outputs_before;
        if let Some((_, other)) = self.parts.iter().find(begins_alike) {
            let other = other.path();
            return Err(StateDictError::Mapping(format!(
                "`HF_NAMES` maps both `{other}` and `{path}` to the same part of the fused tensor `{name}`: the name has \
                 fewer `*` than the path; give each of them an entry of its own, with its number in the path"
            )));
        }
        self.parts.push((slot, param));
        Ok(())
    }
}

/// The model's table of names, with the parameters that it is about.
struct NameTable<'a> {
    names: &'a [HfName],
    by_path: HashMap<&'a str, &'a ParamRef>,
}

impl NameTable<'_> {
    /// Returns the tensor of a parameter, and its slot there.
    fn tensor_slot(&self, param: &ParamRef) -> Result<(String, TensorSlot), StateDictError> {
        let path = param.path();
        let found = self.names.iter().find_map(|entry| Some((entry, entry.layer_numbers(path)?)));
        let Some((entry, numbers)) = found else {
            return Err(StateDictError::Mapping(format!(
                "`{path}` has no entry in the model's `HF_NAMES`, so it can be neither imported nor exported"
            )));
        };
        let (inputs, outputs) = matrix_sides(param);
        let stack = (param.stacked() > 0).then(|| param.local_extents()[0]);
        let (outputs_before, all_outputs) =
            if entry.fused { self.fused_outputs(entry, &numbers) } else { (0, outputs.global) };
        let (is_transposed, is_fused) = (entry.transposed, entry.fused);
        let slot = TensorSlot {
            is_transposed,
            is_fused,
            stack,
            inputs,
            outputs,
            outputs_before,
            all_outputs,
        };
        Ok((numbered(entry.name, &numbers), slot))
    }

    /// Counts the outputs before those of `entry` in its fused tensor, and all of them.
    fn fused_outputs(&self, entry: &HfName, numbers: &[&str]) -> (usize, usize) {
        let (mut before, mut all) = (0, 0);
        for other in self.names.iter().filter(|other| other.name == entry.name) {
            if other.path == entry.path {
                before = all;
            }
            let param = self.by_path.get(numbered(other.path, numbers).as_str());
            all += param.map_or(0, |param| matrix_sides(param).1.global);
        }
        (before, all)
    }
}

/// Returns inputs and outputs of a parameter, or of each of its stacked weights: the rows and columns of its row-major
/// block. A vector has outputs only.
fn matrix_sides(param: &ParamRef) -> (Option<Extent>, Extent) {
    match param.weight_sides().map(|side| &param.local_extents()[side]) {
        [vector, []] | [[], vector] => (None, Extent::flattened(vector)),
        [inputs, outputs] => (Some(Extent::flattened(inputs)), Extent::flattened(outputs)),
    }
}

/// The slot of a parameter in its tensor, and this rank's shard of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct TensorSlot {
    is_transposed: bool,
    is_fused: bool,
    /// The first dim of tensor and parameter, if they are stacked weights.
    stack: Option<Extent>,
    inputs: Option<Extent>,
    outputs: Extent,
    /// Outputs of other parameters before this one's.
    outputs_before: usize,
    /// Outputs of all parameters in the tensor.
    all_outputs: usize,
}

impl TensorSlot {
    /// Returns the shape of the whole tensor.
    fn tensor_shape(&self) -> Vec<usize> {
        self.in_tensor_order(|extent| extent.global, self.all_outputs)
    }

    /// Returns this rank's part of the tensor.
    pub fn local_box(&self) -> TensorBox {
        let first_output = self.outputs_before + self.outputs.offset;
        let offset = self.in_tensor_order(|extent| extent.offset, first_output);
        let shape = self.in_tensor_order(|extent| extent.local, self.outputs.local);
        TensorBox::new(&offset, &shape)
    }

    /// Returns a number for each dim of the tensor: `of` the stack and of the inputs, and `outputs`.
    fn in_tensor_order(&self, of: impl Fn(&Extent) -> usize, outputs: usize) -> Vec<usize> {
        let sides = match (&self.inputs, self.is_transposed) {
            (None, _) => vec![outputs],
            (Some(inputs), false) => vec![of(inputs), outputs],
            (Some(inputs), true) => vec![outputs, of(inputs)],
        };
        self.stack.iter().map(of).chain(sides).collect()
    }

    /// Returns the slot of the unsharded parameter.
    pub fn unsharded(&self) -> TensorSlot {
        TensorSlot {
            stack: self.stack.map(|stack| Extent::whole(stack.global)),
            inputs: self.inputs.map(|inputs| Extent::whole(inputs.global)),
            outputs: Extent::whole(self.outputs.global),
            ..*self
        }
    }

    /// Copies the local box of the tensor to the parameter's block.
    pub fn copy_to_param(&self, values: &[f32], block: &mut [f32]) {
        let len = self.inputs.map_or(1, |inputs| inputs.local) * self.outputs.local;
        let weights = values.chunks_exact(len.max(1)).zip(block.chunks_exact_mut(len.max(1)));
        weights.for_each(|(values, block)| self.copy_weight_to_param(values, block));
    }

    fn copy_weight_to_param(&self, values: &[f32], block: &mut [f32]) {
        match self.inputs.filter(|_| self.is_transposed) {
            Some(inputs) => transpose(self.outputs.local, inputs.local, values, block),
            None => block.copy_from_slice(values),
        }
    }

    /// Copies the parameter's block to its slot in the tensor.
    pub fn copy_to_tensor(&self, block: &[f32], tensor: &mut [f32]) {
        let len = self.inputs.map_or(1, |inputs| inputs.local) * self.outputs.local;
        let row = self.inputs.map_or(1, |inputs| inputs.global) * self.all_outputs;
        let first = self.stack.map_or(0, |stack| stack.offset);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::CpuBackend;
    use crate::comm::RankComms;
    use crate::layout::{Ep, Split, Stacked};
    use crate::nn::{Build, Builder, LmHead, RmsNorm, Sizes, declare};
    use crate::tensor::{Init, Rank};
    use crate::{dims, model};

    dims! { crate = crate; Vocab, Hidden, Experts }

    struct Twins;

    impl Build for Twins {
        fn build(builder: &mut Builder<'_>) -> Twins {
            RmsNorm::<Hidden>::build(&mut builder.field("first"));
            RmsNorm::<Hidden>::build(&mut builder.field("second"));
            LmHead::<Hidden, Vocab>::build(&mut builder.field("head"));
            Twins
        }
    }

    struct Stack;

    impl Build for Stack {
        fn build(builder: &mut Builder<'_>) -> Stack {
            builder.param::<Stacked<Split<Experts, Ep>, Hidden, Vocab>>("weight", Init::Zeros);
            Stack
        }
    }

    const HEAD: HfName = HfName::transposed("head.weight", "lm_head");

    fn params<M: Build>(mesh: &str) -> Vec<ParamRef> {
        let comms = RankComms::unattended(mesh.parse().unwrap());
        let rank = Rank::new(comms, Box::new(CpuBackend::new(1).unwrap()), 0);
        let sizes = Sizes::new().with(Vocab, 10).with(Hidden, 4).with(Experts, 6);
        declare::<M>(&rank, &sizes).unwrap().params()
    }

    fn shapes(first: HfName, second: HfName) -> Result<Vec<(String, Vec<usize>)>, String> {
        let params = params::<Twins>("1");
        let mapping = HfMapping::new(&[first, second, HEAD], &params);
        mapping.map(|mapping| mapping.shapes()).map_err(|error| error.to_string())
    }

    #[test]
    fn shapes_follow_from_names_and_parameters() {
        let [a, b] = ["a", "b"].map(str::to_owned);
        let first = HfName::same("first.weight", "a");
        let found = shapes(first, HfName::same("second.weight", "b")).unwrap();
        assert_eq!(found[..2], [(a.clone(), vec![4]), (b, vec![4])]);
        assert_eq!(found[2].0, "lm_head");
        let found = shapes(first.fused(), HfName::same("second.weight", "a").fused()).unwrap();
        assert_eq!(found[0], (a, vec![8]));
        assert_eq!(found.len(), 2);
    }

    /// Each weight of a stack is transposed, and a rank reads those of its experts.
    #[test]
    fn stacked_weights_are_three_dims() {
        let params = params::<Stack>("ep=2");
        let value = |expert: usize, input: usize, output: usize| {
            (expert * 100 + input * 10 + output) as f32
        };
        for (name, is_transposed) in
            [(HfName::same("weight", "w"), false), (HfName::transposed("weight", "w"), true)]
        {
            let names = [name];
            let mapping = HfMapping::new(&names, &params).unwrap();
            let [tensor] = mapping.tensors() else { panic!("one tensor") };
            let [(slot, param)] = tensor.parts.as_slice() else { panic!("one part") };
            assert_eq!(tensor.shape, if is_transposed { [6, 10, 4] } else { [6, 4, 10] });
            let held = if is_transposed { [3, 10, 4] } else { [3, 4, 10] };
            // An unattended rank is the last one.
            assert_eq!(slot.local_box(), TensorBox::new(&[3, 0, 0], &held));
            let all = |experts: usize, is_transposed: bool| {
                let (rows, cols) = if is_transposed { (10, 4) } else { (4, 10) };
                let element = move |index: usize| {
                    let (row, col) = (index / cols % rows, index % cols);
                    let (input, output) = if is_transposed { (col, row) } else { (row, col) };
                    value(index / (rows * cols), input, output)
                };
                (0..experts * rows * cols).map(element).collect::<Vec<_>>()
            };
            let mut block = vec![0.0; param.local_len()];
            slot.copy_to_param(&all(3, is_transposed), &mut block);
            assert_eq!(block, all(3, false));
            let mut exported = vec![0.0; 6 * 40];
            slot.unsharded().copy_to_tensor(&all(6, false), &mut exported);
            assert_eq!(exported, all(6, is_transposed));
        }
    }

    /// Elements that one entry maps to one tensor would overwrite each other in it.
    #[test]
    fn an_entry_is_one_part_of_a_fused_tensor() {
        #[model(crate = crate)]
        #[expect(dead_code, reason = "the model is declared only")]
        struct Heads {
            heads: [LmHead<Hidden, Vocab>; 2],
        }
        let params = params::<Heads>("1");
        let of_both = [HfName::same("heads.*.weight", "a").fused()];
        let text = HfMapping::new(&of_both, &params).err().unwrap().to_string();
        let both = "`HF_NAMES` maps both `heads.0.weight` and `heads.1.weight` to the same part of";
        assert!(text.contains(both), "{text}");
        let of_each =
            ["heads.0.weight", "heads.1.weight"].map(|path| HfName::same(path, "a").fused());
        let mapping = HfMapping::new(&of_each, &params).unwrap();
        assert_eq!(mapping.tensors().len(), 1);
    }

    #[test]
    fn tensors_are_shared_only_if_fused() {
        let (first, second) =
            (HfName::same("first.weight", "a"), HfName::same("second.weight", "a"));
        for (first, second) in [(first, second), (first.fused(), second), (first, second.fused())] {
            let text = shapes(first, second).unwrap_err();
            assert!(text.contains("maps both `first.weight` and `second.weight` to"), "{text}");
        }
        let text = shapes(first.fused(), HfName::same("head.weight", "a").fused()).unwrap_err();
        assert!(text.contains("`second.weight` has no entry in the model's `HF_NAMES`"), "{text}");
    }
}
