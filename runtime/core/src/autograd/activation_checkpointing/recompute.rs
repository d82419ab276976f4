//! Forward of a checkpointed segment, and its recomputation in backward.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use crate::context::scope::{self, Pass};
use crate::context::{Rank, RunningStage};
use crate::fsdp::{StepPhase, Unit, UnitUse};
use crate::promise::SegmentProgram;
use meshwright_backend::Buffer;
use meshwright_mesh::Extent;
use xxhash_rust::xxh3::xxh3_64;

use super::super::offloading::Offloaded;
use super::super::saved::Saved;
use super::super::segment_data::{Part, SegmentData, computed_parts_of, data_of_parts, parts_of};
use super::super::tape::{Dependencies, NodeId, TapeGradients, backpropagate_segment};
use super::super::value::Value;
use super::open_segments::{SavedResults, SegmentForward};
use super::segment::CheckpointedSegment;

/// Applies `f` to `input`. While recording, only `input` and the results that `segment` selects are saved; backward
/// recomputes `f` with the same randomness.
pub(crate) fn recompute<X: SegmentData, Y: SegmentData>(
    rank: &Rank,
    segment: &Rc<CheckpointedSegment>,
    input: &X,
    f: impl Fn(&X) -> Y + 'static,
) -> Y {
    if !rank.records_operations() {
        return f(input);
    }
    let parts = parts_of(input);
    let inputs: Vec<SavedPart> =
        parts.iter().map(|part| SavedPart::save(part, segment.offload)).collect();

    let start = rank.prefetcher().begin_segment_forward();
    let auxiliary_losses = rank.tape().auxiliary_losses();
    rank.segments().begin_forward(rank, segment);
    let outputs = rank.unrecorded(|| {
        let plain = parts.iter().map(|part| part.map_activation(|value| value.made_by(None)));
        computed_parts_of(&f(&data_of_parts(plain)))
    });
    let SegmentForward { saved, units, mut program } = rank.segments().end_forward(rank);
    add_results(&mut program, rank, &outputs);
    rank.prefetcher().end_segment_forward(start);
    let is_trained = |unit: &Weak<Unit>| unit.upgrade().is_some_and(|unit| !unit.is_frozen());
    if !inputs.iter().any(SavedPart::requires_grad) && !units.iter().any(is_trained) {
        // No gradient reaches the segment, or anything before it.
        let constants = outputs.iter().map(|part| part.map_activation(|value| value.made_by(None)));
        return data_of_parts(constants);
    }
    let uses = units.into_iter().map(SegmentUse::new).collect();
    let step = rank.peek_step();
    let segment = Rc::clone(segment);
    let stage = RunningStage::current();
    let recompute = Recomputation { segment, saved, program, uses, inputs, step, stage };
    let arrived: Rc<[Cell<Option<Arc<Buffer>>>]> =
        outputs.iter().map(|_| Cell::default()).collect();
    let node = {
        let arrived = Rc::clone(&arrived);
        rank.tape().record(recompute.dependencies(), move |gradients, _| {
            recompute.run_segment(gradients, &arrived, |parts| {
                computed_parts_of(&f(&data_of_parts(parts)))
            });
        })
    };
    if rank.tape().auxiliary_losses() > auxiliary_losses {
        rank.tape().mark_auxiliary_loss();
    }
    data_of_parts(outputs.iter().enumerate().map(|(index, part)| {
        part.map_activation(|value| {
            let (arrived, node) = (Rc::clone(&arrived), node.clone());
            let own = rank.tape().record(Dependencies::on([&node]), move |gradients, gradient| {
                arrived[index].set(Some(gradient));
                // The segment is recomputed if any of its results has a gradient.
                gradients.add_gradient(&node, Arc::new(gradients.rank.alloc_zeros(0)));
            });
            value.made_by(Some(own))
        })
    }))
}

/// Adds the results of a segment to its program, if checks are made: not on a device, which would be waited for, and
/// may choose other kernels for what is recorded.
fn add_results(program: &mut SegmentProgram, rank: &Rank, outputs: &[Part]) {
    if !rank.makes_checks() || rank.backend().is_dry_run() || rank.allocator().device().is_some() {
        return;
    }
    for value in outputs.iter().filter_map(Part::activation) {
        let data = value.compute_with_node().data;
        program.add_result(xxh3_64(data.view().bytes()));
    }
}

/// A use of a unit by a segment, counted until the backward of the segment has run.
struct SegmentUse {
    unit: Weak<Unit>,
    /// Version of the values that forward has read.
    version: u64,
    /// `None` if the unit was dropped.
    unit_use: Option<UnitUse>,
}

impl SegmentUse {
    fn new(unit: Weak<Unit>) -> SegmentUse {
        let (version, unit_use) = match unit.upgrade() {
            Some(unit) => (unit.version(), Some(unit.begin_use())),
            None => (0, None),
        };
        SegmentUse { unit, version, unit_use }
    }

    /// Counts the use as done.
    fn finish_use(&self, rank: &Rank) {
        let (Some(unit), Some(unit_use)) = (self.unit.upgrade(), &self.unit_use) else { return };
        // No gradient of the unit is required if the backward has not acquired it.
        match rank.running_backward() {
            Some(backward) if backward.owns_gradient_of(&unit) => {
                unit_use.finish_use(&unit, &backward)
            }
            _ => unit_use.discard(),
        }
    }
}

