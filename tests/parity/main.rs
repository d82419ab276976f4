//! Every mesh against one rank.

mod llama;
mod mixer;
mod table;
