//! Names of the tensors of a ViT in its Hugging Face folders.

use meshwright::prelude::HfName;

use super::VitConfig;

/// Returns the parameters of a ViT and the tensors that hold them. The weight of the patches is stored as that of a
/// convolution, and class token and positions with dims of size 1 before theirs.
pub fn tensor_names(config: &VitConfig) -> Vec<HfName> {
    let VitConfig { hidden, patch_size, channels, .. } = *config;
    let shapes: [&[usize]; 3] = [
        &[hidden, channels, patch_size, patch_size],
        &[1, 1, hidden],
        &[1, config.positions(), hidden],
    ];
    let embeddings = EMBEDDINGS.iter().zip(shapes).map(|(name, shape)| name.shaped(shape));
    embeddings.chain(OTHERS.iter().copied()).collect()
}

/// Entries whose tensors have more dims than the parameters.
const EMBEDDINGS: [HfName; 3] = [
    HfName::transposed("embed.patches.weight", "vit.embeddings.patch_embeddings.projection.weight"),
    HfName::same("embed.cls", "vit.embeddings.cls_token"),
    HfName::same("embed.positions", "vit.embeddings.position_embeddings"),
];

/// The other entries.
const OTHERS: &[HfName] = &[
    HfName::same("embed.patches_bias.bias", "vit.embeddings.patch_embeddings.projection.bias"),
    HfName::same("blocks.*.attn_norm.weight", "vit.encoder.layer.*.layernorm_before.weight"),
    HfName::same("blocks.*.attn_norm.bias", "vit.encoder.layer.*.layernorm_before.bias"),
    HfName::transposed(
        "blocks.*.attn.q.weight",
        "vit.encoder.layer.*.attention.attention.query.weight",
    ),
    HfName::same("blocks.*.attn.q.bias", "vit.encoder.layer.*.attention.attention.query.bias"),
    HfName::transposed(
        "blocks.*.attn.k.weight",
        "vit.encoder.layer.*.attention.attention.key.weight",
    ),
    HfName::same("blocks.*.attn.k.bias", "vit.encoder.layer.*.attention.attention.key.bias"),
    HfName::transposed(
        "blocks.*.attn.v.weight",
        "vit.encoder.layer.*.attention.attention.value.weight",
    ),
    HfName::same("blocks.*.attn.v.bias", "vit.encoder.layer.*.attention.attention.value.bias"),
    HfName::transposed(
        "blocks.*.attn.o.weight",
        "vit.encoder.layer.*.attention.output.dense.weight",
    ),
    HfName::same("blocks.*.attn.o_bias.bias", "vit.encoder.layer.*.attention.output.dense.bias"),
    HfName::same("blocks.*.mlp_norm.weight", "vit.encoder.layer.*.layernorm_after.weight"),
    HfName::same("blocks.*.mlp_norm.bias", "vit.encoder.layer.*.layernorm_after.bias"),
    HfName::transposed("blocks.*.mlp.up.weight", "vit.encoder.layer.*.intermediate.dense.weight"),
    HfName::same("blocks.*.mlp.up_bias.bias", "vit.encoder.layer.*.intermediate.dense.bias"),
    HfName::transposed("blocks.*.mlp.down.weight", "vit.encoder.layer.*.output.dense.weight"),
    HfName::same("blocks.*.mlp.down_bias.bias", "vit.encoder.layer.*.output.dense.bias"),
    HfName::same("norm.weight", "vit.layernorm.weight"),
    HfName::same("norm.bias", "vit.layernorm.bias"),
    HfName::transposed("classifier.linear.weight", "classifier.weight"),
    HfName::same("classifier.bias.bias", "classifier.bias"),
];
