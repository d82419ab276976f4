//! The device mesh: degrees of its axes, coordinates of ranks, process groups, local extents and the `--mesh` grammar.

mod coordinates;
mod error;
mod extent;
mod parse;
mod shape;

pub use coordinates::Coordinates;
pub use error::MeshError;
pub use extent::Extent;
pub use shape::MeshShape;

pub(crate) use extent::{check_sizes, global_sizes, local_len, named_sizes, shape_name};
