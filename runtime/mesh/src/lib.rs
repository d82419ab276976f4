//! The device mesh: degrees of its axes, coordinates of ranks, process groups, local extents and the grammars of
//! `--mesh` and `--mesh-order`.

mod axis;
mod axis_name;
mod axis_order;
mod coordinates;
mod dim_info;
mod error;
mod extent;
mod halo;
mod parse;
mod shape;

pub use axis::{AxisId, AxisSet};
pub use axis_order::AxisOrder;
pub use coordinates::Coordinates;
pub use dim_info::DimInfo;
pub use error::MeshError;
pub use extent::Extent;
pub use shape::MeshShape;

/// Items for the other crates of Meshwright. Not part of the API.
#[doc(hidden)]
pub mod __internal {
    pub use crate::extent::{check_sizes, global_sizes, local_len, named_sizes, shape_name};
    pub use crate::halo::{HaloPart, HaloSide, halo_parts, shortest_range};
}
