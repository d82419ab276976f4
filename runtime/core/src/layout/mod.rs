//! Tensor layout as types: mesh axes, named dims, splits, and the rules between shapes. Contains no data.
//!
//! In the terms of DTensor, a whole dim is `Replicate`, a [`Split`] dim or one declared `@ axis` is `Shard`, and
//! [`Partial`](crate::tensor::Partial) is `Partial`. Here they are part of a tensor's type.

mod along;
mod contraction;
mod dim;
mod distinct_names;
mod gather_as;
mod indexing;
mod insert;
mod marker;
pub mod name;
mod neighbors;
mod reads;
mod reads_across;
mod rename;
mod routed;
mod same;
mod same_shape;
pub(crate) mod sealed;
mod select;
mod shape;
mod stacked;
mod take;
mod tensor_parallel;
mod usage;

pub use along::{Along, Broadcast, DimOf, Holds, Places};
pub use contraction::{AlsoOver, DotDims, DropDims};
pub use dim::{BatchDim, Dim, Local, OnEveryRank, Split, Whole};
pub(crate) use distinct_names::refuse_repeated;
pub use gather_as::GatherDimAs;
pub use indexing::{AddedDims, IndexedDims};
pub use insert::{ConcatDim, ExpandDim, FollowedBy, InsertDim};
pub use marker::{
    ApartFrom, Axis, AxisGroup, Cp, Data, Dp, Ep, Fsdp, Here, Home, ModelAxis, Outside, Pp,
    SequenceHome, SplitAxes, Tp,
};
pub use meshwright_mesh::{AxisId, AxisSet, DimInfo};
pub use name::Named;
pub use neighbors::{NeighborAxes, NeighborDim, SequenceLast, Shifts, Taps, WholeSequenceLast};
pub use reads::Reads;
pub use reads_across::{ReadsAcross, SameSamples};
pub use rename::{JoinDims, PartDim, RenameDim};
pub use routed::{DispatchAxes, ExpertsOf, Routed, RowsOf, TokenRows};
pub(crate) use routed::{refuse_routed, refuse_routed_dim};
pub use same::{Scattered, ShardedAlike};
pub use same_shape::SameShape;
pub(crate) use sealed::Internal;
pub(crate) use sealed::Seal;
pub use select::{At, GatherDim, HasDim, OneOf, SplitDim, SumOver, SumOverOne};
pub use shape::{Dims, Feature, LocalFeature, ParamDim, ParamShape, Shape, WholeFeature};
pub use stacked::{StackDim, Stacked};
pub use take::{DropDim, PermuteDims, PickDims, TakeDim};
pub use tensor_parallel::{Ends, Enter, Entry, ScatterLast, Unsplit, With};
pub(crate) use usage::{AxesCovered, Distinct, OneDimPerAxis, UsageSet};
