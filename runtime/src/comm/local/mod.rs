//! The engine `local`: ranks are threads of one process and read each other's memory.
//!
//! A collective goes through these stages:
//! 1. **Meet** ([`lane`]): every member posts its call and lends its operand; the last one to arrive compares the
//!    calls. Nobody has touched another's memory before, and after a mismatch nobody does.
//! 2. **Move** ([`symmetric`], [`rooted`]): every member does its share of the work, straight from the owners' memory.
//! 3. **Part** ([`lane`]): who has lent memory waits until all members are done with it.
//!
//! Small operands are copied into the post instead, which makes the third stage unnecessary. An asynchronous collective
//! goes through the same stages on a thread of its own ([`progress`]). Operands in memory of a device go through them too,
//! with work that is queued instead of done ([`device_queue`]).
//!
//! A message ([`mailbox`]) goes straight into the memory of its receiver where that waits for it ([`reader`]), and is
//! put aside where not.

mod activity;
mod communicator;
mod device_queue;
mod group;
mod kernels;
mod lane;
mod mailbox;
mod message;
mod messages;
mod monitor;
mod operand;
mod parts;
mod progress;
mod reader;
mod rooted;
mod roster;
mod seat;
mod symmetric;
mod sync;
mod world;

pub(super) use activity::Activity;
pub(super) use group::name_ranks;
pub(super) use monitor::Monitor;
pub use world::RankComms;
pub(super) use world::World;

#[cfg(all(test, loom))]
mod loom_model;
#[cfg(all(test, not(loom)))]
mod tests;
