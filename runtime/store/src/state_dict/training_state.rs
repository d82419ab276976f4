//! The tensors of a checkpoint: parameters, optimizer state and moving average.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::checkpoint::{
    Checkpoint, CheckpointError, Manifest, ShardEntry, TensorBox, TensorSource,
};
use half::bf16;
use meshwright_backend::{DType, View};
use meshwright_core::layout::{AxisId, AxisSet};
use meshwright_core::optim::{Ema, OptimizerState, OuterSgd, UnitState};
use meshwright_core::tensor::{ParamRef, Rank, UnitSlice};

use super::replica_state::{kind_of_replica, replica_of, replicas_in};

/// Kind of the parameters in a checkpoint, next to the kinds of optimizer state and moving average.
const PARAMETER: &str = "params";

/// Parameters of the model, with the optimizer state and moving average of this rank's shards, to be saved.
pub struct TrainingState<'a> {
    /// Parameters of the model.
    pub params: &'a [ParamRef],
    /// The optimizer.
    pub optimizer: &'a dyn OptimizerState,
    /// The moving average, if there is one.
    pub average: Option<&'a Ema>,
}

/// Parameters of the model, with the optimizer state and moving average of this rank's shards, to be loaded.
pub struct TrainingStateMut<'a> {
    /// Parameters of the model.
    pub params: &'a [ParamRef],
    /// The optimizer.
    pub optimizer: &'a mut dyn OptimizerState,
    /// The moving average, if there is one.
    pub average: Option<&'a mut Ema>,
}

/// Returns names and global shapes of all tensors in a checkpoint of these parameters. `kinds` returns the kinds of
/// state that a parameter has.
pub fn training_tensors<'a>(
    params: &'a [ParamRef],
    kinds: impl Fn(&ParamRef) -> Vec<String> + 'a,
) -> impl Iterator<Item = (String, Vec<usize>)> + 'a {
    params.iter().flat_map(move |param| {
        let kinds = [PARAMETER.to_owned()].into_iter().chain(kinds(param));
        kinds.map(|kind| (tensor_name(&kind, None, param), param.sizes()))
    })
}

/// Returns the kinds of state in a checkpoint, without the parameters.
pub fn state_kinds_in(checkpoint: &Checkpoint) -> BTreeSet<&str> {
    let kinds = checkpoint.manifest().tensors.keys().map(|name| Manifest::kind_of(name));
    kinds.filter(|kind| *kind != PARAMETER).collect()
}

/// Returns the kinds of state that a checkpoint holds of a parameter.
pub fn saved_kinds_of<'a>(checkpoint: &'a Checkpoint, param: &ParamRef) -> Vec<&'a str> {
    let tensors = &checkpoint.manifest().tensors;
    let kinds = state_kinds_in(checkpoint).into_iter();
    kinds.filter(|kind| tensors.contains_key(&tensor_name(kind, None, param))).collect()
}

/// Calls `write` with the shards that this rank saves, without copying host memory.
pub fn with_shard_entries<T>(
    rank: &Rank,
    state: &TrainingState<'_>,
    write: impl FnOnce(&[ShardEntry<'_>]) -> T,
) -> T {
    with_saved_values(rank, state, |saved| {
        let on_host: Vec<Cow<'_, [f32]>> =
            saved.iter().map(|saved| values_on_host(saved.values)).collect();
        let shards: Vec<Vec<Shard>> = saved.iter().map(|saved| saved.shards().collect()).collect();
        let entries =
            shards.iter().zip(&on_host).flat_map(|(shards, data)| entries_of(shards, data));
        write(&entries.collect::<Vec<_>>())
    })
}

/// Values of one kind that a rank saves of a parameter.
pub(super) struct SavedValues<'a> {
    param: &'a ParamRef,
    kind: &'static str,
    /// The replica that keeps them, if replicas train apart and each has its own.
    replica: Option<usize>,
    /// The elements that the rank owns, in f32; or in bf16, of a frozen parameter or of the optimizer.
    pub values: View<'a>,
}

/// Returns values on the host in f32.
pub(super) fn values_on_host(values: View<'_>) -> Cow<'_, [f32]> {
    match values.dtype() {
        DType::Bf16 => {
            let stored: Vec<bf16> = values.to_vec();
            Cow::Owned(stored.into_iter().map(f32::from).collect())
        }
        _ => values.on_host(),
    }
}

/// A shard that a rank saves, without its elements.
pub(super) struct Shard {
    name: String,
    global_shape: Vec<usize>,
    pub tensor_box: TensorBox,
}

impl SavedValues<'_> {
    /// Returns the shards of the values, in the order of their elements.
    pub fn shards(&self) -> impl Iterator<Item = Shard> {
        let name = tensor_name(self.kind, self.replica, self.param);
        let global_shape = self.param.sizes();
        let boxes = owned_boxes(self.param).into_iter();
        boxes.map(move |tensor_box| Shard {
            name: name.clone(),
            global_shape: global_shape.clone(),
            tensor_box,
        })
    }
}

/// Returns the entries of shards, whose elements follow each other in `data`.
pub(super) fn entries_of<'a>(
    shards: &'a [Shard],
    data: &'a [f32],
) -> impl Iterator<Item = ShardEntry<'a>> {
    let mut rest = data;
    shards.iter().map(move |Shard { name, global_shape, tensor_box }| {
        let (data, after) = rest.split_at(tensor_box.len());
        rest = after;
        let (name, global_shape) = (name.clone(), global_shape.clone());
        ShardEntry { name, global_shape, tensor_box: tensor_box.clone(), data }
    })
}

