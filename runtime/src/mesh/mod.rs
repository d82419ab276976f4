//! The device mesh: degrees of its axes, coordinates of ranks, process groups, local extents and the grammars of
//! `--mesh` and `--mesh-order`.

mod axis_name;
mod axis_order;
mod coordinates;
mod error;
mod extent;
mod parse;
mod shape;

pub use axis_order::AxisOrder;
pub use coordinates::Coordinates;
pub use error::MeshError;
pub use extent::Extent;
pub use shape::MeshShape;

pub(crate) use extent::{check_sizes, global_sizes, local_len, named_sizes, shape_name};
