//! Activation checkpointing (gradient checkpointing): segments save only their inputs and selected results, and are
//! recomputed in backward (Chen et al., "Training deep nets with sublinear memory cost", 2016).

mod open_segments;
mod recompute;
mod segment;

pub use segment::{CheckpointedSegment, SavePolicy};

pub(super) use open_segments::SegmentRun;
pub(crate) use recompute::recompute;
