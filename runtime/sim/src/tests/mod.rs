//! Tests of whole simulations.

mod faults;
pub mod fixture;
mod monotony;
mod overlap;
mod pipelines;
mod result;
