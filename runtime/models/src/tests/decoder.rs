//! Folders of the families that share the struct of a Llama.

use super::*;
use crate::decoder::ROWS;

/// A small model of a family, with what distinguishes it.
fn small(model_type: &'static str) -> DecoderConfig {
    let row = ROWS.iter().find(|row| row.model_type == model_type).unwrap();
    let of_row = DecoderConfig { row, ..config(false) };
    match model_type {
        "llama" => DecoderConfig { qkv_bias: true, output_bias: true, mlp_bias: true, ..of_row },
        "mistral" => DecoderConfig { window: Some(5), slides: vec![true], ..of_row },
        "qwen2" => DecoderConfig {
            qkv_bias: true,
            window: Some(5),
            slides: vec![false, true],
            tied: true,
            ..of_row
        },
        "qwen3" => DecoderConfig { slides: vec![false; 2], ..of_row },
        "phi3" => DecoderConfig { window: Some(6), slides: vec![true], padding: Some(9), ..of_row },
        _ => DecoderConfig {
            rotates: vec![true, false],
            slides: vec![false; 2],
            tied: true,
            rope: RopeParameters::with_theta(2e6),
            ..of_row
        },
    }
}

fn read(folder: &Path) -> DecoderConfig {
    DecoderConfig::read(folder, &[]).unwrap().config
}

/// Writes a `config.json` with some of the sizes of [`config`].
fn with_keys(model_type: &str, keys: Value) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut all = json!({ "model_type": model_type, "hidden_size": 32, "intermediate_size": 12,
        "num_hidden_layers": 4, "num_attention_heads": 32, "vocab_size": 10 });
    all.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    fs::write(dir.path().join("config.json"), all.to_string()).unwrap();
    dir
}

#[test]
fn every_family_is_imported_as_it_was_exported() {
    for row in &ROWS {
        let config = small(row.model_type);
        assert_imports(&config);
        let keys = config.to_json();
        assert_eq!(keys["model_type"], row.model_type);
        assert_eq!(keys["architectures"], json!([row.architecture]));
    }
}

/// The defaults of `transformers` for a file that states only sizes.
#[test]
fn absent_keys_have_the_defaults_of_each_family() {
    let read = |model_type: &str, keys: Value| read(with_keys(model_type, keys).path());
    let even = json!({ "head_dim": 2 });
    let mistral = read("mistral", even.clone());
    assert_eq!((mistral.kv_heads, mistral.window), (8, Some(4096)));
    assert_eq!(mistral.windows(), [Some(4096)]);
    let plain = read("mistral", json!({ "head_dim": 2, "sliding_window": null }));
    assert_eq!((plain.window, plain.windows()), (None, vec![]));
    let qwen3 = read("qwen3", json!({}));
    assert_eq!((qwen3.kv_heads, qwen3.head_dim, qwen3.window), (32, 128, None));
    let smollm3 = read("smollm3", even.clone());
    assert_eq!((smollm3.kv_heads, smollm3.tied, smollm3.rope.theta), (4, true, 2e6));
    assert_eq!(smollm3.rotates, [true, true, true, false]);
    // The default row for padding is beyond this vocabulary.
    assert_eq!(smollm3.padding, None);
    let phi3 = read("phi3", json!({ "head_dim": 2, "vocab_size": 32_064 }));
    assert_eq!((phi3.padding, phi3.norm_eps, phi3.kv_heads), (Some(32_000), 1e-5, 32));
}