/// Calls `visit` with all values that this rank saves. Of replicas, the first one saves what they share: of parameters
/// that are tied across pipeline stages, the first owner.
pub(super) fn with_saved_values<T>(
    rank: &Rank,
    state: &TrainingState<'_>,
    visit: impl FnOnce(&[SavedValues<'_>]) -> T,
) -> T {
    let within_stage = AxisSet::ALL.difference(AxisSet::of(AxisId::Pp));
    let is_saved = |param: &ParamRef, replica: Option<usize>| {
        let is_first = rank.position(within_stage.difference(saved_apart(param))) == 0;
        is_first && (replica.is_some() || rank.replica() == 0)
    };
    with_values(rank, state, is_saved, visit)
}

/// Returns the number of elements that the ranks at this position along `pp` save: each of those that save most, and
/// all of them together.
pub fn saved_elements(rank: &Rank, state: &TrainingState<'_>) -> [usize; 2] {
    let mesh = rank.comms().shape();
    with_values(
        rank,
        state,
        |_, _| true,
        |values| {
            values.iter().fold([0, 0], |[each, all], SavedValues { param, values, replica, .. }| {
                let replicas = replica.map_or(1, |_| rank.replicas());
                let copies = mesh.degree_of(saved_apart(param)) * replicas;
                [each + values.len(), all + values.len() * copies]
            })
        },
    )
}

/// Returns the axes along which ranks save different elements of a parameter, besides `pp`.
fn saved_apart(param: &ParamRef) -> AxisSet {
    param.varies().union(param.unit().shard_axes())
}

/// Calls `visit` with the values of the parameters that the first owner along `pp` saves, of those that `is_selected`.
fn with_values<T>(
    rank: &Rank,
    state: &TrainingState<'_>,
    is_selected: impl Fn(&ParamRef, Option<usize>) -> bool,
    visit: impl FnOnce(&[SavedValues<'_>]) -> T,
) -> T {
    let is_saved =
        |param: &ParamRef, replica| is_selected(param, replica) && param.is_first_owner();
    let params = state.params.iter().filter(|param| is_saved(param, None));
    let params: Vec<&ParamRef> = params.collect();
    let values: Vec<UnitSlice<'_>> = params.iter().map(|param| param.stored_values()).collect();
    let params = params.into_iter().zip(&values);
    let mut saved: Vec<SavedValues<'_>> = params
        .map(|(param, values)| {
            let (kind, replica, values) = (PARAMETER, None, values.view());
            SavedValues { param, kind, replica, values }
        })
        .collect();
    let optimizer = state.optimizer;
    let of_replica = optimizer.states().iter().chain(optimizer.replica_states());
    let of_replica = of_replica.map(|state| (state, replica_of(rank)));
    let average = state.average.map_or(&[][..], Ema::states).iter();
    let shared = optimizer.outer_states().iter().chain(average).map(|state| (state, None));
    let unit_states: Vec<(&UnitState, Option<usize>, Vec<ParamRef>)> = of_replica
        .chain(shared)
        .map(|(unit_state, replica)| (unit_state, replica, unit_state.params()))
        .collect();
    for (unit_state, replica, params) in &unit_states {
        for param in params.iter().filter(|param| is_saved(param, *replica)) {
            let states = unit_state.states_of(param).into_iter();
            let replica = *replica;
            saved.extend(states.map(|(kind, values)| SavedValues { param, kind, replica, values }));
        }
    }
    visit(&saved)
}

/// Loads this rank's shards of the parameters that it owns. A moving average that the checkpoint lacks starts from the
/// parameters, and the state of an outer optimizer from zeros. Replicas that train apart each begin with the state of
/// all, if the checkpoint holds no other. Returns true if they have loaded parameters of their own.
pub fn load_checkpoint(
    checkpoint: &Checkpoint,
    state: TrainingStateMut<'_>,
) -> Result<bool, CheckpointError> {
    let rank = state.params.first().map(ParamRef::rank);
    let replica = rank.and_then(replica_of).filter(|_| replicas_in(checkpoint) > 0);
    let kinds = state_kinds_in(checkpoint);
    let has_outer = kinds.contains(OuterSgd::KIND);
    let own_params = kind_of_replica(OuterSgd::OWN_PARAMS, replica);
    let has_own_params =
        !state.optimizer.replica_states().is_empty() && kinds.contains(&*own_params);
    let held = HeldStates { replica, has_outer, has_own_params };
    checkpoint.fetch(needed_boxes(&state, &held))?;
    for param in state.params.iter().filter(|param| param.is_owned()) {
        let mut block = vec![0.0; param.local_len()];
        let name = tensor_name(PARAMETER, None, param);
        checkpoint.read_into(&name, &param.sizes(), &local_box(param), &mut block)?;
        param.write(&block);
    }
    load_states(checkpoint, state.optimizer.states_mut(), replica)?;
    if has_outer {
        load_states(checkpoint, state.optimizer.outer_states_mut(), None)?;
    }
    if has_own_params {
        load_states(checkpoint, state.optimizer.replica_states_mut(), replica)?;
    }
    let saved = &checkpoint.manifest().state;
    let applied = saved.step - saved.skipped;
    let updates = saved.own_loop.as_ref().map_or(applied, |own| own.updates);
    state.optimizer.set_steps(updates);
    if let Some(average) = state.average {
        if state_kinds_in(checkpoint).contains(Ema::KIND) {
            load_states(checkpoint, average.states_mut(), None)?;
        } else {
            average.restart();
        }
    }
    Ok(has_own_params)
}

/// The states of an optimizer in a checkpoint.
struct HeldStates {
    /// The replica of this rank, if each has its own state.
    replica: Option<usize>,
    has_outer: bool,
    has_own_params: bool,
}

/// Returns the boxes of all tensors that [`load_checkpoint`] reads.
fn needed_boxes<'a>(
    state: &'a TrainingStateMut<'_>,
    held: &HeldStates,
) -> impl Iterator<Item = (String, TensorBox)> + 'a {
    let (optimizer, replica) = (&state.optimizer, held.replica);
    let params = state.params.iter().filter(|param| param.is_owned());
    let params = params.map(|param| (tensor_name(PARAMETER, None, param), local_box(param)));
    let average = state.average.as_deref().map_or(&[][..], Ema::states);
    let outer = if held.has_outer { optimizer.outer_states() } else { &[] };
    let shared = outer.iter().chain(average).map(|unit_state| (unit_state, None));
    let own_params = if held.has_own_params { optimizer.replica_states() } else { &[] };
    let states = optimizer.states().iter().chain(own_params);
    let states = states.map(move |unit_state| (unit_state, replica));
    let states = states.chain(shared).flat_map(|(unit_state, replica)| {
        unit_state.params().into_iter().flat_map(move |param| {
            let kinds = unit_state.states_of(&param).into_iter().map(|(kind, _)| kind);
            let boxes = kinds.flat_map(|kind| {
                let name = tensor_name(kind, replica, &param);
                owned_boxes(&param).into_iter().map(move |part| (name.clone(), part))
            });
            boxes.collect::<Vec<_>>()
        })
    });
    params.chain(states)
}

fn load_states(
    checkpoint: &Checkpoint,
    states: &mut [UnitState],
    replica: Option<usize>,
) -> Result<(), CheckpointError> {
    for state in states {
        for param in state.params() {
            let shape = param.sizes();
            for (kind, mut buffer) in state.of_mut(&param) {
                let mut values = vec![0.0; buffer.len()];
                let mut rest = values.as_mut_slice();
                for tensor_box in owned_boxes(&param) {
                    let (part, after) = rest.split_at_mut(tensor_box.len());
                    let name = tensor_name(kind, replica, &param);
                    checkpoint.read_into(&name, &shape, &tensor_box, part)?;
                    rest = after;
                }
                match buffer.dtype() {
                    // Numbers of a bf16 state are saved exactly; those of an f32 state are rounded to the nearest.
                    DType::Bf16 => {
                        buffer
                            .write(&values.iter().copied().map(bf16::from_f32).collect::<Vec<_>>());
                    }
                    _ => buffer.write(&values),
                }
            }
        }
    }
    Ok(())
}

fn tensor_name(kind: &str, replica: Option<usize>, param: &ParamRef) -> String {
    format!("{}.{}", kind_of_replica(kind, replica), param.path())
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
