//! The context of a rank: communicators, backend, memory and settings, and the state that other modules keep with it.

mod declared_values;
mod extents;
mod rank;
pub(crate) mod scope;
mod zero_stage;

pub use extents::Extent;
pub use rank::{Rank, Settings};
pub use scope::{Scope, scope};
pub use zero_stage::ZeroLevel;

pub(crate) use extents::{
    MicroBatch, block_index, check_sizes, elements_of, extents_of, gather_block, global_sizes,
    local_len, named_sizes, shape_name,
};
pub(crate) use rank::{Staged, fail};
