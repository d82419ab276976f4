//! What a tensor means on the mesh: axes, dims, splits and the rules between shapes. Knows no data.

mod axis;
mod dim;
mod marker;
mod region;
mod same;
mod sealed;
mod select;
mod shape;
mod usage;

pub use axis::{AxisId, AxisSet};
pub use dim::{BatchDim, Dim, DimInfo, Local, OnEveryRank, Split, Whole};
pub use marker::{
    ApartFrom, Axis, AxisGroup, Cp, Data, Dp, Ep, Fsdp, Here, Home, ModelAxis, Pp, Tp,
};
pub use region::{Ends, Enter, Entry, ScatterLast, Unsplit, With};
pub use same::{Broadcast, Identical, SameShape};
pub(crate) use sealed::{Internal, Seal};
pub use select::{At, GatherDim, SplitDim, SumOver};
pub use shape::{Dims, Feature, LocalFeature, ParamDim, ParamShape, Shape, WholeFeature};
