//! The operations of a GPU, one file per family: each checks its operands, chooses a grid and launches kernels.

mod attention;
pub mod combine;
mod convolution;
mod copy;
mod embedding;
mod head;
mod index;
mod launch;
mod loss;
pub mod map;
mod matmul;
mod middle_dim;
mod norm;
mod optim;
mod partials;
mod random;
mod reduce;
mod rope;
mod router;
mod routing;
pub mod row_parts;
mod rows;
mod softmax;
mod sort;
mod state_rounding;
mod strided;
mod strided_copy;
