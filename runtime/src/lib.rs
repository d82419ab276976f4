//! Meshwright: annotate a model's shardings, have the compiler check them, and train it on many ranks.
//!
//! ```
//! use meshwright::prelude::*;
//!
//! dims! { Batch @ data, Seq, Hidden, Ffn }
//!
//! #[model]
//! struct Mlp {
//!     #[sharded(tp = "col")]
//!     up: Linear<Hidden, Ffn>,
//!     #[sharded(tp = "row", scatter = Seq)]
//!     down: Linear<Ffn, Hidden>,
//! }
//!
//! #[forward]
//! impl Mlp {
//!     // Each tensor-parallel rank holds a shard of the sequence.
//!     fn forward(&self, x: &Tensor<(Batch, Split<Seq, Tp>, Hidden)>) -> Tensor<(Batch, Split<Seq, Tp>, Hidden)> {
//!         self.down.forward(&self.up.forward(x).silu())
//!     }
//! }
//! ```
//!
//! If `down` were column-parallel too, or did not scatter, the program would not compile, and the error would name the
//! fix.
//!
//! | to | use |
//! |---|---|
//! | write a model | [`prelude`], [`nn`], [`tensor`] |
//! | train a language model from the command line | [`train::Trainer`], with a model of [`models`] or your own |
//! | write a training loop | [`run_on`], [`nn::build`], [`optim`] |
//! | check that the mesh does not matter | [`mesh_test`], [`testing`] |
//! | read and write data and weights | [`data`], [`checkpoint`], [`state_dict`] |
#![warn(missing_docs)]

mod parity;
pub mod testing;
pub mod train;

/// Buffers and their allocator, the interface of devices, and the kernels behind the trait
/// [`Backend`](backend::Backend).
pub mod backend {
    pub(crate) use meshwright_backend::__internal::Bytes;
    #[doc(inline)]
    pub use meshwright_backend::*;
    #[doc(inline)]
    pub use meshwright_cpu as cpu;
}

/// Collectives and messages between ranks.
pub mod comm {
    pub(crate) use meshwright_comm::__internal::CallObserver;
    #[doc(inline)]
    pub use meshwright_comm::*;
    #[doc(hidden)]
    pub use meshwright_comm::{process_launch, trace};
}

pub use meshwright_comm::process_launch as launch;

/// Timelines of each rank, for a trace viewer.
pub mod trace {
    #[doc(inline)]
    pub use meshwright_comm::trace::*;
}

/// Pipeline parallelism: a model is cut into stages, and each rank along `pp` allocates those that it computes.
pub mod pipeline {
    #[doc(hidden)]
    pub use meshwright_pipeline::schedule;
    #[doc(inline)]
    pub use meshwright_pipeline::*;
}

/// The device mesh: degrees of its axes, coordinates of ranks, process groups and local extents.
pub mod mesh {
    #[doc(inline)]
    pub use meshwright_mesh::*;
}

pub use meshwright_core::{layout, nn, optim, random, rotary, tensor};
pub use meshwright_pipeline::schedule;
pub use meshwright_store::state_dict;

/// Training data: token files, text and its tokenizers, and which tokens each step trains on.
pub mod data {
    #[doc(inline)]
    pub use meshwright_store::data::*;
    #[doc(inline)]
    pub use meshwright_tokenize::*;
}

/// Sharded checkpoints: the whole training state as safetensors with a manifest; and Hugging Face folders.
pub mod checkpoint {
    #[doc(inline)]
    pub use meshwright_store::checkpoint::*;

    /// Hugging Face folders: import and export of `config.json` and safetensors.
    pub mod hf {
        #[doc(no_inline)]
        pub use meshwright_models::{Gpt2Config, Gpt2Dropout, LlamaConfig, MixtralConfig};
        #[doc(inline)]
        pub use meshwright_store::checkpoint::hf::*;
    }
}

/// Model families that the trainer trains, and programs vary: Llama, GPT-2 and Mixtral.
pub mod models {
    #[doc(inline)]
    pub use meshwright_models::*;
}

/// Types, traits and macros for model code: `use meshwright::prelude::*;`.
pub mod prelude {
    pub use crate::train::Trainer;
    #[doc(inline)]
    pub use meshwright_models::prelude::*;
}

use meshwright_os as os;

pub use os::exit_code;
pub use os::{finish_stdout, ignore_file_size_signal, print_text, read_text};
pub use train::{Error, Result, run_on};

pub use meshwright_macros::{dims, forward, mesh_test, model};

// Compiler messages print the shortest public path of a type.
#[doc(no_inline)]
pub use prelude::*;

/// Items that macro expansions refer to. Not part of the API.
#[doc(hidden)]
pub mod __private {
    pub use crate::testing::assert_mesh_independent;
    pub use meshwright_core::__private::*;
}
