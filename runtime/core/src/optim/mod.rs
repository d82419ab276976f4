//! Optimizers over the flat buffers of FSDP units, their state sharded as the units are. In mixed precision they update
//! the f32 master weights.
//!
//! [`UpdateRule`] is the trait of an optimizer, [`Optimizer`] a rule with its state.

mod adamw;
mod ema;
mod expression;
mod groups;
mod made_up_shard;
mod muon;
mod optimizer;
mod optimizer_state;
mod optimizer_step;
mod outer_sgd;
mod ranges;
pub(crate) mod rule;
mod sgd;
mod shard_check;
mod slice;
mod slice_buffers;
mod slice_param;
mod swapped_values;
mod unit_state;

pub use adamw::{AdamW, AdamWOptions};
pub use ema::Ema;
pub use expression::{ElementValue, IntoElement};
pub use groups::{Group, GroupsError, ParamGroups, Select};
pub use muon::{Muon, MuonOptions, orthogonalize};
pub use optimizer::Optimizer;
pub use optimizer_state::OptimizerState;
pub use optimizer_step::OptimizerStep;
#[doc(hidden)]
pub use outer_sgd::{OuterSgd, OuterSgdOptions, fragment_of};
pub use ranges::{check_fraction, check_nonnegative};
pub use rule::{ModelUpdate, OptimizerError, UpdateRule};
pub use sgd::{Sgd, SgdOptions};
pub use slice::{FlatSlice, FlatSlices, SliceViews, Updated};
pub use slice_param::SliceParam;
pub use unit_state::UnitState;
