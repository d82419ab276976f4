//! The BERT family: masked language models, classifiers of texts, and classifiers of tokens.

/// Implements [`TextEncoder`](crate::encoders::TextEncoder) of a model.
macro_rules! text_encoder {
    ($model:ty) => {
        impl $crate::encoders::TextEncoder for $model {
            type Batch = Batch;
            type Seq = Seq;

            fn vocab(config: &Self::Config) -> usize {
                config.vocab
            }

            fn token_types(config: &Self::Config) -> usize {
                config.token_types
            }

            fn padding_token(config: &Self::Config) -> u32 {
                config.padding.unwrap_or(0) as u32
            }

            fn text_input(
                ids: Tokens<(Batch, Seq)>,
                types: Tokens<(Batch, Seq)>,
                padding: Padding<(Batch, Seq)>,
            ) -> TextTokens {
                (ids, types, padding)
            }
        }
    };
}

mod classifiers;
mod config;
mod layers;
mod masked;
mod model;
mod names;

pub use classifiers::{BertClassifier, BertTokenClassifier, Dropped, Pooler};
pub use config::{BertConfig, BertDropout};
pub use layers::{Block, Embeddings, Mlp, SelfAttention};
pub use masked::{BertMaskedLm, Transform};
pub use model::{Flow, Stream, TextTokens};
pub use names::{BACKBONE, CLASSIFIER, MASKED_HEAD, POOLER};

public_dims!(model: Batch, Classes, Ffn, HeadDim, Heads, Hidden, Positions, Seq, TokenTypes, Vocab);