#[test]
fn windows_are_those_of_the_layers() {
    let windows = |model_type: &str, keys: Value| {
        let mut all = json!({ "head_dim": 2, "use_sliding_window": true, "sliding_window": 7 });
        all.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        let dir = with_keys(model_type, all);
        let found = DecoderConfig::read(dir.path(), &[]).map_err(|error| error.to_string());
        found.map(|file| file.config.windows())
    };
    let (none, some) = (None, Some(7));
    let last_two = Ok(vec![none, none, some, some]);
    assert_eq!(windows("qwen2", json!({ "max_window_layers": 2 })), last_two);
    assert_eq!(windows("qwen3", json!({ "max_window_layers": 0 })), Ok(vec![some; 4]));
    // Those of layers precede.
    let types = ["sliding_attention", "full_attention", "full_attention", "sliding_attention"];
    let ends = Ok(vec![some, none, none, some]);
    assert_eq!(windows("qwen2", json!({ "max_window_layers": 2, "layer_types": types })), ends);
    // Layers without rotary positions slide.
    assert_eq!(windows("smollm3", json!({})), Ok(vec![none, none, none, some]));
    let off = json!({ "use_sliding_window": false, "max_window_layers": 2 });
    assert_eq!(windows("qwen2", off), Ok(vec![]));
    for (model_type, keys, reason) in [
        (
            "qwen2",
            json!({ "layer_types": types[..2] }),
            "layer_types has 2 entries, but num_hidden_layers is 4",
        ),
        (
            "qwen3",
            json!({ "layer_types": ["a", "a", "a", "a"] }),
            "layer_types[0] is \"a\"; only \"full_attention\" and \"sliding_attention\"",
        ),
        (
            "qwen3",
            json!({ "layer_types": types, "use_sliding_window": false }),
            "layer_types has \"sliding_attention\", but there is no window",
        ),
        ("qwen2", json!({ "sliding_window": 0 }), "sliding_window must be a whole number of at"),
        (
            "smollm3",
            json!({ "no_rope_layers": [1, 0] }),
            "no_rope_layers must have a 0 or a 1 for each of num_hidden_layers 4, not [1,0]",
        ),
        (
            "smollm3",
            json!({ "no_rope_layer_interval": 0 }),
            "no_rope_layer_interval must be a whole number",
        ),
    ] {
        let text = windows(model_type, keys).unwrap_err();
        assert!(text.contains(reason), "no `{reason}` in {text}");
    }
}

/// Older files of Phi-3 have other names for `longrope`, and all have to state the length at which factors change.
#[test]
fn long_rope_of_older_files_is_read() {
    for name in ["su", "yarn", "longrope"] {
        let scaling =
            json!({ "type": name, "short_factor": [1.0, 1.5], "long_factor": [2.0, 3.0] });
        let keys = json!({ "head_dim": 4, "rope_scaling": scaling, "max_position_embeddings": 64,
            "original_max_position_embeddings": 16 });
        let dir = with_keys("phi3", keys);
        assert_eq!(read(dir.path()).rope.scaling.name(), "longrope");
        set(dir.path(), json!({ "original_max_position_embeddings": null }));
        let text = DecoderConfig::read(dir.path(), &[]).unwrap_err().to_string();
        assert!(text.contains("original_max_position_embeddings is missing"), "{text}");
    }
}

#[test]
fn biases_that_a_family_does_not_have_are_refused() {
    for model_type in ["mistral", "phi3"] {
        let dir = with_keys(model_type, json!({ "head_dim": 2, "attention_bias": true }));
        let text = DecoderConfig::read(dir.path(), &[]).unwrap_err().to_string();
        assert!(text.contains("attention_bias is true; only models without biases"), "{text}");
    }
    let both = json!({ "head_dim": 2, "attention_bias": true });
    let qwen3 = read(with_keys("qwen3", both).path());
    assert_eq!((qwen3.qkv_bias, qwen3.output_bias, qwen3.mlp_bias), (true, true, false));
    let qwen2 = read(with_keys("qwen2", json!({ "head_dim": 2 })).path());
    assert_eq!((qwen2.qkv_bias, qwen2.output_bias), (true, false));
}

/// A folder without `model_type` is of the family of its classes.
#[test]
fn classes_tell_the_family() {
    for row in &ROWS {
        let dir = export(&small(row.model_type));
        set(dir.path(), json!({ "model_type": null }));
        assert_eq!(read(dir.path()).row.model_type, row.model_type);
    }
}

#[test]
fn partial_rotation_of_families_with_whole_heads_is_refused() {
    for model_type in ["llama", "mistral", "qwen2", "qwen3", "smollm3"] {
        let dir = with_keys(model_type, json!({ "head_dim": 4, "partial_rotary_factor": 0.5 }));
        let text = DecoderConfig::read(dir.path(), &[]).unwrap_err().to_string();
        assert!(
            text.contains("partial_rotary_factor is 0.5; transformers rotates whole"),
            "{text}"
        );
    }
}
