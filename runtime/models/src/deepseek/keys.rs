//! Keys of the heads of a DeepSeek-V3, and keys of published files that change nothing.

use meshwright_store::checkpoint::hf::{HfKeys, KeyResult};

/// The fields of a configuration that are sizes of its heads.
pub(super) struct HeadFields<'a> {
    pub hidden: usize,
    pub heads: usize,
    pub query_latent: &'a mut Option<usize>,
    pub latent: &'a mut usize,
    pub plain_dim: &'a mut usize,
    pub rotated_dim: &'a mut usize,
    pub value_dim: &'a mut usize,
}

impl HeadFields<'_> {
    /// Names the sizes of heads. In a new model, values are `hidden / heads` wide, and the other sizes have the ratios
    /// of the published model.
    ///
    /// # Errors
    /// Sizes that do not fit together.
    pub(super) fn keys(self, keys: &mut HfKeys<'_>) -> KeyResult {
        let (is_new, heads) = (keys.is_new(), self.heads);
        let width = (self.hidden / heads.max(1)).max(1);
        let size = |of_new: usize, of_file: usize| if is_new { of_new } else { of_file };
        keys.write("num_key_value_heads", heads);
        let kv_heads = keys.settings().map(|settings| settings.count("num_key_value_heads"));
        let kv_heads = kv_heads.transpose()?.flatten();
        keys.require(kv_heads.is_none_or(|kv_heads| kv_heads == heads), || {
            format!(
                "num_key_value_heads is {}, but latent attention has one key for each of num_attention_heads {heads}",
                kv_heads.unwrap_or(heads)
            )
        })?;
        keys.optional_count("q_lora_rank", self.query_latent, Some(size(12 * width, 1536)))?;
        keys.count("kv_lora_rank", self.latent, size(4 * width, 512))?;
        keys.count("qk_nope_head_dim", self.plain_dim, size(width, 128))?;
        let rotated = size((width / 2).next_multiple_of(2).max(2), 64);
        keys.count("qk_rope_head_dim", self.rotated_dim, rotated)?;
        keys.count("v_head_dim", self.value_dim, size(width, 128))?;
        let (plain, rotated) = (*self.plain_dim, *self.rotated_dim);
        keys.require(rotated.is_multiple_of(2), || {
            format!("qk_rope_head_dim {rotated} is odd; rotary positions need an even width")
        })?;
        // Sizes that follow from others.
        keys.list(&["head_dim", "qk_head_dim"]);
        for (key, expected) in [("head_dim", rotated), ("qk_head_dim", plain + rotated)] {
            let found = keys.settings().map(|settings| settings.count(key)).transpose()?.flatten();
            keys.require(found.is_none_or(|found| found == expected), || {
                format!(
                    "{key} is {}, but {expected} follows from qk_nope_head_dim {plain} and qk_rope_head_dim {rotated}",
                    found.unwrap_or(expected)
                )
            })?;
        }
        Ok(())
    }
}

/// Names the number of layers that predict further tokens. Their weights are not exported.
///
/// # Errors
/// A value that is not a small number.
pub(super) fn further_layers(keys: &mut HfKeys<'_>, layers: &mut usize) -> KeyResult {
    const KEY: &str = "num_nextn_predict_layers";
    const MOST: u64 = 64;
    keys.list(&[KEY]);
    keys.write(KEY, 0);
    if let Some(value) = keys.settings().and_then(|settings| settings.get(KEY)) {
        let count = value.as_u64().filter(|count| *count <= MOST).ok_or_else(|| {
            format!("{KEY} must be a whole number of at most {MOST}, not {value}")
        })?;
        *layers = count as usize;
    }
    Ok(())
}

/// Names the keys of published files that have to have the usual values, or change nothing.
///
/// # Errors
/// Another way to choose experts.
pub(super) fn published_keys(keys: &mut HfKeys<'_>) -> KeyResult {
    // Code of the same model, losses and slices of its training, and modules that predict further tokens.
    keys.ignore(&[
        "auto_map",
        "aux_loss_alpha",
        "seq_aux",
        "ep_size",
        "pretraining_tp",
        "output_router_logits",
        "num_mtp_layers",
    ]);
    keys.list(&["scoring_func", "topk_method", "moe_layer_freq"]);
    let Some(settings) = keys.settings() else { return Ok(()) };
    settings.expect_text("scoring_func", &["sigmoid"])?;
    settings.expect_text("topk_method", &["noaux_tc"])?;
    let step = settings.count("moe_layer_freq")?.unwrap_or(1);
    keys.require(step == 1, || {
        format!("moe_layer_freq is {step}; only models with a mixture in each later layer (1) are supported")
    })
}
