//! Activation checkpointing: segments that save only their inputs, and are recomputed in backward.

mod open_segments;
mod recompute;
mod segment_data;

pub use recompute::{Keep, Region};
pub use segment_data::RegionData;

pub(crate) use open_segments::Regions;
pub(crate) use recompute::recompute;
