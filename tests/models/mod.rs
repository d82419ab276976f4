//! Models besides the examples'. The build script derives further forms from their text.

pub mod gpt;
pub mod mixer;
pub mod operations;

use meshwright::checkpoint::hf::{Gpt2Config, Gpt2Dropout};
use meshwright::nn::Sizes;
use meshwright::train::LanguageModel;

use crate::data::TokenData;

/// Sizes of a GPT-2 for `data`, with positions that no sequence reaches.
pub fn small_gpt2<M: LanguageModel<Config = Gpt2Config>>(data: &TokenData, layers: usize) -> Sizes {
    let mut sizes = M::sizes(&Gpt2Config {
        hidden: 32,
        ffn: 48,
        layers,
        heads: 4,
        vocab: data.vocab,
        positions: data.seq + 2,
        norm_eps: 1e-5,
        dropout: Gpt2Dropout::default(),
        bos: serde_json::Value::Null,
        eos: serde_json::Value::Null,
    });
    // Attention, norms and gradients far from trivial values.
    sizes.init_std = 0.2;
    sizes
}

/// The examples' Llama with a whole stream.
pub mod plain_llama {
    include!(concat!(env!("OUT_DIR"), "/plain_llama.rs"));
}

/// The examples' GPT-2 with a whole stream.
pub mod plain_gpt2 {
    include!(concat!(env!("OUT_DIR"), "/plain_gpt2.rs"));
}

/// [`gpt`] with a whole stream.
pub mod plain_gpt {
    include!(concat!(env!("OUT_DIR"), "/plain_gpt.rs"));
}

/// [`mixer`] with a whole stream.
pub mod plain_mixer {
    include!(concat!(env!("OUT_DIR"), "/plain_mixer.rs"));
}

/// The examples' Llama with pairs of layers recomputed, but for some of their results.
pub mod saving_llama {
    include!(concat!(env!("OUT_DIR"), "/saving_llama.rs"));
}

/// The examples' Llama with regions inside of regions, inputs in host memory, and units inside of layers.
pub mod nested_llama {
    include!(concat!(env!("OUT_DIR"), "/nested_llama.rs"));
}

/// [`mixer`] with everything between embedding and head recomputed.
pub mod recomputed_mixer {
    include!(concat!(env!("OUT_DIR"), "/recomputed_mixer.rs"));
}
