//! Kernels for the host processor.
