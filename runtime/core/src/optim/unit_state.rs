//! Optimizer state of a unit, sharded as the unit is.

use std::ops::Range;
use std::rc::Rc;

use crate::tensor::{ParamRef, Rank, Unit};
use meshwright_backend::{Buffer, Category, DType, View, ViewMut};

use super::{Group, ParamGroups};

/// Optimizer state of this rank's shard of a unit: for every kind of state, one number per element of the parameters
/// that have it.
pub struct UnitState {
    unit: Rc<Unit>,
    ranges: Rc<[GroupRange]>,
    slots: Vec<StateSlot>,
    /// Range of each parameter in the unit's buffers, and its kinds of state.
    kinds: Vec<(Range<usize>, usize)>,
}

/// Consecutive parameters of a unit that are updated alike, clipped to this rank's shard.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct GroupRange {
    pub group: Group,
    /// Relative to the unit's buffers.
    pub range: Range<usize>,
    /// Relative to the shard.
    pub in_shard: Range<usize>,
}

/// Buffer of one kind of state.
struct StateSlot {
    kind: &'static str,
    /// Ranges of the shard that have it, one after the other in the buffer.
    spans: Vec<Range<usize>>,
    buffer: Buffer,
}

impl UnitState {
    /// Creates state of zeros, of the `kinds` of each parameter's group.
    pub(super) fn new(
        rank: &Rank,
        unit: &Rc<Unit>,
        groups: &ParamGroups,
        dtype: DType,
        kinds: impl Fn(Group) -> &'static [&'static str],
    ) -> UnitState {
        let params = unit.params();
        let groups: Vec<Group> = params.iter().map(|param| groups.of(param)).collect();
        let mut slots: Vec<(&'static str, Vec<Range<usize>>)> = Vec::new();
        let mut kinds_of_params = Vec::with_capacity(params.len());
        for (index, group) in groups.iter().enumerate() {
            // The gap after a parameter belongs to it: gaps are zeros in every buffer, and stay so.
            let end = params.get(index + 1).map_or(unit.len(), |next| next.range().start);
            let range = params[index].range().start..end;
            kinds_of_params.push((range.clone(), kinds(*group).len()));
            let span = unit.in_shard(range);
            for kind in kinds(*group) {
                let slot = match slots.iter().position(|(known, _)| known == kind) {
                    Some(known) => &mut slots[known].1,
                    None => &mut slots.push_mut((kind, Vec::new())).1,
                };
                if let Some((_, span)) = &span {
                    append_span(slot, span.clone());
                }
            }
        }
        let slots = slots
            .into_iter()
            .map(|(kind, spans)| {
                let len = spans.iter().map(Range::len).sum();
                let buffer = rank.allocator().zeros(dtype, len, Category::Optimizer);
                StateSlot { kind, spans, buffer }
            })
            .collect();
        let ranges = group_ranges(unit, &params, &groups);
        UnitState { unit: Rc::clone(unit), ranges, slots, kinds: kinds_of_params }
    }

    /// Returns the elements of the state of a world rank. Its parts of the parameters are taken to be as large as here.
    pub(super) fn len_on(&self, world_rank: usize) -> usize {
        let shard = self.unit.shard_of(world_rank);
        let common = |range: &Range<usize>| {
            range.end.min(shard.end).saturating_sub(range.start.max(shard.start))
        };
        self.kinds.iter().map(|(range, kinds)| common(range) * kinds).sum()
    }

    /// Returns the parameters of the unit.
    pub fn params(&self) -> Vec<ParamRef> {
        self.unit.params()
    }

    /// Returns the state, by kind, in f32 or bf16, of the elements of a parameter that this rank
    /// [owns](ParamRef::owned).
    pub fn states_of(&self, param: &ParamRef) -> Vec<(&'static str, View<'_>)> {
        let owned = param.owned_in_shard();
        let slots = self.slots.iter();
        slots
            .filter_map(|slot| {
                Some((slot.kind, slot.buffer.view().slice(slot.buffer_range(&owned)?)))
            })
            .collect()
    }

    /// Returns mutable access to the state that [`states_of`](Self::states_of) returns.
    pub fn of_mut(&mut self, param: &ParamRef) -> Vec<(&'static str, ViewMut<'_>)> {
        let owned = param.owned_in_shard();
        let slots = self.slots.iter_mut();
        slots
            .filter_map(|slot| {
                let range = slot.buffer_range(&owned)?;
                Some((slot.kind, slot.buffer.view_mut().into_slice(range)))
            })
            .collect()
    }

    pub(super) fn unit(&self) -> &Rc<Unit> {
        &self.unit
    }

    /// Returns the state of a kind that all parameters of the unit have: one number for each element of the shard.
    pub(super) fn whole(&self, kind: &str) -> View<'_> {
        self.slots.iter().find(|slot| slot.kind == kind).expect("a kind of the unit").buffer.view()
    }

    /// Returns mutable access to the state that [`whole`](Self::whole) returns.
    pub(super) fn whole_mut(&mut self, kind: &str) -> ViewMut<'_> {
        let slot = self.slots.iter_mut().find(|slot| slot.kind == kind);
        slot.expect("a kind of the unit").buffer.view_mut()
    }

    /// Returns the ranges that are updated alike, in the order of the buffers.
    pub(super) fn group_ranges(&self) -> Rc<[GroupRange]> {
        Rc::clone(&self.ranges)
    }

    /// Returns the state of a range of the shard, in the order of `kinds`.
    ///
    /// # Panics
    /// If `kinds` are not exactly the kinds of the range.
    pub(super) fn state_views<const N: usize>(
        &mut self,
        kinds: [&str; N],
        in_shard: &Range<usize>,
    ) -> [ViewMut<'_>; N] {
        let kept = self.slots.iter().filter(|slot| slot.buffer_range(in_shard).is_some());
        let kept: Vec<&str> = kept.map(|slot| slot.kind).collect();
        check_kinds_are_kept(&kinds, &kept);
        let mut views = [const { None }; N];
        for slot in &mut self.slots {
            if let Some(index) = kinds.iter().position(|kind| *kind == slot.kind) {
                let range = slot.buffer_range(in_shard);
                views[index] = range.map(|range| slot.buffer.view_mut().into_slice(range));
            }
        }
        views.map(|view| view.expect("an update names each of its states once"))
    }
}

