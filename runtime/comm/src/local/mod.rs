//! The engine `local`: ranks are threads of one process and read each other's memory.
//!
//! A collective has three stages:
//! 1. **Rendezvous** ([`rendezvous`]): every member contributes its call and lends its operand; the last one to arrive
//!    compares the calls. No member touches another's memory before that, nor after a mismatch.
//! 2. **Transfer** ([`collectives`], [`transfer`]): every member does its part of the work, directly from the owners'
//!    memory.
//! 3. **Completion** ([`participation`]): a member that has lent memory waits until all members are done with it.
//!
//! Small operands are copied into the contribution instead, which makes the third stage unnecessary. An asynchronous
//! collective goes through the same stages on a progress thread ([`progress`]). Operands in device memory go through
//! them too, with work that is submitted to a stream ([`device_stream`]).
//!
//! A message ([`mailbox`]) is copied directly into the memory of its receiver if that waits already ([`receiver`]), and
//! is kept in the mailbox otherwise.

mod collectives;
mod device_stream;
mod engine;
mod group_status;
mod mailbox;
mod member;
mod message;
mod operand;
mod participation;
mod point_to_point;
mod process_group;
mod progress;
mod receiver;
mod rendezvous;
mod shared_group;
mod stored_message;
mod transfer;

pub(super) use engine::{LocalEngine, LocalGroups};

#[cfg(all(test, loom))]
mod loom_model;
#[cfg(all(test, not(loom)))]
mod tests;
