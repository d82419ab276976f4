//! The device mesh: degrees of its axes, coordinates of ranks, process groups and the `--mesh` grammar.

mod coordinates;
mod parse;
mod shape;

pub use coordinates::Coordinates;
pub use parse::MeshError;
pub use shape::MeshShape;
