//! Every optimizer: against its formula, and on meshes against one rank.

mod average;
mod bf16_state;
mod custom;
mod formulas;
mod groups;
mod meshes;
mod net;
mod shards;