impl StateSlot {
    /// Returns the range of the buffer for a range of the shard; `None` if that has no state of this kind.
    fn buffer_range(&self, in_shard: &Range<usize>) -> Option<Range<usize>> {
        let mut before = 0;
        for span in &self.spans {
            if span.start <= in_shard.start && in_shard.end <= span.end {
                let start = before + in_shard.start - span.start;
                return Some(start..start + in_shard.len());
            }
            before += span.len();
        }
        None
    }
}

/// Checks that an update of `kinds` is one of all the states that are `kept`.
///
/// # Panics
/// If it is not.
pub(super) fn check_kinds_are_kept(kinds: &[&str], kept: &[&str]) {
    assert!(
        kinds.len() == kept.len() && kinds.iter().all(|kind| kept.contains(kind)),
        "an update of the states [{}], but the rule's `state_kinds` of these parameters are [{}]",
        kinds.join(", "),
        kept.join(", ")
    );
}

fn append_span(spans: &mut Vec<Range<usize>>, span: Range<usize>) {
    match spans.last_mut() {
        Some(last) if last.end == span.start => last.end = span.end,
        _ => spans.push(span),
    }
}

fn group_ranges(unit: &Unit, params: &[ParamRef], groups: &[Group]) -> Rc<[GroupRange]> {
    let mut ranges = Vec::new();
    let mut start = 0;
    for alike in groups.chunk_by(PartialEq::eq) {
        let last = start + alike.len() - 1;
        let range = params[start].range().start..params[last].range().end;
        if let Some((range, in_shard)) = unit.in_shard(range) {
            ranges.push(GroupRange { group: alike[0], range, in_shard });
        }
        start = last + 1;
    }
    ranges.into()
}

/// Checks that units of a part of a model are selected by its path: their positions in a list differ between pipeline
/// stages.
///
/// # Errors
/// A message that names the parameters.
pub(super) fn check_units_selected(units: &[Rc<Unit>]) -> Result<(), String> {
    let Some(unit) = units.iter().find(|unit| !unit.is_selected_in(units)) else { return Ok(()) };
    Err(format!(
        "the unit {} is given without others of its model, and was not selected by its path: a list of units has other \
         positions in each pipeline stage; give `&built.units`, or the units of a field, `&built.units_of(\"{}\")`",
        describe_unit(unit),
        unit.name()
    ))
}

/// Names the parameters of a unit.
fn describe_unit(unit: &Unit) -> String {
    let paths: Vec<String> =
        unit.params().iter().map(|param| format!("`{}`", param.path())).collect();
    format!("of {}", paths.join(", "))
}

/// Checks that no unit is given twice: it would be updated twice.
///
/// # Errors
/// A message that names the parameters.
pub(super) fn check_units_differ(units: &[Rc<Unit>]) -> Result<(), String> {
    let is_second = |&(index, unit): &(usize, &Rc<Unit>)| {
        units[..index].iter().any(|known| Rc::ptr_eq(known, unit))
    };
    let Some((_, unit)) = units.iter().enumerate().find(is_second) else { return Ok(()) };
    Err(format!("the unit {} is given twice: give each unit once", describe_unit(unit)))
}
