//! Stages that are cut and built on meshes with `pp`, compared with the whole model on one rank.

mod build;
mod costs;
mod cut;
pub(crate) mod fixture;
mod gradients;
mod reductions;
mod refusals;
