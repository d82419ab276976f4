//! The simulated device itself: what is right must come out right in any order, and what is wrong must be found.

mod barriers;
mod calls;
mod graphs;
mod language;
mod matmul;
mod memory;
mod ranks;
mod rig;
mod streams;
mod tensor;
