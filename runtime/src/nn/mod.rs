//! Layers (one file each, with forward and backward), models and their builder.

mod attention;
mod bias;
mod builder;
mod chain;
mod cross_entropy;
mod dropout;
mod embedding;
mod fused_loss;
mod layer;
mod linear;
mod lm_head;
mod logit_chunks;
mod model;
mod norm;
mod param;
mod positions;
mod recompute;
mod rope;
mod sizes;
mod stack;
mod style;
mod tie;
mod with_documents;

pub use crate::backend::RopeLayout;
pub use attention::{
    Alibi, Attended, Attention, AttentionExtra, AttentionMask, AttentionOptions, AttentionSinks,
    BiasOfScores, Bidirectional, Causal, ContextParallel, ContextStyle, DistributedOver,
    DocumentsOf, ExtraAfter, GatherStyle, GatheredKeys, HomeOfKeys, Hybrid, HybridStyle, KeysAlong,
    KeysOfQueries, KeysShaped, MaskBetween, Padding, PaddingOf, QueriesKeysValues, QueriesOf,
    RelativeBias, Ring, RingStyle, SameHeads, SameSequence, SinksOfHeads, TypedContextStyle,
    Ulysses, UlyssesStyle, ValuesShaped,
};
pub use bias::Bias;
pub(crate) use builder::declare;
pub use builder::{AttentionSizes, Build, BuildError, Builder, Built, ShardSizes, build};
pub use chain::{
    ChainDescription, ChainField, ChainPart, LayerCount, PartInput, PartOutput, PipelineModel,
    PipelineStage, StageBoundary, StageData, StageInput, StageOutput, StageValue, StageVisitor,
    StagedForward, check_boundaries, describe_chain, finish_stages, forward_part, forward_stages,
    run_module, visit_model, visit_stage,
};
pub use cross_entropy::{CrossEntropy, LogitsOf};
pub use dropout::Dropout;
pub use embedding::{Embedding, VocabInput};
pub use layer::{Layer, Module, Shard};
pub use linear::{ColumnInput, Linear, PlainInput, RowInput};
pub use lm_head::{HeadInput, LmHead, TargetsOf};
pub(crate) use logit_chunks::LogitChunks;
pub use model::{
    FieldDescription, ForwardInput, ForwardOutput, Model, ModelDescription, StageDescription,
    check_output,
};
pub use norm::{LayerNorm, NormInput, RmsNorm};
pub use positions::{DocumentsInput, LearnedPositions, SequenceInput};
pub use recompute::{
    Grouping, Recompute, RecomputeEvery, RecomputeOverride, RecomputePolicy, Recomputed,
    UnknownRecompute,
};
pub use rope::Rope;
pub use sizes::Sizes;
pub use stack::{Layers, Stack, StackInput};
pub use style::{AllReduce, Col, Plain, RegionExit, Row, Scatter, VocabSplit};
pub use tie::{SameWeightAs, TiedWeight, check_tie};
pub use with_documents::WithDocuments;
