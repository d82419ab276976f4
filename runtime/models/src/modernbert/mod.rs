//! The ModernBERT family: masked language models, classifiers of texts, and classifiers of tokens.

/// Implements [`TextEncoder`](crate::encoders::TextEncoder) of a model.
macro_rules! text_encoder {
    ($model:ty) => {
        impl $crate::encoders::TextEncoder for $model {
            type Batch = Batch;
            type Seq = Seq;

            fn vocab(config: &Self::Config) -> usize {
                config.vocab
            }

            fn token_types(_: &Self::Config) -> usize {
                1
            }

            fn padding_token(config: &Self::Config) -> u32 {
                config.padding.unwrap_or(0) as u32
            }

            fn text_input(
                ids: Tokens<(Batch, Seq)>,
                _: Tokens<(Batch, Seq)>,
                padding: Padding<(Batch, Seq)>,
            ) -> TextTokens {
                (ids, padding)
            }
        }
    };
}

mod classifiers;
mod config;
mod keys;
mod layers;
mod masked;
mod model;
mod names;
mod rope;

pub use classifiers::{ModernBertClassifier, ModernBertTokenClassifier, PooledHead};
pub use config::{ModernBertConfig, Pooling};
pub use layers::{Block, Embeddings, FirstBlock, LaterBlock, Mlp, PredictionHead, SelfAttention};
pub use masked::ModernBertMaskedLm;
pub use model::{Flow, Stream, TextTokens};
pub use names::{BACKBONE, CLASSIFIER, DECODER, HEAD, POOLED_HEAD};

public_dims!(model: Batch, Classes, Ffn, HeadDim, Heads, Hidden, Seq, Vocab);
