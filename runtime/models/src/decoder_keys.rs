//! Keys that decoders with rotary positions share, such as Llama and Mixtral, also for families of programs.

use std::borrow::Cow;

use serde_json::Value;

use meshwright_core::rotary::RopeParameters;
use meshwright_store::checkpoint::hf::{DerivedTensor, HfKeys, KeyResult, TensorRole};
use meshwright_store::family::SizeFlag;

/// The sizes of an attention in a file that does not state them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct AttentionDefaults {
    /// Query heads; `None` refuses the file.
    pub heads: Option<usize>,
    /// Key and value heads; `None` is as many as query heads.
    pub kv_heads: Option<usize>,
    /// Width of a head; `None` is `hidden_size / num_attention_heads`.
    pub head_dim: Option<usize>,
}

/// The fields of a configuration that are sizes of its attention.
#[derive(Debug)]
pub struct AttentionFields<'a> {
    /// `num_attention_heads`.
    pub heads: &'a mut usize,
    /// `num_key_value_heads`.
    pub kv_heads: &'a mut usize,
    /// `head_dim`.
    pub head_dim: &'a mut usize,
}

impl AttentionFields<'_> {
    /// Names the sizes of an attention beside a stream of `hidden` elements. In a new model, heads are `hidden / heads`
    /// wide.
    ///
    /// # Errors
    /// Sizes that are missing or do not fit together, and heads of odd width.
    pub fn keys(
        self,
        keys: &mut HfKeys<'_>,
        hidden: usize,
        absent: AttentionDefaults,
    ) -> KeyResult {
        const HEADS: &str = "num_attention_heads";
        match absent.heads {
            Some(default) => keys.size_or(SizeFlag::HEADS, HEADS, self.heads, default)?,
            None => keys.size(SizeFlag::HEADS, HEADS, self.heads)?,
        }
        let heads = *self.heads;
        // A `null` stands for as many as query heads.
        let is_absent = |key| keys.settings().is_some_and(|settings| !settings.has(key));
        let of_file = absent.kv_heads.filter(|_| is_absent("num_key_value_heads"));
        let width_of_file = absent.head_dim.filter(|_| is_absent("head_dim"));
        keys.size_or(
            SizeFlag::KV_HEADS,
            "num_key_value_heads",
            self.kv_heads,
            of_file.unwrap_or(heads),
        )?;
        let kv_heads = *self.kv_heads;
        keys.require(heads.is_multiple_of(kv_heads), || {
            format!("num_key_value_heads {kv_heads} does not divide num_attention_heads {heads}")
        })?;
        let is_given = keys.settings().is_some_and(|settings| settings.get("head_dim").is_some());
        let is_derived = !is_given && width_of_file.is_none();
        keys.require(!is_derived || keys.is_new() || hidden.is_multiple_of(heads), || {
            format!("num_attention_heads {heads} does not divide hidden_size {hidden}")
        })?;
        let width = width_of_file.unwrap_or(hidden / heads.max(1));
        keys.count("head_dim", self.head_dim, width)?;
        let head_dim = *self.head_dim;
        keys.require(head_dim.is_multiple_of(2), || {
            let problem = if keys.is_new() {
                format!("--heads: {heads} makes heads {head_dim} wide")
            } else {
                format!("head_dim {head_dim} is odd")
            };
            format!("{problem}; rotary positions need an even width")
        })
    }
}

/// Returns the role of a tensor of a decoder with the names of a Llama. Some folders also store the rotary frequencies,
/// and the head that is tied to the embedding; the tensors of a bare model omit the prefix `model.`.
pub fn tensor_role<'a>(
    stored: &'a str,
    tied: bool,
    rope: &RopeParameters,
    head_dim: usize,
) -> TensorRole<'a> {
    if stored.ends_with("rotary_emb.inv_freq") {
        return TensorRole::Derived(DerivedTensor::RotaryFrequencies(rope.clone(), head_dim));
    }
    if tied && stored == "lm_head.weight" {
        return TensorRole::Derived(DerivedTensor::TiedTo("model.embed_tokens.weight"));
    }
    TensorRole::Model(if is_bare_name(stored) {
        Cow::Owned(format!("model.{stored}"))
    } else {
        Cow::Borrowed(stored)
    })
}

/// Returns true for names of tensors of a decoder, also for those without a head.
pub fn is_tensor_name(stored: &str) -> bool {
    let part = stored.strip_prefix("model.").unwrap_or(stored);
    is_bare_name(part) || part.starts_with("rotary_emb.") || stored.starts_with("lm_head.")
}

/// Returns true for names of tensors of a decoder without a head.
fn is_bare_name(stored: &str) -> bool {
    ["embed_tokens.", "layers.", "norm."].iter().any(|part| stored.starts_with(part))
}

/// Refuses biases, which these keys switch on.
///
/// # Errors
/// A key that is true.
pub fn no_biases(keys: &mut HfKeys<'_>, biases: &[&str]) -> KeyResult {
    keys.list(biases);
    for key in biases {
        let value = keys.settings().map(|settings| settings.switch(key)).transpose()?;
        keys.require(value.flatten() != Some(true), || {
            format!("{key} is true; only models without biases are supported")
        })?;
    }
    Ok(())
}

