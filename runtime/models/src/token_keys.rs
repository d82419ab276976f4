//! Ids of tokens that a task reads from `config.json`.

use serde_json::Value;

use meshwright_store::checkpoint::hf::{HfKeys, KeyResult};

/// Names the id of a token below `vocab`, which is `default` in a file without the key or with a `null`, and in a new
/// model.
///
/// # Errors
/// An id that the vocabulary does not have.
pub fn known_id(
    keys: &mut HfKeys<'_>,
    key: &str,
    field: &mut usize,
    vocab: usize,
    default: usize,
) -> KeyResult {
    keys.field(key, field, default, |settings| {
        let Some(value) = settings.get(key) else { return Ok(default) };
        let id = value.as_u64().and_then(|id| usize::try_from(id).ok());
        id.ok_or_else(|| format!("{key} must be the id of a token, not {value}"))
    })?;
    let id = *field;
    keys.require(id < vocab, || {
        let given = if keys.settings().is_some_and(|settings| settings.get(key).is_some()) {
            format!("{key} is {id}")
        } else {
            format!("{key} is {id} by default")
        };
        format!("{given}, but the vocabulary has {vocab} tokens, from 0 on; correct it")
    })
}

/// Names `pad_token_id` of a family whose task pads with it; see [`known_id`].
///
/// # Errors
/// As [`known_id`].
pub fn padding_id(
    keys: &mut HfKeys<'_>,
    field: &mut usize,
    vocab: usize,
    default: usize,
) -> KeyResult {
    known_id(keys, "pad_token_id", field, vocab, default)
}

/// Names `eos_token_id`, as it is in the file: the token at the end of a text, which is `default` in a file without the
/// key.
///
/// # Errors
/// As [`HfKeys::token`].
pub fn end_id(keys: &mut HfKeys<'_>, field: &mut Value, default: usize) -> KeyResult {
    const KEY: &str = "eos_token_id";
    keys.token(KEY, field)?;
    if keys.settings().is_some_and(|settings| !settings.has(KEY)) {
        *field = Value::from(default);
    }
    Ok(())
}