/// A saved part of the input of a segment. Token ids are small, and saved as they are.
enum SavedPart {
    Activation(SegmentInput),
    AsIs(Part),
}

impl SavedPart {
    fn save(part: &Part, offload: bool) -> SavedPart {
        match part {
            Part::Activation(value) => SavedPart::Activation(SegmentInput::save(value, offload)),
            Part::TokenIds(_) => SavedPart::AsIs(part.clone()),
        }
    }

    fn requires_grad(&self) -> bool {
        matches!(self, SavedPart::Activation(input) if input.source.is_some())
    }
}

/// A saved activation of the input of a segment.
struct SegmentInput {
    /// Refers to the micro-batch that the input is computed from.
    rank: Rank,
    extents: Vec<Extent>,
    source: Option<NodeId>,
    saved: Saved,
}

impl SegmentInput {
    fn save(value: &Value, offload: bool) -> SegmentInput {
        let source = value.compute().node;
        let saved = match value.save() {
            Saved::Data(data) if offload => Saved::Offloaded(Offloaded::new(value.rank(), data)),
            saved => saved,
        };
        SegmentInput {
            rank: value.rank().clone(),
            extents: value.extents().to_vec(),
            source,
            saved,
        }
    }
}

/// State for the recomputation of a segment.
struct Recomputation {
    segment: Rc<CheckpointedSegment>,
    saved: VecDeque<SavedResults>,
    program: SegmentProgram,
    uses: Vec<SegmentUse>,
    inputs: Vec<SavedPart>,
    /// Training step of the forward pass, which keys dropout.
    step: u64,
    /// The pipeline stage of the forward pass.
    stage: Option<RunningStage>,
}

impl Recomputation {
    /// Returns what the backward of the segment depends on.
    fn dependencies(&self) -> Dependencies {
        let sources = self.inputs.iter().filter_map(|part| match part {
            SavedPart::Activation(input) => input.source.as_ref(),
            SavedPart::AsIs(_) => None,
        });
        let uses = self.uses.iter().filter_map(|segment_use| segment_use.unit_use.as_ref());
        Dependencies::on(sources).with_uses(uses)
    }

    /// Recomputes the segment by `f`, recorded on the tape, and runs that tape backward from the gradients of the
    /// results that have arrived.
    fn run_segment(
        self,
        gradients: &mut TapeGradients<'_>,
        arrived: &[Cell<Option<Arc<Buffer>>>],
        f: impl FnOnce(Vec<Part>) -> Vec<Part>,
    ) {
        let rank = gradients.rank;
        for SegmentUse { unit, version, .. } in &self.uses {
            if let Some(unit) = unit.upgrade() {
                unit.check_version(*version);
            }
        }
        let stage = RunningStage::resume(self.stage);
        let before = rank.prefetcher().enter_phase(StepPhase::Recompute);
        rank.segments().begin_recompute(rank, Rc::clone(&self.segment), self.saved);
        let flops = rank.backend().flops();

        let mut sources = Vec::new();
        let mut parts = Vec::new();
        for part in self.inputs {
            let SegmentInput { rank: own, extents, source, saved } = match part {
                SavedPart::Activation(input) => input,
                SavedPart::AsIs(part) => {
                    parts.push(part);
                    continue;
                }
            };
            let data = saved.take_buffer(rank);
            let leaf = source.map(|source| {
                let cell = Rc::new(Cell::new(None));
                sources.push((source, Rc::clone(&cell)));
                rank.tape()
                    .record(Dependencies::default(), move |_, gradient| cell.set(Some(gradient)))
            });
            parts.push(Part::Activation(Value::alias(&own, extents, data, leaf)));
        }
        let outputs = {
            let _pass = scope::begin_pass(Pass::Recomputation);
            rank.in_step(self.step, || f(parts))
        };
        drop(stage);

        let mut again = rank.segments().end_recompute(rank, rank.backend().flops() - flops);
        add_results(&mut again, rank, &outputs);
        assert!(
            !rank.makes_checks() || self.program.is_repeated_by(&again),
            "the backward{} has recomputed `{}` with other parameters or numbers than its forward pass: the `forward` \
             of a recomputed layer may depend on its input, the step and its parameters alone, not on a counter, a \
             clock, random numbers of its own or what another layer has kept; use `Dropout`, whose mask is the same \
             again, or leave out `#[recompute]`",
            rank.backward_line(),
            self.segment.path
        );
        if before == StepPhase::Backward {
            rank.prefetcher().prefetch_before(self.uses.first().map(|first| &first.unit));
        }
        rank.prefetcher().enter_phase(StepPhase::SegmentBackward);
        let roots = outputs.into_iter().zip(arrived);
        let roots: Vec<(NodeId, Arc<Buffer>)> = roots
            .filter_map(|(part, arrived)| {
                Some((part.activation()?.compute_with_node().node?, arrived.take()?))
            })
            .collect();
        backpropagate_segment(gradients, roots);

        for (source, cell) in sources {
            if let Some(gradient) = cell.take() {
                gradients.add_gradient(&source, gradient);
            }
        }
        rank.prefetcher().enter_phase(before);
        if before == StepPhase::Backward {
            rank.prefetcher().end_segment_backward();
        }
        self.uses.iter().for_each(|segment_use| segment_use.finish_use(rank));
    }
}
