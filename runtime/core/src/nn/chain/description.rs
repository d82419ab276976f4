//! Description of a chain: its fields, stage-cut points and boundaries.

use std::ops::Range;

use crate::layout::Internal;
use crate::tensor::{PartKind, SegmentData};

use super::super::Module;
use super::part::ChainPart;
use super::stage::{LayerCount, PipelineStage, StageBoundary};
use super::visitor::{StageValue, StageVisitor};

/// The chain of a built model.
///
/// Its *elements* are the fields of the chain in order, with each layer of a stack as one element. A part of the chain
/// is a range of elements; the fields with `#[pipeline_stage(last)]` are not elements.
#[derive(Debug, Clone)]
pub struct ChainDescription {
    /// The fields in order.
    pub fields: Vec<ChainField>,
}

/// A field of a chain.
#[derive(Debug, Clone)]
pub struct ChainField {
    /// Name of the field.
    pub name: &'static str,
    /// The layers of a stack; `None` for other fields, which are not cut.
    pub layers: Option<LayerCount>,
    /// Kinds of the parts of the field's output, and of the output of each layer of a stack.
    pub output: Vec<PartKind>,
}

/// Returns the description of the chain of a model; `None` for a model without pipeline stages.
pub fn describe_chain<M: Module>(model: &M) -> Option<ChainDescription> {
    let mut description = ChainDescription { fields: Vec::new() };
    model.visit_stages(&mut description, StageValue::new(()))?;
    Some(description)
}

impl ChainDescription {
    /// Returns the number of elements of the chain.
    pub fn n_elements(&self) -> usize {
        self.fields.iter().map(ChainField::n_elements).sum()
    }

    /// Returns the part of the chain with these elements.
    ///
    /// # Panics
    /// If the range is empty or ends behind the last element.
    pub fn part(&self, elements: Range<usize>) -> ChainPart {
        let n_elements = self.n_elements();
        assert!(
            !elements.is_empty() && elements.end <= n_elements,
            "the elements {elements:?} are not a part of a chain of {n_elements}"
        );
        let is_last = elements.end == n_elements;
        ChainPart { elements, is_last }
    }
}

impl ChainField {
    /// Returns the number of elements of the field.
    pub fn n_elements(&self) -> usize {
        self.layers.map_or(1, |layers| layers.count)
    }
}

impl StageVisitor for ChainDescription {
    type At<T> = ();

    fn visit_stage<X, S: PipelineStage<X, Output: StageBoundary>>(
        &mut self,
        name: &'static str,
        stage: &S,
        (): (),
    ) {
        let mut output = Vec::new();
        S::Output::add_part_kinds(&mut output, Internal::new());
        self.fields.push(ChainField { name, layers: stage.layer_count(), output });
    }
}
