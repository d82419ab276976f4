//! Tests of the simulated device itself: correct programs give correct results in any order, and faults are detected.

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
