//! Kernels for the host processor.
//!
//! **Architecture invariant**: a kernel's result depends neither on timing nor on the number of threads. Rows are
//! independent, or sums over rows are made of partial sums whose extent the sizes alone decide.

mod attention;
mod backend;
#[cfg(target_arch = "x86_64")]
mod dots;
mod elements;
mod embedding;
mod float;
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
mod update;
mod workers;

pub use backend::CpuBackend;

#[cfg(test)]
mod tests;
