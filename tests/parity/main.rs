//! Every mesh against one rank.

mod bf16;
mod gpt;
mod llama;
mod mixer;
mod sharding;
mod table;
