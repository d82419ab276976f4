//! The chain of a model's pipeline stages: the fields with `#[pipeline_stage]`, in the order of `forward`.
//!
//! `#[model]` writes one function that visits these fields, and three visitors use it: [`forward_stages`] runs the
//! whole model, [`forward_part`] the part that one rank holds, and [`describe_chain`] lists names, stage-cut points and
//! boundaries. So there is no second program that could differ from `forward`.

mod description;
mod layers;
mod model;
mod part;
mod stage;
mod visitor;
mod whole;

pub use description::{ChainDescription, ChainField, describe_chain};
pub use layers::run_module;
pub(super) use layers::stage_layers;
pub use model::{
    PipelineModel, StageOutput, StagedForward, check_boundaries, finish_stages, visit_model,
};
pub use part::{ChainPart, PartInput, PartOutput, StageData, forward_part};
pub use stage::{LayerCount, PipelineStage, StageBoundary, StageInput};
pub use visitor::{StageValue, StageVisitor, visit_stage};
pub use whole::forward_stages;
