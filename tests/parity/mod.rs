//! Parity of every mesh with one rank.

mod attention;
mod bf16;
mod context;
mod context_trainer;
mod experts;
mod gpt;
mod gpt2;
mod llama;
mod mixer;
mod pipeline;
mod pipeline_gathers;
mod pipeline_unusual;
mod sharding;
mod table;
