//! Types, traits and macros for model code: `use meshwright::prelude::*;`.

pub use crate::layout::{Cp, Data, Dim, Dp, Ep, Fsdp, Local, Pp, Split, Tp, Whole};
pub use crate::nn::{
    Alibi, Attention, AttentionOptions, AttentionSinks, Bias, Bidirectional, Build, Builder,
    Causal, CrossEntropy, Dropout, Embedding, Layer, LayerNorm, Layers, LearnedPositions, Linear,
    LmHead, Model, Module, Padding, RelativeBias, RmsNorm, Rope, Shard, Sizes, Stack,
    WithDocuments,
};
pub use crate::state_dict::HfName;
pub use crate::tensor::{
    Documents, Gradients, InFlight, Init, Loss, Param, Partial, Rank, Targets, Tensor, Tokens,
};
pub use crate::train::{LanguageModel, Trainer};
pub use crate::{dims, forward, model};
pub use meshwright_macros::Model;
