//! Layers (one file each, with forward and backward), models and their builder.

mod adapter;
mod affine;
mod attention;
mod bias;
pub(crate) mod builder;
mod causal_conv;
mod chain;
mod conv1d;
mod cross_entropy;
mod debug;
mod debug_fields;
mod divergence;
mod dropout;
mod embedding;
mod fields;
mod fused_loss;
mod head_options;
mod head_projection;
mod layer;
mod layer_index;
mod layers_dim;
mod linear;
mod lm_head;
mod log_probs;
mod logit_chunks;
mod logit_stats;
mod lora_options;
mod model;
mod moe;
mod no_form;
mod norm;
mod norm_options;
mod param;
mod positions;
mod recompute;
pub(crate) mod rope;
mod sizes;
mod stack;
mod style;
mod tie;
mod variants;

pub use affine::BiasStyle;
pub use attention::{
    Attended, AttentionExtra, AttentionMask, BiasOfScores, ContextParallel, ContextStyle,
    DistributedOver, DocumentsOf, ExtraAfter, GatherStyle, GatheredKeys, HomeOfKeys, Hybrid,
    HybridStyle, KeysOfQueries, KeysShaped, MaskBetween, PaddingOf, QueriesKeysValues, QueriesOf,
    Ring, RingStyle, SameHeads, SameSequence, SinksOfHeads, TypedContextStyle, Ulysses,
    UlyssesStyle, ValuesShaped,
};
pub use builder::{AttentionSizes, Build, BuildError, Builder, Built, ShardSizes, build};
pub use causal_conv::CausalConvInput;
pub use chain::{
    ChainDescription, ChainField, ChainPart, LayerCount, PartInput, PartOutput, PipelineModel,
    PipelineStage, StageBoundary, StageData, StageInput, StageOutput, StageValue, StageVisitor,
    StagedForward, check_boundaries, describe_chain, finish_stages, forward_part, forward_stages,
    run_module, visit_model, visit_stage,
};
pub use conv1d::ConvInput;
pub use cross_entropy::LogitsOf;
pub use embedding::VocabInput;
pub use fields::ChainedLayer;
pub use layer::{HasForm, Layer, Module, Shard};
pub use layer_index::LayerIndex;
pub use layers::*;
pub use layers_dim::Layers;
pub use linear::{ColumnInput, PlainInput, RowInput};
pub use lm_head::{HeadInput, TargetsOf};
pub(crate) use logit_chunks::LogitChunks;
pub use lora_options::LoraRank;
pub use meshwright_backend::RopeLayout;
pub use model::{
    FieldDescription, ForwardInput, ForwardOutput, Model, ModelDescription, ScatteredOutput,
    StageDescription, check_output,
};
pub use moe::{GroupedBiasInput, GroupedInput, RouterInput, TokenRouting};
pub use no_form::{DimsInTuple, NoForm, Unpaired};
pub use norm::{NormInput, SplitNormInput};
pub use positions::{DocumentsInput, SequenceInput};
pub use recompute::{
    Alone, Grouped, Grouping, NotRecomputed, Recompute, RecomputeEvery, RecomputeOverride,
    RecomputePolicy, Recomputed, RecomputesAlone, RecomputesGroups, UnknownRecompute,
};
pub use rope::RotatedHeads;
pub use sizes::Sizes;
pub use stack::{AppliedInOrder, StackInput};
pub use style::{AllReduce, ByExpert, Col, Plain, RegionExit, Row, Scatter, VocabSplit};
pub use tie::{SameWeightAs, TiedWeight, check_tie};
pub use variants::{SameTypes, forward_variant};

/// Layers and their options. The prelude has all of them, too.
pub mod layers {
    pub use crate::nn::affine::Affine;
    pub use crate::nn::attention::{
        Alibi, Attention, AttentionOptions, AttentionSinks, Bidirectional, Causal, Padding,
        RelativeBias,
    };
    pub use crate::nn::bias::Bias;
    pub use crate::nn::causal_conv::CausalConv;
    pub use crate::nn::conv1d::Conv1d;
    pub use crate::nn::cross_entropy::CrossEntropy;
    pub use crate::nn::dropout::Dropout;
    pub use crate::nn::embedding::Embedding;
    pub use crate::nn::head_options::HeadOptions;
    pub use crate::nn::linear::Linear;
    pub use crate::nn::lm_head::LmHead;
    pub use crate::nn::lora_options::LoraOptions;
    pub use crate::nn::moe::{
        ExpertGroups, GroupedBias, GroupedLinear, Router, RouterOptions, RouterPenalties,
        RouterScore,
    };
    pub use crate::nn::norm::{LayerNorm, RmsNorm};
    pub use crate::nn::norm_options::NormOptions;
    pub use crate::nn::positions::LearnedPositions;
    pub use crate::nn::rope::Rope;
    pub use crate::nn::stack::Stack;
}
