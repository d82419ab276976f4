//! Forward of a whole model by its chain.

use crate::tensor::{RunningStage, StagedForwardId, at_boundary, at_stage_boundary};

use super::model::StagedForward;
use super::stage::{PipelineStage, StageBoundary};
use super::visitor::{StageValue, StageVisitor};

/// Runs all stages of a model in order: a `forward` without a body.
#[doc(hidden)]
pub fn forward_stages<M: StagedForward>(model: &M, input: &M::In) -> M::Out {
    let mut visitor = WholeModel { forward: StagedForwardId::begin() };
    model.visit_fields(&mut visitor, StageValue::new(at_boundary(input))).into_value()
}

/// Runs every stage.
struct WholeModel {
    forward: StagedForwardId,
}

impl StageVisitor for WholeModel {
    type At<T> = T;

    #[track_caller]
    fn visit_stage<X, S: PipelineStage<X, Output: StageBoundary>>(
        &mut self,
        name: &'static str,
        stage: &S,
        input: X,
    ) -> S::Output {
        let layers = stage.layer_count();
        let _running = RunningStage::begin_field(self.forward, name, layers.is_some());
        at_stage_boundary(&stage.run(0..layers.map_or(0, |layers| layers.count), input))
    }
}
