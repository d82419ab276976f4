//! Collectives over device memory and over NCCL, and the programs of the crate.
//!
//! Tests that set environment variables or load stubs of the vendor's libraries, which a process cannot undo, are
//! programs of their own beside this one.

mod device_collectives;
#[cfg(feature = "cuda")]
mod nccl;
mod programs;
