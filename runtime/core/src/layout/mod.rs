//! Tensor layout as types: mesh axes, named dims, splits, and the rules between shapes. Contains no data.
//!
//! In the terms of DTensor, a whole dim is `Replicate`, a [`Split`] dim or one declared `@ axis` is `Shard`, and
//! [`Partial`](crate::tensor::Partial) is `Partial`. Here they are part of a tensor's type.

mod along;
mod dim;
mod marker;
pub mod name;
mod reads;
mod routed;
mod same;
pub(crate) mod sealed;
mod select;
mod shape;
mod stacked;
mod tensor_parallel;
mod usage;

pub use along::{Along, Broadcast, DimOf, Holds, Places};
pub use dim::{BatchDim, Dim, Local, OnEveryRank, Split, Whole};
pub use marker::{
    ApartFrom, Axis, AxisGroup, Cp, Data, Dp, Ep, Fsdp, Here, Home, ModelAxis, Outside, Pp,
    SequenceHome, SplitAxes, Tp,
};
pub use meshwright_mesh::{AxisId, AxisSet, DimInfo};
pub use name::Named;
pub use reads::Reads;
pub(crate) use routed::refuse_routed;
pub use routed::{DispatchAxes, ExpertsOf, Routed, RowsOf, TokenRows};
pub use same::{SameShape, Scattered, ShardedAlike};
pub(crate) use sealed::Internal;
pub(crate) use sealed::Seal;
pub use select::{At, GatherDim, HasDim, SplitDim, SumOver};
pub use shape::{Dims, Feature, LocalFeature, ParamDim, ParamShape, Shape, WholeFeature};
pub use stacked::{StackDim, Stacked};
pub use tensor_parallel::{Ends, Enter, Entry, ScatterLast, Unsplit, With};
pub(crate) use usage::{AxesCovered, Distinct, OneDimPerAxis, UsageSet};
