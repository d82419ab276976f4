//! Every mesh against one rank.

mod gpt;
mod llama;
mod mixer;
mod table;
