//! Items that macro expansions refer to. Not part of the API.

pub use crate::layout::name;
pub use crate::layout::{
    BatchDim, Cp, Data, Dp, Ep, Fsdp, Here, Local, Named, Pp, Split, Tp, Whole,
};
pub use crate::nn::{
    AllReduce, Build, Builder, ByExpert, Col, FieldDescription, ForwardInput, GatheredKeys,
    Grouped, Grouping, Hybrid, Layer, Model, ModelDescription, Module, NotRecomputed,
    PipelineModel, PipelineStage, Recompute, RecomputeEvery, RecomputePolicy, Recomputed, Ring,
    Row, SameWeightAs, Scatter, Shard, StageDescription, StageInput, StageValue, StageVisitor,
    StagedForward, TiedWeight, Ulysses, VocabSplit, check_boundaries, check_output, check_tie,
    finish_stages, forward_stages, forward_variant, run_module, visit_model, visit_stage,
};
pub use crate::tensor::{Init, Scope, scope};
