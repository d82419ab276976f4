//! CPU kernels.
//!
//! **Architecture invariant**: the result of a kernel depends neither on timing nor on the number of threads. Rows are
//! independent, or sums over rows consist of partial sums whose extent depends on the sizes alone.

mod attention;
mod backend;
mod choice_scores;
mod convolution;
mod copy;
#[cfg(target_arch = "x86_64")]
mod dots;
mod embedding;
mod float;
mod gemm;
mod head;
mod index;
mod loss;
mod map;
mod math;
mod middle_dim;
mod norm;
mod optim;
mod philox;
mod random;
mod reduce;
mod rope;
mod router;
mod routing;
mod score_key;
mod scratch;
mod simd;
mod softmax;
mod state_rounding;
mod strided_copy;
mod update;
mod workers;

pub use backend::CpuBackend;

/// False if the kernels are built without optimization, as in a debug build: hundreds of times slower.
pub const IS_OPTIMIZED: bool = !cfg!(unoptimized);

/// Items for the tests of kernels. Not part of the API.
#[doc(hidden)]
pub mod __internal {
    pub use crate::scratch::kept_elements;
    pub use crate::simd::{at_every_isa, fuses_products};
}

#[cfg(test)]
mod tests;
