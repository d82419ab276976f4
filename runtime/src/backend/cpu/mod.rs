//! Kernels for the host processor.
//!
//! **Architecture invariant**: a kernel's result does not depend on timing, and, with the exception of nothing but
//! the matrix products' own guarantee, not on the number of threads either.

mod attention;
mod backend;
mod elements;
mod embedding;
mod gemm;
mod map;
mod map_backward;
mod math;
mod norm;
mod optim;
mod random;
mod reduce;
mod rope;
mod scratch;
mod simd;
mod softmax;
mod workers;

pub use backend::CpuBackend;

#[cfg(test)]
mod tests;
