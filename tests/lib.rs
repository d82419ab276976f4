//! Test support: runs of small models on any mesh, comparison of their results, and the models.

pub mod compare;
pub mod data;
pub mod lanes;
#[path = "models/mod.rs"]
pub mod models;
pub mod pipeline_run;
pub mod run;
pub mod step_logs;
#[cfg(test)]
mod words;
