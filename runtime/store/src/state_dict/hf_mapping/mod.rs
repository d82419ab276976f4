//! The Hugging Face tensors of a declared model.

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use meshwright_core::tensor::ParamRef;

use super::StateDictError;
use super::hf_name::{HfName, numbered};
use super::tensor_slot::{TensorSlot, matrix_sides};

/// The Hugging Face tensors of a declared model, in the order of the declarations of their first parameters.
pub struct HfMapping<'a> {
    tensors: Vec<HfTensor<'a>>,
    params: Vec<HfParam<'a>>,
}

/// A tensor, and the parameters that it consists of.
pub(super) struct HfTensor<'a> {
    pub name: String,
    pub shape: Vec<usize>,
    /// Several if the tensor is fused.
    pub parts: Vec<(TensorSlot, &'a ParamRef)>,
}

/// A parameter, and the tensors that hold it.
pub(super) struct HfParam<'a> {
    pub param: &'a ParamRef,
    /// Slots, with the indices of their tensors: several if each weight of a stack has a tensor of its own.
    pub slots: Vec<(TensorSlot, usize)>,
}

impl<'a> HfMapping<'a> {
    /// Maps `params`, all parameters of a model, by its table of names.
    ///
    /// # Errors
    /// A parameter without a name, parameters that share a tensor without being fused or whose shapes do not fit
    /// together, and an entry of stacked weights for a parameter that has none, or without a `*` for their number.
    pub fn new(names: &[HfName], params: &'a [ParamRef]) -> Result<HfMapping<'a>, StateDictError> {
        let by_path = params.iter().map(|param| (param.path(), param)).collect();
        let table = NameTable { names, by_path };
        let mut tensors: Vec<HfTensor<'a>> = Vec::new();
        let mut index_of: HashMap<String, usize> = HashMap::new();
        let mut mapped = Vec::new();
        for param in params {
            let mut slots = Vec::new();
            for (name, slot) in table.tensor_slots(param)? {
                let shape = slot.tensor_shape();
                let index = match index_of.get(&name) {
                    Some(index) => {
                        tensors[*index].add(slot, shape, param)?;
                        *index
                    }
                    None => {
                        index_of.insert(name.clone(), tensors.len());
                        tensors.push(HfTensor { name, shape, parts: vec![(slot, param)] });
                        tensors.len() - 1
                    }
                };
                slots.push((slot, index));
            }
            mapped.push(HfParam { param, slots });
        }
        Ok(HfMapping { tensors, params: mapped })
    }

    /// Returns name and shape of every tensor.
    pub fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        self.tensors.iter().map(|tensor| (tensor.name.clone(), tensor.shape.clone())).collect()
    }

    pub(super) fn tensors(&self) -> &[HfTensor<'a>] {
        &self.tensors
    }

    pub(super) fn params(&self) -> &[HfParam<'a>] {
        &self.params
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
                "`HF_NAMES` maps both `{other}` and `{path}` to the tensor `{name}`; mark them as fused, or name \
                 another tensor"
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
                "`HF_NAMES` maps both `{other}` and `{path}` to the same part of the fused tensor `{name}`: the name \
                 has fewer `*` than the path; give each of them an entry of its own, with its number in the path"
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
    /// Returns the tensors of a parameter, and its slots there.
    fn tensor_slots(&self, param: &ParamRef) -> Result<Vec<(String, TensorSlot)>, StateDictError> {
        let path = param.path();
        let Some((entry, numbers)) = self.entry_of(path) else {
            return Err(StateDictError::Mapping(self.missing_entry(path)));
        };
        let fused_outputs = entry.fused.then(|| self.fused_outputs(entry, &numbers));
        let slot = TensorSlot::new(entry, param, fused_outputs);
        slot.check_dims().map_err(|reason| {
            StateDictError::Mapping(format!("`{path}`, stored as `{}`, {reason}", entry.name))
        })?;
        if !entry.stacked {
            return Ok(vec![(numbered(entry.name, &numbers), slot)]);
        }
        let Some(slots) = slot.of_weights() else {
            return Err(StateDictError::Mapping(format!(
                "`HF_NAMES` maps the weights of a stack at `{path}`, which is a single weight; give it an entry \
                 `HfName::same` or `HfName::transposed`"
            )));
        };
        let stars = entry.name.split('.').filter(|part| *part == "*").count();
        if stars != numbers.len() + 1 {
            return Err(StateDictError::Mapping(format!(
                "`HF_NAMES` maps the stack `{path}` to `{}`, in which {stars} `*` stand for {} numbers: the numbers \
                 of the path, and at last that of each weight",
                entry.name,
                numbers.len() + 1
            )));
        }
        let named = |(index, slot): (usize, _)| {
            let index = index.to_string();
            (numbered(entry.name, &[&numbers[..], &[&index]].concat()), slot)
        };
        Ok(slots.enumerate().map(named).collect())
    }

    /// Returns the entry of the parameter at `path`, and the layer numbers there.
    fn entry_of<'p>(&self, path: &'p str) -> Option<(&HfName, Vec<&'p str>)> {
        self.names.iter().find_map(|entry| Some((entry, entry.layer_numbers(path)?)))
    }

    /// Explains that the parameter at `path` has no entry. An entry without a parameter, such as that of an optional or
    /// tied field, is no mistake in itself; one that is spelled like the path is.
    fn missing_entry(&self, path: &str) -> String {
        let with_star = |part| if str::parse::<usize>(part).is_ok() { "*" } else { part };
        let wanted = path.split('.').map(with_star).collect::<Vec<_>>().join(".");
        let likeness = |entry: &HfName| likeness(entry.path, &wanted);
        let is_used = |entry: &HfName| {
            self.by_path.keys().any(|path| {
                self.entry_of(path).is_some_and(|(found, _)| std::ptr::eq(found, entry))
            })
        };
        let stray = self.names.iter().filter(|entry| !is_used(entry) && likeness(entry) >= 0.5);
        let stray = stray.max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
        let hint = stray.map_or_else(String::new, |stray| {
            let HfName { path, name, .. } = stray;
            format!("; its entry `{path}`, for the tensor `{name}`, is that of no parameter: did you mean `{wanted}`?")
        });
        format!(
            "`{path}` has no entry in the model's `HF_NAMES`, so it can be neither imported nor exported{hint}"
        )
    }

    /// Counts the outputs before the outputs of `entry` in its fused tensor, and all of them.
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

/// Returns how alike the parts of two paths are that differ, from 0 to 1; 1 if one path only has further parts.
fn likeness(a: &str, b: &str) -> f64 {
    let [a, b] = [a, b].map(|path| path.split('.').collect::<Vec<_>>());
    let common = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[common..], &b[common..]);
    let common = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    let [a, b] = [a, b].map(|parts| parts[..parts.len() - common].join("."));
    let is_part = a.is_empty() || b.is_empty();
    if is_part { 1.0 } else { strsim::normalized_damerau_levenshtein(&a, &b) }
}
