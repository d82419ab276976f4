//! What a tensor means on the mesh: axes, dims, splits and the rules between shapes. Knows no data.

mod axis;
mod dim;
mod marker;
mod region;
mod select;
mod shape;

pub use axis::{AxisId, AxisSet};
pub use dim::{Dim, DimInfo, Local, Split, Whole};
pub use marker::{Axis, Cp, Data, Dp, Ep, Fsdp, Here, Home, Pp, Tp};
pub use region::{Ends, Enter, Entry, ScatterLast, With};
pub use select::{At, GatherDim, SplitDim, SumOver};
pub use shape::{Feature, Shape, WholeFeature};
