//! Test models, and variants that the build script derives from the source text of models.

pub mod attention;
pub mod context;
pub mod context_encoder;
pub mod convolutional;
pub mod frozen;
pub mod gated;
pub mod gpt;
pub mod heads;
pub mod kinds;
pub mod mixer;
pub mod modulated;
pub mod moe;
pub mod operations;
pub mod reductions;
pub mod repeated;
pub mod shapes;
pub mod staged;
pub mod tailored;
pub mod token_mlp;
pub mod variety;

use meshwright::checkpoint::hf::{Gpt2Config, Gpt2Dropout};
use meshwright::nn::Sizes;
use meshwright::tensor::Init;
use meshwright::train::LanguageModel;

use crate::data::TokenData;

/// Returns sizes of a GPT-2 for `data`, with more positions than any sequence uses.
pub fn small_gpt2<M: LanguageModel<Config = Gpt2Config>>(data: &TokenData, layers: usize) -> Sizes {
    // Makes the gradients of its branches nontrivial: GPT-2 itself starts their last layers with smaller values.
    let ends = ["attn.o", "mlp.down"];
    let sizes = small_sizes::<M>(data, layers);
    ends.into_iter().fold(sizes, |sizes, field| sizes.with_init(field, Init::Normal(0.2)))
}

/// Returns sizes of a model with the configuration of GPT-2 for `data`, with more positions than any sequence uses.
pub fn small_sizes<M: LanguageModel<Config = Gpt2Config>>(
    data: &TokenData,
    layers: usize,
) -> Sizes {
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
    // Makes attention, norms and gradients nontrivial.
    sizes.init_std = 0.2;
    sizes
}

/// The Llama with a whole residual stream.
pub mod plain_llama {
    use meshwright::models::DecoderConfig;

    include!(concat!(env!("OUT_DIR"), "/plain_llama.rs"));
}

/// The GPT-2 with a whole residual stream.
pub mod plain_gpt2 {
    use meshwright::models::gpt2::{Gpt2Config, Gpt2Dropout, HF_NAMES};

    include!(concat!(env!("OUT_DIR"), "/plain_gpt2.rs"));
}

/// [`gpt`] with a whole residual stream.
pub mod plain_gpt {
    include!(concat!(env!("OUT_DIR"), "/plain_gpt.rs"));
}

/// [`mixer`] with a whole residual stream.
pub mod plain_mixer {
    include!(concat!(env!("OUT_DIR"), "/plain_mixer.rs"));
}

/// [`convolutional`] with a whole residual stream.
pub mod plain_convolutional {
    include!(concat!(env!("OUT_DIR"), "/plain_convolutional.rs"));
}

/// [`convolutional`] with a sequence that is distributed over cp.
pub mod distributed_convolutional {
    include!(concat!(env!("OUT_DIR"), "/distributed_convolutional.rs"));
}

/// [`distributed_convolutional`] with recomputed layers.
pub mod recomputed_convolutional {
    include!(concat!(env!("OUT_DIR"), "/recomputed_convolutional.rs"));
}

/// The Llama with segments of two layers, and some results saved.
pub mod saving_llama {
    use meshwright::models::DecoderConfig;

    include!(concat!(env!("OUT_DIR"), "/saving_llama.rs"));
}

/// The Llama with nested segments, offloaded inputs, and FSDP units within layers.
pub mod nested_llama {
    use meshwright::models::DecoderConfig;

    include!(concat!(env!("OUT_DIR"), "/nested_llama.rs"));
}

/// [`frozen`] without frozen fields.
pub mod thawed {
    include!(concat!(env!("OUT_DIR"), "/thawed.rs"));
}

/// [`mixer`] with one segment between embedding and head.
pub mod recomputed_mixer {
    include!(concat!(env!("OUT_DIR"), "/recomputed_mixer.rs"));
}
