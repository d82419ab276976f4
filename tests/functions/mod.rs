//! User-defined functions: gradients on every mesh, and functions that are refused.

mod along;
mod elementwise;
mod halves;
mod layer;
mod refusals;
