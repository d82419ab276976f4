//! Collectives over device memory and over NCCL, training loops of programs, the programs of the crate, and schedules
//! of PyTorch.
//!
//! Tests that change their process permanently, by environment variables or stubs of the vendor's libraries, are
//! programs of their own.

mod device_collectives;
#[cfg(feature = "cuda")]
mod nccl;
mod own_loop;
mod programs;
mod pytorch_schedules;
