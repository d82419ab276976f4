//! Models besides the examples'.

/// The examples' Llama with a whole residual stream: its text without the splits of the sequence.
pub mod plain_llama {
    include!(concat!(env!("OUT_DIR"), "/plain_llama.rs"));
}
