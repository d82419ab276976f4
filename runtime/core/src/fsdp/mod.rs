//! Fully sharded data parallelism (FSDP, ZeRO stages 0 to 3): parameters in units that are sharded, reduced, gathered
//! and prefetched together.

mod action_reads;
mod backward_pass;
mod init;
mod kept_units;
mod owners;
mod param;
mod param_entry;
mod param_gradient;
mod param_owners;
mod param_values;
mod pending_reads;
mod prefetch;
mod read_log;
mod recorded_uses;
mod unit;
mod units;

pub use init::Init;
pub use owners::UnitOwners;
pub use param::ParamRef;
pub use unit::{Unit, UnitSlice};

pub use action_reads::{StageAction, StageActionKind};
pub use backward_pass::{BackwardPass, CompletedUnits};
pub(crate) use init::InitialValues;
pub(crate) use param_entry::{ParamDims, Role};
pub(crate) use param_gradient::InBackward;
pub(crate) use param_values::{DeferredParam, DeferredValues};
pub(crate) use pending_reads::PendingRead;
pub(crate) use prefetch::StepPhase;
pub(crate) use recorded_uses::{CountedUse, ForwardRecord, UnitUse};
pub(crate) use unit::CapturedBuffers;
pub(crate) use unit::UnitTraining;
