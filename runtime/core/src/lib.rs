//! The core of Meshwright: layouts as types, typed tensors, layers, sharded parameters and optimizers.

mod autograd;
mod context;
mod fsdp;
pub mod layout;
pub mod nn;
pub mod optim;
mod promise;
pub mod random;
pub mod rotary;
pub mod tensor;

#[doc(hidden)]
#[path = "internal.rs"]
pub mod __internal;
#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;
