//! Regions that keep only their inputs, and are computed once more in backward (Chen et al., "Training deep nets with
//! sublinear memory cost", 2016).

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use crate::backend::Buffer;
use crate::layout::Internal;

use crate::context::{Extent, Rank};
use crate::fsdp::{Phase, Unit};

use super::super::offloading::Offloaded;
use super::super::tape::{Gradients, NodeId, run_backward_of_segment};
use super::super::value::{Saved, Value};
use super::open_segments::{Kept, Open};
use super::segment_data::RegionData;

/// What a region keeps besides its inputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// Path of what is computed: `blocks.3`, or `blocks.2-3` for layers that form one region.
    pub path: String,
    /// Which results are kept instead of being computed once more.
    pub keep: Keep,
    /// Whether the inputs wait for backward in host memory.
    pub offload: bool,
}

/// Fields whose results a region keeps: those of matrix products, attention and norms that belong to the field or to
/// one inside it. What is element-wise is always computed once more.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Keep {
    /// None.
    #[default]
    Nothing,
    /// Those at or under these paths.
    Under(Vec<String>),
    /// All but those at or under these paths.
    AllBut(Vec<String>),
}

impl Keep {
    pub(crate) fn keeps(&self, path: &str) -> bool {
        let is_under = |field: &String| {
            path.strip_prefix(field.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        match self {
            Keep::Nothing => false,
            Keep::Under(fields) => fields.iter().any(is_under),
            Keep::AllBut(fields) => !fields.iter().any(is_under),
        }
    }
}

/// Applies `f` to `input`. While recording, only `input` is saved, and what `region` keeps; backward applies `f` once
/// more, with the same randomness.
pub(crate) fn recompute<X: RegionData, Y: RegionData>(
    rank: &Rank,
    region: &Rc<Region>,
    input: &X,
    f: impl Fn(&X) -> Y + 'static,
) -> Y {
    if !rank.is_recording() {
        return f(input);
    }
    let mut values = Vec::new();
    let frame = input.take_apart(&mut values, Internal::new());
    let inputs: Vec<Input> = values.iter().map(|value| Input::of(value, region.offload)).collect();

    let start = rank.gathering().begin_region();
    let (kept, readers) = (VecDeque::new(), Vec::new());
    rank.regions().open(Open::First { region: Rc::clone(region), kept, readers });
    let (outputs, out_frame) = rank.unrecorded(|| {
        let mut plain = values.iter().map(|value| value.made_by(None));
        let output = f(&X::put_together(&frame, &mut || next(&mut plain), Internal::new()));
        computed(&output)
    });
    let (kept, readers) = rank.regions().close();
    rank.gathering().passed_region(start);
    let readers = readers.into_iter().map(SegmentUse::new).collect();
    let step = rank.peek_step();
    let again = Again { region: Rc::clone(region), kept, readers, inputs, step };
    let arrived: Rc<[Cell<Option<Arc<Buffer>>>]> =
        outputs.iter().map(|_| Cell::default()).collect();
    let node = {
        let arrived = Rc::clone(&arrived);
        rank.tape().record(move |gradients, _| {
            again.run(gradients, &arrived, |values| {
                let mut values = values.into_iter();
                computed(&f(&X::put_together(&frame, &mut || next(&mut values), Internal::new()))).0
            });
        })
    };
    let mut outputs = outputs.iter().enumerate().map(|(index, value)| {
        let (arrived, node) = (Rc::clone(&arrived), node.clone());
        let own = rank.tape().record(move |gradients, gradient| {
            arrived[index].set(Some(gradient));
            // The region is undone where any of its results has a gradient.
            gradients.add(&node, Arc::new(gradients.rank.zeros(0)));
        });
        value.made_by(Some(own))
    });
    Y::put_together(&out_frame, &mut || next(&mut outputs), Internal::new())
}

fn next(values: &mut impl Iterator<Item = Value>) -> Value {
    values.next().unwrap_or_else(|| unreachable!("a frame asks for as many values as it gave"))
}

/// The values of what leaves a region, computed while it is open.
fn computed<Y: RegionData>(output: &Y) -> (Vec<Value>, Y::Frame) {
    let mut values = Vec::new();
    let frame = output.take_apart(&mut values, Internal::new());
    values.iter().for_each(|value| drop(value.compute()));
    (values, frame)
}

/// A use of a unit by a segment, counted until the backward of the segment has run.
struct SegmentUse {
    unit: Weak<Unit>,
    /// Of the values that the first run has read.
    version: u64,
    is_done: Cell<bool>,
}

impl SegmentUse {
    fn new(unit: Weak<Unit>) -> SegmentUse {
        let version = unit.upgrade().map_or(0, |unit| {
            unit.begin_use();
            unit.version()
        });
        SegmentUse { unit, version, is_done: Cell::new(false) }
    }

    /// The backward of the segment has run.
    fn end(&self, rank: &Rank) {
        let Some(unit) = self.unit.upgrade() else { return };
        self.is_done.set(true);
        // No gradient of the unit is wanted where the backward has not taken hold of it.
        match rank.backward().is_some_and(|backward| backward.holds(&unit)) {
            true => unit.end_use(),
            false => unit.drop_use(),
        }
    }
}

impl Drop for SegmentUse {
    fn drop(&mut self) {
        if !self.is_done.get()
            && let Some(unit) = self.unit.upgrade()
        {
            unit.drop_use();
        }
    }
}

/// What a region keeps of one of its inputs.
struct Input {
    /// With the micro-batch that the input is computed from.
    rank: Rank,
    extents: Vec<Extent>,
    source: Option<NodeId>,
    saved: Saved,
}

impl Input {
    fn of(value: &Value, offload: bool) -> Input {
        let source = value.compute().node;
        let saved = match value.save() {
            Saved::Data(data) if offload => Saved::Offloaded(Offloaded::new(value.rank(), data)),
            saved => saved,
        };
        Input { rank: value.rank().clone(), extents: value.extents().to_vec(), source, saved }
    }
}

/// What it takes to compute a region once more.
struct Again {
    region: Rc<Region>,
    kept: VecDeque<Kept>,
    readers: Vec<SegmentUse>,
    inputs: Vec<Input>,
    /// The training step of the first run, which keys dropout.
    step: u64,
}

impl Again {
    /// Computes the region by `f`, this time recorded, and undoes it from the gradients of its results that have
    /// arrived.
    fn run(
        self,
        gradients: &mut Gradients<'_>,
        arrived: &[Cell<Option<Arc<Buffer>>>],
        f: impl FnOnce(Vec<Value>) -> Vec<Value>,
    ) {
        let rank = gradients.rank;
        for SegmentUse { unit, version, .. } in &self.readers {
            if let Some(unit) = unit.upgrade() {
                unit.check_version(*version);
            }
        }
        let regions = rank.regions();
        let before = rank.gathering().begin(Phase::Replay);
        regions.begin_again(self.region, self.kept);
        let flops = rank.backend().flops();

        let mut sources = Vec::new();
        let mut values = Vec::new();
        for Input { rank: own, extents, source, saved } in self.inputs {
            let data = saved.take(rank);
            let leaf = source.map(|source| {
                let cell = Rc::new(Cell::new(None));
                sources.push((source, Rc::clone(&cell)));
                rank.tape().record(move |_, gradient| cell.set(Some(gradient)))
            });
            values.push(Value::alias(&own, extents, data, leaf));
        }
        let outputs = rank.in_step(self.step, || f(values));

        regions.end_again(rank.backend().flops() - flops);
        if before == Phase::Backward {
            rank.gathering().look_before(self.readers.first().map(|reader| &reader.unit));
        }
        rank.gathering().begin(Phase::Undo);
        let roots = outputs.into_iter().zip(arrived);
        let roots: Vec<(NodeId, Arc<Buffer>)> = roots
            .filter_map(|(value, arrived)| Some((value.settle().node?, arrived.take()?)))
            .collect();
        run_backward_of_segment(rank, roots);

        for (source, cell) in sources {
            if let Some(gradient) = cell.take() {
                gradients.add(&source, gradient);
            }
        }
        rank.gathering().begin(before);
        if before == Phase::Backward {
            rank.gathering().end_region();
        }
        self.readers.iter().for_each(|reader| reader.end(rank));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_fields_are_told_by_whole_names() {
        let paths = ["blocks.3.attn", "blocks.3.attn.core", "blocks.3.attn_norm.weight"];
        let kept = |keep: &Keep| paths.map(|path| keep.keeps(path));
        let roots = || vec!["blocks.3.attn".to_owned()];
        assert_eq!(kept(&Keep::Nothing), [false, false, false]);
        assert_eq!(kept(&Keep::Under(roots())), [true, true, false]);
        assert_eq!(kept(&Keep::AllBut(roots())), [false, false, true]);
    }
}
