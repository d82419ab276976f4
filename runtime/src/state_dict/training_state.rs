//! The tensors of a checkpoint: parameters, optimizer state and moving average.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::checkpoint::{Checkpoint, CheckpointError, ShardEntry, TensorBox, TensorSource};
use crate::layout::{AxisId, AxisSet};
use crate::optim::{Ema, Optimizer, UnitState};
use crate::tensor::{ParamRef, Rank, UnitSlice};

/// Kind of the parameters in a checkpoint, next to the kinds of optimizer state and moving average.
const PARAMETER: &str = "params";

/// Parameters of the model, with the optimizer state and moving average of this rank's shards.
pub struct TrainingState<'a> {
    pub params: &'a [ParamRef],
    pub optimizer: &'a Optimizer,
    pub average: Option<&'a Ema>,
}

/// Mutable access to the same, for loading.
pub struct TrainingStateMut<'a> {
    pub params: &'a [ParamRef],
    pub optimizer: &'a mut Optimizer,
    pub average: Option<&'a mut Ema>,
}

/// Returns names and global shapes of all tensors in a checkpoint of these parameters. `kinds` returns the kinds of state
/// that a parameter has.
pub fn training_tensors<'a>(
    params: &'a [ParamRef],
    kinds: impl Fn(&ParamRef) -> Vec<&'static str> + 'a,
) -> impl Iterator<Item = (String, Vec<usize>)> + 'a {
    params.iter().flat_map(move |param| {
        let kinds = [PARAMETER].into_iter().chain(kinds(param));
        kinds.map(|kind| (tensor_name(kind, param), param.sizes()))
    })
}

/// Returns the kinds of state in a checkpoint, without the parameters.
pub fn state_kinds_in(checkpoint: &Checkpoint) -> BTreeSet<&str> {
    let names = checkpoint.manifest().tensors.keys();
    let kinds = names.map(|name| name.split_once('.').map_or(name.as_str(), |(kind, _)| kind));
    kinds.filter(|kind| *kind != PARAMETER).collect()
}

/// Calls `write` with the shards that this rank saves, without copying host memory. Of replicas, the first one saves: of
/// parameters that are tied across pipeline stages, the first owner.
pub fn with_shard_entries<T>(
    rank: &Rank,
    state: &TrainingState<'_>,
    write: impl FnOnce(&[ShardEntry<'_>]) -> T,
) -> T {
    let within_stage = AxisSet::ALL.difference(AxisSet::of(AxisId::Pp));
    let is_saved = |param: &ParamRef| {
        let held_apart = param.varies().union(param.unit().shard_axes());
        rank.position(within_stage.difference(held_apart)) == 0 && param.is_first_owner()
    };
    let params: Vec<&ParamRef> = state.params.iter().filter(|param| is_saved(param)).collect();
    let values: Vec<UnitSlice<'_>> = params.iter().map(|param| param.owned_values()).collect();
    let mut shards: Vec<(&ParamRef, &str, Cow<'_, [f32]>)> = Vec::new();
    for (param, values) in params.iter().zip(&values) {
        shards.push((param, PARAMETER, values.view().on_host()));
    }
    let average = state.average.map_or(&[][..], Ema::states);
    let unit_states: Vec<(&UnitState, Vec<ParamRef>)> = (state.optimizer.states().iter())
        .chain(average)
        .map(|unit_state| (unit_state, unit_state.params()))
        .collect();
    for (unit_state, params) in &unit_states {
        for param in params.iter().filter(|param| is_saved(param)) {
            let buffers = unit_state.states_of(param).into_iter();
            shards.extend(buffers.map(|(kind, data)| (param, kind, data.on_host())));
        }
    }
    let entries = shards.iter().flat_map(|(param, kind, data)| shard_entries(param, kind, data));
    write(&entries.collect::<Vec<_>>())
}

/// Returns the elements of `param` that this rank owns, box by box.
fn shard_entries<'a>(
    param: &ParamRef,
    kind: &str,
    data: &'a [f32],
) -> impl Iterator<Item = ShardEntry<'a>> {
    let name = tensor_name(kind, param);
    let global_shape = param.sizes();
    let mut rest = data;
    owned_boxes(param).into_iter().map(move |tensor_box| {
        let (data, after) = rest.split_at(tensor_box.len());
        rest = after;
        ShardEntry { name: name.clone(), global_shape: global_shape.clone(), tensor_box, data }
    })
}

/// Loads this rank's shards of the parameters that it owns. A moving average that the checkpoint lacks starts from the
/// parameters.
pub fn load_checkpoint(
    checkpoint: &Checkpoint,
    state: TrainingStateMut<'_>,
) -> Result<(), CheckpointError> {
    for param in state.params.iter().filter(|param| param.is_owned()) {
        let mut block = vec![0.0; param.local_len()];
        let name = tensor_name(PARAMETER, param);
        checkpoint.read_into(&name, &param.sizes(), &local_box(param), &mut block)?;
        param.write(&block);
    }
    load_states(checkpoint, state.optimizer.states_mut())?;
    state.optimizer.set_steps(checkpoint.manifest().state.step);
    if let Some(average) = state.average {
        if state_kinds_in(checkpoint).contains(Ema::KIND) {
            load_states(checkpoint, average.states_mut())?;
        } else {
            average.restart();
        }
    }
    Ok(())
}

fn load_states(checkpoint: &Checkpoint, states: &mut [UnitState]) -> Result<(), CheckpointError> {
    for state in states {
        for param in state.params() {
            let shape = param.sizes();
            for (kind, mut buffer) in state.of_mut(&param) {
                let mut values = vec![0.0; buffer.len()];
                let mut rest = values.as_mut_slice();
                for tensor_box in owned_boxes(&param) {
                    let (part, after) = rest.split_at_mut(tensor_box.len());
                    checkpoint.read_into(&tensor_name(kind, &param), &shape, &tensor_box, part)?;
                    rest = after;
                }
                buffer.write(&values);
            }
        }
    }
    Ok(())
}

fn tensor_name(kind: &str, param: &ParamRef) -> String {
    format!("{kind}.{}", param.path())
}

/// Returns the boxes of the global parameter that this rank owns, in the order of its elements.
fn owned_boxes(param: &ParamRef) -> Vec<TensorBox> {
    let local = local_box(param);
    let boxes = TensorBox::of_run(&local.shape, param.owned()).into_iter();
    boxes.map(|part| part.moved_by(&local.offset)).collect()
}

/// Returns the box of the global parameter that this rank computes with.
fn local_box(param: &ParamRef) -> TensorBox {
    let offset: Vec<usize> = param.local_extents().iter().map(|extent| extent.offset).collect();
    let shape: Vec<usize> = param.local_extents().iter().map(|extent| extent.local).collect();
    TensorBox::new(&offset, &shape)
}
