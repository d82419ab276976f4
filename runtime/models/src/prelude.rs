//! Types, traits and macros for model code.

pub use meshwright_core::layout::{
    Cp, Data, Dim, Dp, Ep, Fsdp, Local, Pp, Routed, Split, Tp, Whole,
};
pub use meshwright_core::nn::layers::*;
// Also if a program has a `Layer` of its own.
pub use meshwright_core::nn::Layer as _;
pub use meshwright_core::nn::{
    Build, Builder, Layer, Layers, Model, Module, Shard, Sizes, TokenRouting,
};
pub use meshwright_core::tensor::{
    Documents, Gradients, InFlight, Init, Loss, Mask, Param, Partial, Rank, Targets, Tensor,
    Tokens, Weights,
};
pub use meshwright_macros::Model;
pub use meshwright_macros::{dims, forward, model, pipeline_stage, recompute, sharded, tied};
pub use meshwright_store::family::LanguageModel;
pub use meshwright_store::state_dict::HfName;
