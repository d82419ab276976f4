//! Optimisers over the units' flat buffers.

mod adamw;

pub use adamw::{AdamW, AdamWOptions, Moments};
