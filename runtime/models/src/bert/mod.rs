//! The BERT family: masked language models, classifiers of texts, and classifiers of tokens.

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
