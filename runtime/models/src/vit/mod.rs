//! The ViT family.

mod config;
mod model;
mod names;
mod patches;

pub use config::VitConfig;
pub use model::{Block, Classifier, Embeddings, Images, Mlp, SelfAttention, Stream, Vit};
pub use names::tensor_names;
pub use patches::cut_patches;

public_dims!(model: Batch, Classes, Ffn, HeadDim, Heads, Hidden, One, Patches, Pixels, Positions);
