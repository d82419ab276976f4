//! Training on meshes of CPU ranks, against one rank.
//!
//! A program of its own, because the compiler checks one program on one core.

mod cookbook;
mod documents;
mod dry_run;
mod experts;
mod known_bugs;
mod mixture;
mod optim;
mod parity;
mod preflight;
mod promise;
mod seq2seq_tasks;
mod tasks;
mod text_tasks;
mod validation;
