//! What is kept of the parameters of a unit from step to step, sharded as the unit is.

use std::ops::Range;
use std::rc::Rc;

use crate::backend::{Buffer, Category, DType, View, ViewMut};
use crate::tensor::{ParamRef, Rank, Unit};

use super::{Group, ParamGroups};

/// What is kept of one unit's shard: for every kind of state a number for each element of the parameters that have it.
pub struct UnitState {
    unit: Rc<Unit>,
    runs: Rc<[Run]>,
    slots: Vec<Slot>,
}

/// Parameters of a unit that follow each other and are updated alike, as far as they lie in this rank's shard.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Run {
    pub group: Group,
    /// Counted from the beginning of the unit's buffers.
    pub range: Range<usize>,
    /// The same, counted from the beginning of the shard.
    pub in_shard: Range<usize>,
}

/// One kind of state.
struct Slot {
    kind: &'static str,
    /// The runs of the shard that have it; what is kept of them lies in the buffer one after the other.
    spans: Vec<Range<usize>>,
    buffer: Buffer,
}

impl UnitState {
    /// State of zeros; `kinds` says what the parameters of a group have.
    pub(super) fn new(
        rank: &Rank,
        unit: &Rc<Unit>,
        groups: &ParamGroups,
        kinds: impl Fn(Group) -> &'static [&'static str],
    ) -> UnitState {
        let params = unit.params();
        let groups: Vec<Group> = params.iter().map(|param| groups.of(param)).collect();
        let mut slots: Vec<(&'static str, Vec<Range<usize>>)> = Vec::new();
        for (index, group) in groups.iter().enumerate() {
            // The gap after a parameter belongs to it: gaps are zeros in every buffer, and stay so.
            let end = params.get(index + 1).map_or(unit.len(), |next| next.range().start);
            let span = unit.in_shard(params[index].range().start..end);
            for kind in kinds(*group) {
                let slot = match slots.iter().position(|(known, _)| known == kind) {
                    Some(known) => &mut slots[known].1,
                    None => &mut slots.push_mut((kind, Vec::new())).1,
                };
                if let Some((_, span)) = &span {
                    append(slot, span.clone());
                }
            }
        }
        let slots = slots
            .into_iter()
            .map(|(kind, spans)| {
                let len = spans.iter().map(Range::len).sum();
                let buffer = rank.meter().zeros(DType::F32, len, Category::Optimizer);
                Slot { kind, spans, buffer }
            })
            .collect();
        UnitState { unit: Rc::clone(unit), runs: runs(unit, &params, &groups), slots }
    }

    /// The parameters that this is the state of.
    pub fn params(&self) -> Vec<ParamRef> {
        self.unit.params()
    }

    /// What is kept of the elements of one of the parameters that this rank [owns](ParamRef::owned), by kind.
    pub fn of(&self, param: &ParamRef) -> Vec<(&'static str, View<'_>)> {
        let owned = param.owned_in_shard();
        let slots = self.slots.iter();
        slots
            .filter_map(|slot| Some((slot.kind, slot.buffer.view().slice(slot.place(&owned)?))))
            .collect()
    }

    /// [`of`](Self::of), to be changed.
    pub fn of_mut(&mut self, param: &ParamRef) -> Vec<(&'static str, ViewMut<'_>)> {
        let owned = param.owned_in_shard();
        let slots = self.slots.iter_mut();
        slots
            .filter_map(|slot| {
                let place = slot.place(&owned)?;
                Some((slot.kind, slot.buffer.view_mut().into_slice(place)))
            })
            .collect()
    }

    pub(super) fn unit(&self) -> &Rc<Unit> {
        &self.unit
    }

    /// What is updated alike, in the order of the buffers.
    pub(super) fn runs(&self) -> Rc<[Run]> {
        Rc::clone(&self.runs)
    }

    /// What is kept of a run of the shard, all of which has these kinds.
    pub(super) fn views<const N: usize>(
        &mut self,
        kinds: [&str; N],
        in_shard: &Range<usize>,
    ) -> [ViewMut<'_>; N] {
        let mut views = [const { None }; N];
        for slot in &mut self.slots {
            if let Some(index) = kinds.iter().position(|kind| *kind == slot.kind) {
                let place = slot.place(in_shard);
                views[index] = place.map(|place| slot.buffer.view_mut().into_slice(place));
            }
        }
        views.map(|view| view.expect("a run has the kinds of its group"))
    }
}

impl Slot {
    /// Where in the buffer what is kept of a run of the shard lies, if it is kept.
    fn place(&self, in_shard: &Range<usize>) -> Option<Range<usize>> {
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

fn append(spans: &mut Vec<Range<usize>>, span: Range<usize>) {
    match spans.last_mut() {
        Some(last) if last.end == span.start => last.end = span.end,
        _ => spans.push(span),
    }
}

fn runs(unit: &Unit, params: &[ParamRef], groups: &[Group]) -> Rc<[Run]> {
    let mut runs = Vec::new();
    let mut start = 0;
    for alike in groups.chunk_by(PartialEq::eq) {
        let last = start + alike.len() - 1;
        let range = params[start].range().start..params[last].range().end;
        if let Some((range, in_shard)) = unit.in_shard(range) {
            runs.push(Run { group: alike[0], range, in_shard });
        }
        start = last + 1;
    }
    runs.into()
}
