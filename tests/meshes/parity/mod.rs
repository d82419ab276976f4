//! Parity of every mesh with one rank.

mod attention;
mod bf16;
mod context;
mod context_attention;
mod context_tokens;
mod context_trainer;
mod documents;
mod every_mesh;
mod experts;
mod gpt;
mod gpt2;
mod heads;
mod llama;
mod mixer;
mod moe;
mod pipeline;
mod pipeline_dropout;
mod pipeline_ends;
mod pipeline_gathers;
mod pipeline_inputs;
mod pipeline_refusals;
mod pipeline_unusual;
mod reductions;
mod repeated;
mod sharding;
mod table;
