//! Every optimizer: against its formula, and on meshes against one rank.

mod average;
mod custom;
mod formulas;
mod groups;
mod meshes;
mod net;
mod shards;
