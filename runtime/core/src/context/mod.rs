//! The context of a rank: communicators, backend, memory and settings, and the state that modules above keep with it.

mod buffers;
mod collectives;
mod document_ids;
mod extents;
mod failure;
mod grad_mode;
mod left_out_numbers;
mod micro_batch;
mod rank;
mod rounding;
mod routed_rows;
mod row_documents;
mod running_stage;
pub(crate) mod scope;
mod session;
mod settings;
mod step_counter;
mod visible_rows;
mod zero_stage;

pub use rank::Rank;
pub use scope::{Scope, scope};
pub use settings::{Checks, Settings};
pub use zero_stage::ZeroStage;

pub(crate) use buffers::{Staged, alloc_like};
pub(crate) use document_ids::DocumentIds;
pub(crate) use extents::{block_index, elements_along, extents_of, gather_block, parts_along_home};
pub use failure::fail;
pub(crate) use micro_batch::MicroBatch;
pub use routed_rows::RoutedRows;
pub(crate) use running_stage::{BoundaryId, RunningStage, StageReaders, StagedForwardId};
pub(crate) use visible_rows::{KeyBlock, KeyRangeBuffers, VisibleRows};
