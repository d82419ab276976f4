//! Items that macro expansions refer to. Not part of the API.

pub use crate::layout::{BatchDim, Cp, Data, Dp, Ep, Fsdp, Here, Local, Pp, Split, Tp, Whole};
pub use crate::nn::{
    AllReduce, Build, Builder, Col, FieldDescription, ForwardInput, Grouping, Model,
    ModelDescription, Module, Recompute, RecomputeEvery, RecomputePolicy, Recomputed, Row,
    SameWeightAs, Scatter, Shard, TiedWeight, VocabSplit, check_output, check_tie,
};
pub use crate::tensor::{Scope, scope};
