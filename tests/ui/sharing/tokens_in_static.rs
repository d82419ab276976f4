//! Token ids that all ranks read from a static.

use meshwright::prelude::*;

dims! { Batch @ data, Seq }

static TOKENS: std::sync::OnceLock<Tokens<(Batch, Seq)>> = std::sync::OnceLock::new();

fn main() {}
