//! What the macros' expansions name. Not part of the API.

pub use crate::layout::{BatchDim, Cp, Data, Dp, Ep, Fsdp, Here, Local, Pp, Split, Tp, Whole};
pub use crate::nn::{
    AllReduce, Build, Builder, Col, FieldDescription, Fits, Grouping, Model, ModelDescription,
    Module, Recompute, RecomputeEvery, RecomputePolicy, Recomputed, Row, SameWeightAs, Scatter,
    Shard, TiedWeight, VocabSplit, check_tie, returned,
};
pub use crate::tensor::{Scope, scope};
