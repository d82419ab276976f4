//! Meshwright trains sharded models: annotate each field of a model with its sharding over the mesh of ranks, and have
//! the compiler check that the shardings fit together, for every mesh.
//!
//! # A model
//!
//! ```
//! use meshwright::prelude::*;
//!
//! dims! { Batch @ data, Seq, Hidden, Ffn }
//!
//! // The residual stream: each tensor-parallel rank holds a shard of the sequence.
//! type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;
//!
//! #[model]
//! struct Mlp {
//!     // Column-parallel: each rank computes its shard of `Ffn`. One all-gather of the stream serves both.
//!     #[sharded(tp = "col")]
//!     gate: Linear<Hidden, Ffn>,
//!     #[sharded(tp = "col")]
//!     up: Linear<Hidden, Ffn>,
//!     // Row-parallel: each rank reads its shard; a reduce-scatter splits the sum along the sequence.
//!     #[sharded(tp = "row", scatter = Seq)]
//!     down: Linear<Ffn, Hidden>,
//! }
//!
//! #[forward]
//! impl Mlp {
//!     fn forward(&self, x: &Stream) -> Stream {
//!         self.down.forward(&(self.gate.forward(x).silu() * self.up.forward(x)))
//!     }
//! }
//! ```
//!
//! # A mistake
//!
//! If `down` of a plain MLP is column-parallel, like the layer before it, the model does not compile.
//!
//! ```compile_fail
//! # use meshwright::prelude::*;
//! # dims! { Batch @ data, Seq, Hidden, Ffn }
//! #[model]
//! struct Mlp {
//!     #[sharded(tp = "col")]
//!     up: Linear<Hidden, Ffn>,
//!     #[sharded(tp = "col")]
//!     down: Linear<Ffn, Hidden>,
//! }
//!
//! #[forward]
//! impl Mlp {
//!     fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
//!         self.down.forward(&self.up.forward(x).silu())
//!     }
//! }
//! ```
//!
//! The error states what is wrong, where, and the fix:
//!
//! ```text
//! a column-parallel layer from `Ffn` to `Hidden` cannot take an activation shaped
//! `(Batch, Seq, Split<Ffn, Tp>)`
//!    |
//! 16 |         self.down.forward(&self.up.forward(x).silu())
//!    |                   ^^^^^^^ its input must end in a whole `Ffn`
//!    |
//!    = note: of two consecutive column-parallel layers, make the second one row-parallel:
//!            `#[sharded(tp = "row")]`
//! ```
//!
//! # Where to go
//!
//! | to | use |
//! |---|---|
//! | write a model | [`prelude`] for the names; [`nn::layers`] and [`Tensor`] for layers and operations |
//! | train a language model from the command line | [`train::Trainer`], with a model of [`models`] or your own |
//! | write a training loop | [`run_on`], [`nn::build`], [`Loss`], [`optim`], [`train::LoopCheckpoints`] |
//! | check that the mesh does not matter | [`mesh_test`], [`testing`] |
//! | write a layer, or a function with a backward of its own | [`nn::Build`], [`tensor::function`] |
//! | read and write data and weights | [`data`], [`checkpoint`], [`state_dict`] |
//!
//! The guide is the folder `book` of the repository: it begins with the idea in one page, and has a page for each of
//! these.
#![warn(missing_docs)]

#[doc(hidden)]
pub mod bench;
mod parity;
pub mod tasks;
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

/// Training steps that are simulated on a described cluster, before they run.
pub mod sim {
    #[doc(inline)]
    pub use meshwright_sim::*;
}

pub use meshwright_core::{layout, nn, optim, random, rotary, tensor};
pub use meshwright_pipeline::schedule;
pub use meshwright_store::state_dict;

/// Training data: token files, text and its tokenizers, and which tokens each step trains on.
pub mod data {
    #[doc(inline)]
    pub use meshwright_store::data::*;
    /// The token ids of a step, or of some rows of it. An alias, so that errors of the compiler name the dim `Batch` of
    /// a program without its path.
    pub type Batch = meshwright_store::data::Batch;
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

/// Model families that the trainer trains, and programs vary.
pub mod models {
    #[doc(inline)]
    pub use meshwright_models::*;
}

/// Types, traits and macros for model code: `use meshwright::prelude::*;`.
pub mod prelude {
    #[doc(no_inline)]
    pub use crate::nn::build;
    pub use crate::train::Trainer;
    #[doc(no_inline)]
    pub use crate::train::{Result, run_on};
    #[doc(inline)]
    pub use meshwright_models::prelude::*;
}

use meshwright_os as os;

pub use os::exit_code;
pub use os::{counted, finish_stdout, ignore_file_size_signal, open_output, print_text, read_text};
pub use train::{Error, Result, run_on};

pub use meshwright_macros::{dims, forward, mesh_test, model};
pub use meshwright_store::families;

// Compiler messages print the shortest public path of a type.
#[doc(no_inline)]
pub use prelude::*;

/// Items that macro expansions refer to. Not part of the API.
#[doc(hidden)]
pub mod __private {
    pub use crate::testing::assert_mesh_independent;
    pub use crate::train::task_entry;
    pub use meshwright_core::__private::*;
}
