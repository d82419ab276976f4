//! Every mesh against one rank.

mod llama;
mod table;
