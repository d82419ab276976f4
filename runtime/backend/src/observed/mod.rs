//! Observation of the kernels that a rank launches.

mod attention;
mod backend;
mod bytes;
mod convolution;
mod device;
mod elements;
mod experts;
mod head;
mod index;
mod kernel;
mod loss;
mod matmul;
mod middle_dim;
mod optim;
mod rows;

pub use backend::ObservedBackend;
pub use kernel::{Kernel, KernelObserver, KernelOp};
