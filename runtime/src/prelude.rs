//! Types, traits and macros for model code: `use meshwright::prelude::*;`.

pub use crate::layout::{Cp, Data, Dim, Dp, Ep, Fsdp, Local, Pp, Routed, Split, Tp, Whole};
pub use crate::nn::layers::*;
pub use crate::nn::{Build, Builder, Layer, Layers, Model, Module, Shard, Sizes, TokenRouting};
pub use crate::state_dict::HfName;
pub use crate::tensor::{
    Documents, Gradients, InFlight, Init, Loss, Param, Partial, Rank, Targets, Tensor, Tokens,
};
pub use crate::train::{LanguageModel, Trainer};
pub use crate::{dims, forward, model};
pub use meshwright_macros::Model;
pub use meshwright_macros::{pipeline_stage, recompute, sharded, tied};
