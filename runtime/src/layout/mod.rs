//! What a tensor means on the mesh: axes, dims, splits, partial sums. Knows no data.

mod axis;

pub use axis::{AxisId, AxisSet};
