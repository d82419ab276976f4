//! Arrangement of ranks: degrees per axis, coordinates, and the groups that communicate.

mod coordinates;
mod parse;
mod shape;

pub use coordinates::Coordinates;
pub use parse::MeshError;
pub use shape::MeshShape;
