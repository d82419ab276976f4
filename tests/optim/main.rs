//! Every optimizer: against its formula, and on meshes against one rank.

mod average;
mod formulas;
mod groups;
mod meshes;
mod net;
