//! Meshes that messages suggest.

use crate::layout::AxisId;
use crate::mesh::MeshShape;

/// Suggests the same mesh with its `dp` ranks along an axis that has one rank.
pub fn with_ranks_along(mesh: &MeshShape, axis: AxisId) -> String {
    let degree = mesh.degree(AxisId::Dp).max(2);
    let others = AxisId::ALL
        .into_iter()
        .filter(|other| *other != AxisId::Dp && *other != axis)
        .map(|other| (other, mesh.degree(other)));
    match MeshShape::new(others.chain([(axis, degree)])) {
        Ok(mesh) => format!("--mesh {mesh}"),
        Err(_) => format!("--mesh {axis}={degree}"),
    }
}
