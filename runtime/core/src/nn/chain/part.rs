//! Forward of a part of a chain, as one rank of a pipeline runs it.

use std::ops::Range;

use crate::layout::Internal;
use crate::tensor::{Part, RunningStage, SegmentData, StagedForwardId, at_stage_boundary};

use super::super::Module;
use super::stage::{PipelineStage, StageBoundary};
use super::visitor::{StageValue, StageVisitor};

/// Consecutive elements of a chain, by [`ChainDescription::part`](super::ChainDescription::part).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainPart {
    pub(super) elements: Range<usize>,
    /// True if the part ends where the chain ends.
    pub(super) is_last: bool,
}

/// The data between two parts of a chain, without its type.
#[derive(Clone)]
pub struct StageData {
    #[doc(hidden)]
    pub parts: Vec<Part>,
}

/// Input of a part of a chain.
pub enum PartInput<'a, T> {
    /// The input of the model, for the first part.
    Model(&'a T),
    /// The output of the part before.
    Boundary(StageData),
}

/// Output of a part of a chain.
pub enum PartOutput<T> {
    /// The input of the next part.
    Boundary(StageData),
    /// The output of the model, from the last part.
    Model(T),
}

/// Computes the output of a part of a model's chain.
///
/// # Panics
/// If the model has no pipeline stages, or if `part` or `input` is not of its chain: the first part takes the input of
/// the model, others the output of the part before.
pub fn forward_part<M: Module<In: Clone>>(
    model: &M,
    part: &ChainPart,
    input: PartInput<'_, M::In>,
) -> PartOutput<M::Out> {
    let is_first = part.elements.start == 0;
    let (input, received) = match input {
        PartInput::Model(input) if is_first => (Some(input.clone()), None),
        PartInput::Boundary(data) if !is_first => (None, Some(data)),
        _ => panic!("the first part of a chain, and only it, takes the input of the model"),
    };
    let forward = StagedForwardId::begin();
    let mut visitor = PartVisitor { forward, part, position: 0, received, sent: None };
    let Some(output) = model.visit_stages(&mut visitor, StageValue::new(input)) else {
        panic!("a model without pipeline stages has no parts");
    };
    match (output.into_value(), visitor.sent) {
        (Some(output), None) => PartOutput::Model(output),
        (None, Some(data)) => PartOutput::Boundary(data),
        _ => panic!("the part {:?} is not of the chain of this model", part.elements),
    }
}

impl StageData {
    fn from_data<T: SegmentData>(data: &T) -> StageData {
        let mut parts = Vec::new();
        data.add_parts(&mut parts, Internal::new());
        StageData { parts }
    }

    fn into_typed<T: SegmentData>(self) -> T {
        let mut parts = self.parts.into_iter();
        let mut next = || parts.next().expect("a boundary has the parts of its type");
        let data = T::from_parts(&mut next, Internal::new());
        assert!(parts.next().is_none(), "a boundary has no more parts than its type");
        data
    }
}

/// Runs the stages, and layers of stacks, of one part. A value is present inside of the part only.
struct PartVisitor<'a> {
    forward: StagedForwardId,
    part: &'a ChainPart,
    /// Number of elements visited so far.
    position: usize,
    received: Option<StageData>,
    sent: Option<StageData>,
}

impl PartVisitor<'_> {
    fn receive<T: SegmentData>(&mut self) -> T {
        self.received.take().expect("a part receives its input once").into_typed()
    }
}

impl StageVisitor for PartVisitor<'_> {
    type At<T> = Option<T>;

    #[track_caller]
    fn visit_stage<X, S: PipelineStage<X, Output: StageBoundary>>(
        &mut self,
        name: &'static str,
        stage: &S,
        input: Option<X>,
    ) -> Option<S::Output> {
        let start = self.position;
        let end = start + stage.layer_count().map_or(1, |layers| layers.count);
        self.position = end;
        let Range { start: first, end: last } = self.part.elements;
        let own = start.max(first)..end.min(last);
        if own.is_empty() {
            return match input {
                // A stack without layers inside of the part.
                Some(input) => Some(stage.run(0..0, input)),
                None => (start < end && end == first).then(|| self.receive()),
            };
        }
        let layers = own.start - start..own.end - start;
        let _running = RunningStage::begin_field(self.forward, name, stage.layer_count().is_some());
        let output = match input {
            Some(input) => stage.run(layers, input),
            None => {
                let received = self.receive();
                stage.resume(layers, received)
            }
        };
        let output = at_stage_boundary(&output);
        if own.end == last && !self.part.is_last {
            self.sent = Some(StageData::from_data(&output));
            return None;
        }
        Some(output)
    }
}
