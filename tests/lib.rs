//! What the tests share: runs of small models on any mesh, comparison of their numbers, and the models.

pub mod compare;
pub mod data;
pub mod lanes;
#[path = "models/mod.rs"]
pub mod models;
pub mod run;