/// Refuses rotary embeddings of a part of each head in a family whose class in `transformers` does not apply
/// `partial_rotary_factor`.
///
/// # Errors
/// Another factor than 1.
pub fn no_partial_rotation(keys: &HfKeys<'_>, rope: &RopeParameters) -> KeyResult {
    let factor = rope.partial_rotary_factor;
    keys.require(factor == 1.0, || {
        format!(
            "partial_rotary_factor is {factor}; transformers rotates whole heads of this family whatever it is: leave \
             it out"
        )
    })
}

/// Refuses a window of all layers.
///
/// # Errors
/// A `sliding_window`.
pub fn no_window(keys: &mut HfKeys<'_>) -> KeyResult {
    keys.list(&["sliding_window"]);
    match keys.settings().and_then(|settings| settings.get("sliding_window")) {
        Some(window) => Err(format!(
            "sliding_window is {window}; only models whose attention has no window are supported"
        )),
        None => Ok(()),
    }
}

/// Names the keys of windows of a file in which `use_sliding_window` switches them off.
///
/// # Errors
/// Values that are no whole numbers.
pub fn unused_window(keys: &mut HfKeys<'_>) -> KeyResult {
    for key in ["sliding_window", "max_window_layers"] {
        let found = keys.settings().and_then(|settings| settings.get(key));
        if let Some(value) = found.filter(|value| !value.is_u64()) {
            return Err(format!("{key} must be a whole number, or null, not {value}"));
        }
    }
    Ok(())
}

/// Refuses layers of other kinds than attention without a window.
///
/// # Errors
/// Other `layer_types`.
pub fn no_layer_types(keys: &mut HfKeys<'_>) -> KeyResult {
    keys.list(&["layer_types"]);
    match keys.settings().and_then(|settings| settings.get("layer_types")) {
        Some(Value::Array(types)) if types.iter().all(|kind| *kind == "full_attention") => Ok(()),
        Some(types) => {
            Err(format!("layer_types is {types}; only layers of \"full_attention\" are supported"))
        }
        None => Ok(()),
    }
}

/// Names `layer_types`: for each of `layers`, whether its attention slides (`sliding_attention`) or is
/// `full_attention`. A file without the key, and a new model, have the kinds of `default`.
///
/// # Errors
/// Another kind, and a list of another length.
pub fn layer_types(
    keys: &mut HfKeys<'_>,
    slides: &mut Vec<bool>,
    layers: usize,
    default: impl Fn(usize) -> bool,
) -> KeyResult {
    const KEY: &str = "layer_types";
    let kinds = |slides: &[bool]| -> Value {
        let kind = |slides: &bool| if *slides { "sliding_attention" } else { "full_attention" };
        slides.iter().map(kind).collect()
    };
    keys.list(&[KEY]);
    if !slides.is_empty() {
        keys.write(KEY, kinds(slides));
    }
    let absent = || (0..layers).map(&default).collect();
    let Some(settings) = keys.settings() else {
        if keys.is_new() {
            *slides = absent();
        }
        return Ok(());
    };
    let Some(value) = settings.get(KEY) else {
        *slides = absent();
        return Ok(());
    };
    let Value::Array(kinds) = value else {
        return Err(format!("{KEY} must be a list, not {value}"));
    };
    if kinds.len() != layers {
        return Err(format!(
            "{KEY} has {} entries, but num_hidden_layers is {layers}",
            kinds.len()
        ));
    }
    let slides_at = |(index, kind): (usize, &Value)| match kind.as_str() {
        Some("sliding_attention") => Ok(true),
        Some("full_attention") => Ok(false),
        _ => Err(format!(
            "{KEY}[{index}] is {kind}; only \"full_attention\" and \"sliding_attention\" are supported"
        )),
    };
    *slides = kinds.iter().enumerate().map(slides_at).collect::<Result<_, _>>()?;
    Ok(())
}

/// Refuses layers that slide without a window.
///
/// # Errors
/// A `sliding_window` of null beside such layers.
pub fn require_window(keys: &HfKeys<'_>, window: Option<usize>, slides: &[bool]) -> KeyResult {
    keys.require(window.is_some() || !slides.contains(&true), || {
        "sliding_window is null, but layer_types has layers of \"sliding_attention\"; give it a number of \
         positions, or make all layers \"full_attention\""
            .into()
    })
}

/// Returns the window of each layer; none if no layer has one.
pub fn windows_of(window: Option<usize>, slides: &[bool]) -> Vec<Option<usize>> {
    match window {
        Some(_) => slides.iter().map(|slides| window.filter(|_| *slides)).collect(),
        None => Vec::new(),
    }
}

/// Returns the width of a gated feed-forward beside a stream of `hidden` elements.
pub fn default_ffn(hidden: usize) -> usize {
    // 8/3 of the width gives a gated feed-forward the size of a plain one of 4 (GLU Variants Improve
    // Transformer, arXiv 2002.05202, section 3).
    (8 * hidden / 3).next_multiple_of(64)
}
