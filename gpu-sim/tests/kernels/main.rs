//! The host of kernels, by small kernels that are right, and by such that are wrong in one way.

mod barriers;
mod rig;
