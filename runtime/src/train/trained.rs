//! What a checkpoint holds of a run: parameters, and what optimiser and average keep of them.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::checkpoint::{Checkpoint, CheckpointError, Region, ShardEntry};
use crate::layout::{AxisId, AxisSet};
use crate::optim::{Ema, Optimizer, UnitState};
use crate::tensor::{ParamRef, Rank, Stretch, ZeroLevel};

/// The kind of the parameters themselves in a checkpoint, beside those of optimiser and average.
const PARAMETER: &str = "params";

/// What is trained on this rank: parameters, and what is kept of them from step to step.
pub struct Trained<'a> {
    pub params: &'a [ParamRef],
    pub optimizer: &'a Optimizer,
    pub average: Option<&'a Ema>,
}

/// What is trained on this rank, to be loaded.
pub struct TrainedMut<'a> {
    pub params: &'a [ParamRef],
    pub optimizer: &'a mut Optimizer,
    pub average: Option<&'a mut Ema>,
}

/// Names and global shapes of all tensors of a checkpoint of these parameters; `kinds` says of which kinds each has
/// state.
pub fn tensors<'a>(
    params: &'a [ParamRef],
    kinds: impl Fn(&ParamRef) -> Vec<&'static str> + 'a,
) -> impl Iterator<Item = (String, Vec<usize>)> + 'a {
    params.iter().flat_map(move |param| {
        let kinds = [PARAMETER].into_iter().chain(kinds(param));
        kinds.map(|kind| (tensor_name(kind, param), param.sizes()))
    })
}

/// The kinds of state that a checkpoint holds, without the parameters themselves.
pub fn kinds_in(checkpoint: &Checkpoint) -> BTreeSet<&str> {
    let names = checkpoint.manifest().tensors.keys();
    let kinds = names.map(|name| name.split_once('.').map_or(name.as_str(), |(kind, _)| kind));
    kinds.filter(|kind| *kind != PARAMETER).collect()
}

/// Lets `write` see what this rank saves, where it lies: of what several ranks hold, the first one's.
pub fn with_entries<T>(
    rank: &Rank,
    trained: &Trained<'_>,
    write: impl FnOnce(&[ShardEntry<'_>]) -> T,
) -> T {
    let sharded = match rank.zero_level() {
        ZeroLevel::Replicated => AxisSet::NONE,
        _ => AxisSet::of(AxisId::Fsdp),
    };
    let is_saved =
        |param: &ParamRef| rank.position(AxisSet::ALL.minus(param.varies()).minus(sharded)) == 0;
    let params: Vec<&ParamRef> = trained.params.iter().filter(|param| is_saved(param)).collect();
    let values: Vec<Stretch<'_>> = params.iter().map(|param| param.owned_values()).collect();
    let mut parts: Vec<(&ParamRef, &str, Cow<'_, [f32]>)> = Vec::new();
    for (param, values) in params.iter().zip(&values) {
        parts.push((param, PARAMETER, values.view().on_host()));
    }
    let average = trained.average.map_or(&[][..], Ema::states);
    let states: Vec<&UnitState> = trained.optimizer.states().iter().chain(average).collect();
    let of_states: Vec<(&UnitState, Vec<ParamRef>)> =
        states.into_iter().map(|state| (state, state.params())).collect();
    for (state, params) in &of_states {
        for param in params.iter().filter(|param| is_saved(param)) {
            let kept = state.of(param).into_iter();
            parts.extend(kept.map(|(kind, data)| (param, kind, data.on_host())));
        }
    }
    let entries = parts.iter().flat_map(|(param, kind, data)| entries_of(param, kind, data));
    write(&entries.collect::<Vec<_>>())
}

/// The elements of `param` that this rank owns, box by box.
fn entries_of<'a>(
    param: &ParamRef,
    kind: &str,
    data: &'a [f32],
) -> impl Iterator<Item = ShardEntry<'a>> {
    let name = tensor_name(kind, param);
    let global_shape = param.sizes();
    let mut rest = data;
    owned_boxes(param).into_iter().map(move |region| {
        let (data, after) = rest.split_at(region.len());
        rest = after;
        ShardEntry { name: name.clone(), global_shape: global_shape.clone(), region, data }
    })
}

/// Reads this rank's part of everything. An average that the checkpoint does not hold begins with the parameters.
pub fn load_from(
    checkpoint: &Checkpoint,
    trained: TrainedMut<'_>,
) -> std::result::Result<(), CheckpointError> {
    for param in trained.params {
        let mut block = vec![0.0; param.local_len()];
        let name = tensor_name(PARAMETER, param);
        checkpoint.read_into(&name, &param.sizes(), &region(param), &mut block)?;
        param.write(&block);
    }
    trained
        .optimizer
        .states_mut()
        .iter_mut()
        .try_for_each(|state| load_state(checkpoint, state))?;
    trained.optimizer.set_steps(checkpoint.manifest().state.step);
    if let Some(average) = trained.average {
        match kinds_in(checkpoint).contains(Ema::KIND) {
            true => {
                average
                    .states_mut()
                    .iter_mut()
                    .try_for_each(|state| load_state(checkpoint, state))?;
            }
            false => average.restart(),
        }
    }
    Ok(())
}

fn load_state(
    checkpoint: &Checkpoint,
    state: &mut UnitState,
) -> std::result::Result<(), CheckpointError> {
    for param in state.params() {
        let shape = param.sizes();
        for (kind, mut kept) in state.of_mut(&param) {
            let mut values = vec![0.0; kept.len()];
            let mut out = values.as_mut_slice();
            for region in owned_boxes(&param) {
                let (part, rest) = out.split_at_mut(region.len());
                checkpoint.read_into(&tensor_name(kind, &param), &shape, &region, part)?;
                out = rest;
            }
            kept.write(&values);
        }
    }
    Ok(())
}

fn tensor_name(kind: &str, param: &ParamRef) -> String {
    format!("{kind}.{}", param.path())
}

/// The boxes of the global parameter that this rank owns, in the order of its elements.
fn owned_boxes(param: &ParamRef) -> Vec<Region> {
    let whole = region(param);
    let boxes = Region::of_run(&whole.shape, param.owned()).into_iter();
    boxes.map(|part| part.moved_by(&whole.offset)).collect()
}

fn region(param: &ParamRef) -> Region {
    let offset: Vec<usize> = param.local_extents().iter().map(|extent| extent.offset).collect();
    let shape: Vec<usize> = param.local_extents().iter().map(|extent| extent.local).collect();
    Region::new(&offset, &shape)
}
