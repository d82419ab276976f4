//! Model families: each has a folder with its model, the keys of its `config.json`, and the names of its tensors.
//!
//! A program trains one with `Trainer::<meshwright::models::Llama>`, and a variant begins as a copy of its `model.rs`.

// So that models read here as they do in a program of their own.
extern crate self as meshwright;

#[macro_use]
mod public_dims;
pub mod bert;
pub mod decoder;
pub mod decoder_keys;
pub mod deepseek;
pub mod encoders;
pub mod expert_keys;
pub mod gemma;
pub mod gpt2;
pub mod gpt_oss;
pub mod llama;
pub mod mixtral;
pub mod modernbert;
pub mod moe_decoder;
pub mod neox;
pub mod olmo2;
pub mod prelude;
mod stack_positions;
pub mod t5;
mod token_keys;
pub mod vit;
pub mod whisper;

pub use bert::{BertClassifier, BertConfig, BertMaskedLm, BertTokenClassifier};
pub use decoder::{Decoder, DecoderConfig};
pub use deepseek::{Deepseek, DeepseekConfig};
pub use gemma::{Gemma, GemmaConfig, GemmaKind};
pub use gpt_oss::{GptOss, GptOssConfig};
pub use gpt2::{Gpt2, Gpt2Config, Gpt2Dropout};
pub use llama::{Llama, LlamaConfig};
pub use mixtral::{Mixtral, MixtralConfig};
pub use modernbert::{
    ModernBertClassifier, ModernBertConfig, ModernBertMaskedLm, ModernBertTokenClassifier,
};
pub use moe_decoder::{MoeDecoder, MoeDecoderConfig};
pub use neox::{GptNeox, GptNeoxConfig};
pub use olmo2::{Olmo2, Olmo2Config};
pub use t5::{T5, T5Config};
pub use vit::{Vit, VitConfig};
pub use whisper::{Whisper, WhisperConfig};

meshwright_store::families! {
    /// All families of the library.
    pub struct Families: Llama, Gpt2, Gemma, Olmo2, GptNeox, Mixtral, MoeDecoder, Deepseek, GptOss;
}

#[cfg(test)]
mod tests;
