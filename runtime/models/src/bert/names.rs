//! Names of the tensors of a BERT in its Hugging Face folders.

use meshwright::prelude::HfName;

/// The encoder.
pub const BACKBONE: &[HfName] = &[
    HfName::same("embed.word.weight", "bert.embeddings.word_embeddings.weight"),
    HfName::same("embed.token_type.weight", "bert.embeddings.token_type_embeddings.weight"),
    HfName::same("embed.position.weight", "bert.embeddings.position_embeddings.weight"),
    HfName::same("embed.norm.weight", "bert.embeddings.LayerNorm.weight"),
    HfName::same("embed.norm.bias", "bert.embeddings.LayerNorm.bias"),
    HfName::transposed(
        "blocks.*.attn.q.weight",
        "bert.encoder.layer.*.attention.self.query.weight",
    ),
    HfName::same("blocks.*.attn.q.bias", "bert.encoder.layer.*.attention.self.query.bias"),
    HfName::transposed("blocks.*.attn.k.weight", "bert.encoder.layer.*.attention.self.key.weight"),
    HfName::same("blocks.*.attn.k.bias", "bert.encoder.layer.*.attention.self.key.bias"),
    HfName::transposed(
        "blocks.*.attn.v.weight",
        "bert.encoder.layer.*.attention.self.value.weight",
    ),
    HfName::same("blocks.*.attn.v.bias", "bert.encoder.layer.*.attention.self.value.bias"),
    HfName::transposed(
        "blocks.*.attn.o.weight",
        "bert.encoder.layer.*.attention.output.dense.weight",
    ),
    HfName::same("blocks.*.attn.o.bias", "bert.encoder.layer.*.attention.output.dense.bias"),
    HfName::same(
        "blocks.*.attn_norm.weight",
        "bert.encoder.layer.*.attention.output.LayerNorm.weight",
    ),
    HfName::same("blocks.*.attn_norm.bias", "bert.encoder.layer.*.attention.output.LayerNorm.bias"),
    HfName::transposed("blocks.*.mlp.up.weight", "bert.encoder.layer.*.intermediate.dense.weight"),
    HfName::same("blocks.*.mlp.up.bias", "bert.encoder.layer.*.intermediate.dense.bias"),
    HfName::transposed("blocks.*.mlp.down.weight", "bert.encoder.layer.*.output.dense.weight"),
    HfName::same("blocks.*.mlp.down.bias", "bert.encoder.layer.*.output.dense.bias"),
    HfName::same("blocks.*.mlp_norm.weight", "bert.encoder.layer.*.output.LayerNorm.weight"),
    HfName::same("blocks.*.mlp_norm.bias", "bert.encoder.layer.*.output.LayerNorm.bias"),
];

/// The head of a masked language model, whose weight is the embedding.
pub const MASKED_HEAD: &[HfName] = &[
    HfName::transposed("transform.dense.weight", "cls.predictions.transform.dense.weight"),
    HfName::same("transform.dense.bias", "cls.predictions.transform.dense.bias"),
    HfName::same("transform.norm.weight", "cls.predictions.transform.LayerNorm.weight"),
    HfName::same("transform.norm.bias", "cls.predictions.transform.LayerNorm.bias"),
    HfName::same("head.bias", "cls.predictions.bias"),
];

/// The layer of a classifier of texts on their first token.
pub const POOLER: &[HfName] = &[
    HfName::transposed("pooler.dense.weight", "bert.pooler.dense.weight"),
    HfName::same("pooler.dense.bias", "bert.pooler.dense.bias"),
];

/// The head of a classifier.
pub const CLASSIFIER: &[HfName] = &[
    HfName::same("classifier.weight", "classifier.weight"),
    HfName::same("classifier.bias", "classifier.bias"),
];
