//! Keys of `config.json` that nothing has read: refused unless they are known to change nothing, or are accepted.

use serde_json::Value;

use super::HfSettings;

/// Keys without effect on training: how a file was made, how a model is initialized, what the outputs of `transformers`
/// are, and the defaults of generation and of heads for other tasks.
const INERT: [&str; 60] = [
    "_attn_implementation_autoset",
    "_commit_hash",
    "_name_or_path",
    "bad_words_ids",
    "begin_suppress_tokens",
    "chunk_size_feed_forward",
    "cls_token_id",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "id2label",
    "initializer_range",
    "label2id",
    "language",
    "length_penalty",
    "license",
    "mask_token_id",
    "max_length",
    "max_new_tokens",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "prefix",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unk_token_id",
    "use_bfloat16",
    "use_cache",
    "use_mems_train",
    "xla_device",
];

/// Most characters of a value in a message.
const MAX_VALUE: usize = 80;

/// Checks the keys that nothing has read, except for `accepted`. Returns a warning about keys that switch
/// something off that is not known.
///
/// # Errors
/// All unknown keys with their values, and an accepted key that the file does not have, or that is read.
pub fn check_unread(
    settings: &HfSettings<'_>,
    accepted: &[String],
) -> Result<Option<String>, String> {
    let mut unread = settings.unread();
    for key in accepted {
        if !settings.has(key) {
            return Err(format!("there is no key \"{key}\", which --accept-keys names"));
        }
        if !unread.iter().any(|(path, _)| path == key) {
            return Err(format!(
                "\"{key}\", which --accept-keys names, is read and cannot be left out"
            ));
        }
    }
    unread.retain(|(path, value)| {
        // A part of a model has a configuration of the same kind.
        let key = path.strip_prefix("text_config.").unwrap_or(path);
        let is_inert = INERT.binary_search(&key).is_ok();
        !is_inert && !is_empty(value) && !accepted.contains(path)
    });
    let (off, unknown): (Vec<_>, Vec<_>) = unread.into_iter().partition(|(_, value)| is_off(value));
    if !unknown.is_empty() {
        let paths = unknown.iter().map(|(path, _)| path).chain(accepted);
        let paths: Vec<&str> = paths.map(String::as_str).collect();
        let (change, them) = plural(&unknown, ["it changes", "they change"], ["it", "them"]);
        return Err(format!(
            "{}: this program does not know what {change}; `--accept-keys {}` runs without {them}",
            list(&unknown),
            paths.join(",")
        ));
    }
    let (take, them) = plural(&off, ["takes it for", "takes them for"], ["it", "them"]);
    Ok((!off.is_empty()).then(|| {
        format!("{}: this program does not know {them}, and {take} switched off", list(&off))
    }))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(keys) => keys.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn is_off(value: &Value) -> bool {
    *value == Value::Bool(false) || value.as_f64() == Some(0.0)
}

fn plural<'a>(
    keys: &[(String, &Value)],
    first: [&'a str; 2],
    second: [&'a str; 2],
) -> (&'a str, &'a str) {
    let index = usize::from(keys.len() > 1);
    (first[index], second[index])
}

fn list(keys: &[(String, &Value)]) -> String {
    let describe = |(path, value): &(String, &Value)| {
        let text = value.to_string();
        let cut = text.char_indices().nth(MAX_VALUE).map(|(at, _)| format!("{}..", &text[..at]));
        format!("\"{path}\" is {}", cut.unwrap_or(text))
    };
    keys.iter().map(describe).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Checks a file whose `size` and `rope.theta` are read.
    fn check(file: &Value, accepted: &[&str]) -> Result<Option<String>, String> {
        let settings = HfSettings::new(file.as_object().unwrap());
        settings.count("size").unwrap();
        if let Some(rope) = settings.object("rope").unwrap() {
            rope.number("theta").unwrap();
        }
        let accepted: Vec<String> = accepted.iter().map(|key| (*key).to_owned()).collect();
        check_unread(&settings, &accepted)
    }

    #[test]
    fn inert_keys_are_sorted() {
        assert!(INERT.is_sorted(), "{INERT:?}");
    }

    #[test]
    fn unknown_keys_are_refused_together() {
        let file = json!({ "size": 3, "use_cache": true, "scale": 8.0, "rope": { "theta": 1, "kind": "x" } });
        assert_eq!(
            check(&file, &[]).unwrap_err(),
            "\"rope.kind\" is \"x\", \"scale\" is 8.0: this program does not know what they change; \
             `--accept-keys rope.kind,scale` runs without them"
        );
        assert_eq!(
            check(&file, &["scale"]).unwrap_err(),
            "\"rope.kind\" is \"x\": this program does not know what it changes; `--accept-keys rope.kind,scale` \
             runs without it"
        );
        assert_eq!(check(&file, &["rope.kind", "scale"]), Ok(None));
        let long = check(&json!({ "code": { "a": "x".repeat(200) } }), &[]).unwrap_err();
        assert!(long.len() < 250 && long.contains("xx..: this program"), "{long}");
    }

    #[test]
    fn only_existing_keys_are_accepted() {
        let file = json!({ "size": 3, "rope": { "theta": 1 } });
        let refused = |key| check(&file, &[key]).unwrap_err();
        assert_eq!(refused("scale"), "there is no key \"scale\", which --accept-keys names");
        assert_eq!(refused("rope.x"), "there is no key \"rope.x\", which --accept-keys names");
        for key in ["size", "rope.theta"] {
            let reason =
                format!("\"{key}\", which --accept-keys names, is read and cannot be left out");
            assert_eq!(refused(key), reason);
        }
    }

    #[test]
    fn keys_that_switch_off_are_warned_about() {
        let file = json!({ "a": false, "b": 0, "c": 0.0, "d": null, "e": "", "f": [], "g": {} });
        assert_eq!(
            check(&file, &[]).unwrap().unwrap(),
            "\"a\" is false, \"b\" is 0, \"c\" is 0.0: this program does not know them, and takes them for switched off"
        );
        assert_eq!(check(&json!({ "d": null, "e": "" }), &[]), Ok(None));
    }
}
