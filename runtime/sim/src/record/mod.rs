//! The log of a training step on one rank.

mod event;
mod event_list;
mod live_buffer;
mod memory;
mod step_log;

pub use event::{CallSite, CommCall, CommOpKind, Context, ContextId, EventKind, StepEvent};
pub use event_list::EventList;
pub use live_buffer::LiveBuffer;
pub use memory::MemoryPeak;
pub use meshwright_core::__internal::{Pass, RunningAction};
pub use step_log::StepLog;
