//! Meshwright: annotate a model's shardings, have the compiler check them, and train it on many ranks.
#![warn(missing_docs)]

mod autograd;
pub mod backend;
pub mod checkpoint;
pub mod comm;
mod context;
pub mod data;
mod fsdp;
pub mod launch;
pub mod layout;
pub mod mesh;
pub mod nn;
pub mod optim;
mod os;
mod parity;
pub mod pipeline;
pub mod prelude;
pub mod random;
pub mod rotary;
pub mod schedule;
pub mod state_dict;
pub mod tensor;
pub mod testing;
pub mod trace;
pub mod train;

pub use os::exit_code;
pub use os::{finish_stdout, ignore_file_size_signal, print_text, read_text};
pub use train::{Error, Result, run_on};

pub use meshwright_macros::{dims, forward, mesh_test, model};

// Compiler messages print the shortest public path of a type.
#[doc(no_inline)]
pub use prelude::*;

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;
