//! Layers: one file each, forward and backward together.

mod attention;
mod build;
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

pub use attention::{Attention, KeysShaped, QueriesKeysValues, QueriesOf, ValuesShaped};
pub(crate) use build::declare;
pub use build::{Build, BuildError, Builder, Built, Parts, build};
pub use cross_entropy::{CrossEntropy, LogitsOf};
pub use dropout::Dropout;
pub use embedding::{Embedding, VocabInput};
pub use layer::{Layer, Module, Shard};
pub use linear::{ColumnInput, Linear, PlainInput, RowInput};
pub use lm_head::{HeadInput, LmHead, TargetsOf};
pub(crate) use logit_chunks::LogitChunks;
pub use model::{FieldDescription, Fits, Model, ModelDescription, Promised, returned};
pub use norm::{LayerNorm, NormInput, RmsNorm};
pub use param::Bias;
pub use positions::{InSequence, LearnedPositions};
pub use recompute::{
    Grouping, Recompute, RecomputeEvery, RecomputeOverride, RecomputePolicy, Recomputed,
    UnknownRecompute,
};
pub use rope::Rope;
pub use sizes::Sizes;
pub use stack::{Layers, Stack, Through};
pub use style::{AllReduce, Col, End, Plain, Row, Scatter, VocabSplit};
pub use tie::{SameWeightAs, TiedWeight, check_tie};
