//! Gemma folders.

use std::sync::Arc;

use meshwright_core::rotary::{LongRopeScaling, RopeScaling};
use meshwright_store::family::{ConfigKeys, Family};

use super::*;

fn gemma(model_type: &'static str) -> GemmaConfig {
    GemmaConfig {
        hidden: 8,
        ffn: 12,
        layers: 3,
        heads: 4,
        kv_heads: 2,
        head_dim: 4,
        vocab: 10,
        query_scalar: 6.0,
        window: Some(5),
        slides: vec![true, true, false],
        rope: RopeParameters::with_theta(5e5),
        max_positions: 64,
        padding: Some(0),
        bos: json!(2),
        eos: json!(1),
        ..GemmaConfig::new_of(model_type)
    }
}

/// A Gemma 3 whose layers without a window have scaled frequencies.
fn third(model_type: &'static str) -> GemmaConfig {
    let scaling = RopeScaling::Linear { factor: 8.0 };
    GemmaConfig {
        attention_cap: None,
        logit_cap: None,
        rope: RopeParameters { scaling, ..RopeParameters::with_theta(1e6) },
        local_rope: RopeParameters::with_theta(3e4),
        ..gemma(model_type)
    }
}

#[test]
fn gemmas_are_imported_as_they_are_exported() {
    assert_imports(&gemma("gemma2"));
    assert_imports(&GemmaConfig { biases: true, tied: false, padding: None, ..gemma("gemma2") });
    assert_imports(&GemmaConfig { window: None, slides: vec![false; 3], ..gemma("gemma2") });
    assert_imports(&third("gemma3_text"));
    assert_imports(&GemmaConfig { logit_cap: Some(7.0), ..third("gemma3_text") });
    assert_imports(&third("gemma3"));
    let long = LongRopeScaling {
        short: vec![1.0, 2.0],
        long: vec![3.0, 4.0],
        original_positions: 16,
        factor: 4.0,
        attention_factor: None,
    };
    let scaling = RopeScaling::LongRope(Arc::new(long));
    for scaling in [scaling, RopeScaling::Dynamic { factor: 2.0, trained_positions: 64 }] {
        let rope = RopeParameters { scaling, ..RopeParameters::with_theta(1e6) };
        assert_imports(&GemmaConfig { rope, ..third("gemma3_text") });
    }
}

/// Keys of the source are kept, also inside of its objects.
#[test]
fn exports_keep_the_keys_of_a_multimodal_gemma() {
    let dir = export(&third("gemma3"));
    let path = dir.path().join("config.json");
    let mut keys: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    keys["text_config"]["initializer_range"] = json!(0.5);
    keys["mm_tokens_per_image"] = json!(4);
    fs::write(&path, keys.to_string()).unwrap();
    let (mut config, folder) = open::<GemmaConfig>(dir.path()).unwrap();
    let warning = config.extend_positions(128).unwrap();
    assert!(warning.starts_with("128 tokens are more than the 64 positions"), "{warning}");
    let exported = tempfile::tempdir().unwrap();
    let format = HfFormat::new(&config, config.tensors()).with_keys_of(&folder);
    write(exported.path(), &config, &format);
    keys["text_config"]["max_position_embeddings"] = json!(128);
    let text = fs::read_to_string(exported.path().join("config.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), keys);
}

/// Writes a `config.json`, and reads it.
fn read(keys: &Value) -> Result<GemmaConfig, String> {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("config.json"), keys.to_string()).unwrap();
    let file = GemmaConfig::read(dir.path(), &[]).map_err(|error| error.to_string())?;
    Ok(file.config)
}

/// Published folders leave out what is the default of `transformers`.
#[test]
fn published_gemmas_are_understood() {
    let second =
        read(&json!({ "model_type": "gemma2", "num_hidden_layers": 4, "hidden_act": "gelu",
        "sliding_window_size": 4096, "cache_implementation": "hybrid", "rope_theta": 1e4 }));
    let second = second.unwrap();
    assert_eq!(
        second,
        GemmaConfig { layers: 4, slides: second.slides.clone(), ..Default::default() }
    );
    assert_eq!(second.slides, [true, false, true, false]);
    assert_eq!(second.of_layers().0, [Some(4096), None]);

    let text = read(&json!({ "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text",
        "attn_logit_softcapping": null, "rope_local_base_freq": 20000, "rope_scaling": null, "rope_theta": 2e6,
        "sliding_window": 512, "sliding_window_pattern": 2, "num_hidden_layers": 3 }));
    let text = text.unwrap();
    assert_eq!((text.kind, text.vocab, text.logit_cap), (GemmaKind::Gemma3Text, 262_208, None));
    let thetas = [Some(2e4), Some(2e6)].map(|theta| theta.map(RopeParameters::with_theta));
    assert_eq!(text.of_layers(), (vec![Some(512), None], thetas.to_vec()));

    let whole = read(
        &json!({ "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
        "boi_token_index": 255_999, "eoi_token_index": 256_000, "eos_token_id": [1, 106],
        "image_token_index": 262_144, "initializer_range": 0.02, "mm_tokens_per_image": 256,
        "text_config": { "hidden_size": 2560, "intermediate_size": 10_240, "model_type": "gemma3_text",
            "num_hidden_layers": 34, "rope_scaling": { "factor": 8.0, "rope_type": "linear" },
            "sliding_window": 1024, "use_cache": true, "torch_dtype": "bfloat16" } }),
    );
    let whole = whole.unwrap();
    assert_eq!((whole.kind, whole.heads, whole.eos), (GemmaKind::Gemma3, 8, json!([1, 106])));
    assert_eq!(whole.rope.scaling, RopeScaling::Linear { factor: 8.0 });
    assert_eq!(whole.local_rope, RopeParameters::with_theta(1e4));
    let classes = [("Gemma2ForCausalLM", "gemma2"), ("Gemma3ForCausalLM", "gemma3_text")];
    for (class, model_type) in classes.into_iter().chain([("Gemma3TextModel", "gemma3_text")]) {
        let unnamed = read(&json!({ "architectures": [class] })).unwrap();
        assert_eq!(unnamed.model_type(), model_type);
    }
    let full = whole.slides.iter().enumerate().filter(|(_, slides)| !**slides);
    assert_eq!(full.map(|(layer, _)| layer).collect::<Vec<_>>(), [5, 11, 17, 23, 29]);
}

/// A `null` is not the same as an absent key.
#[test]
fn nulls_switch_off() {
    let dir = export(&gemma("gemma2"));
    let path = dir.path().join("config.json");
    let text = fs::read_to_string(&path).unwrap();
    let with = |change: &dyn Fn(&mut serde_json::Map<String, Value>)| {
        let mut keys: Value = serde_json::from_str(&text).unwrap();
        change(keys.as_object_mut().unwrap());
        read(&keys)
    };
    let keys = ["attn_logit_softcapping", "final_logit_softcapping", "pad_token_id"];
    let absent = with(&|file| keys.iter().for_each(|key| drop(file.remove(*key)))).unwrap();
    assert_eq!((absent.attention_cap, absent.logit_cap), (Some(50.0), Some(30.0)));
    assert_eq!(absent.padding, Some(0));
    let null = with(&|file| {
        keys.iter().for_each(|key| drop(file.insert((*key).to_owned(), Value::Null)));
    });
    let null = null.unwrap();
    assert_eq!((null.attention_cap, null.logit_cap, null.padding), (None, None, None));
    let text = with(&|file| drop(file.insert("sliding_window".into(), Value::Null))).unwrap_err();
    assert!(
        text.contains("sliding_window is null, but layer_types has layers of \"sliding_"),
        "{text}"
    );
    let absent = with(&|file| drop(file.remove("sliding_window"))).unwrap();
    assert_eq!(absent.window, Some(4096));
}

#[test]
fn unsupported_gemma_settings_are_refused() {
    for (change, reason) in [
        (
            json!({ "hidden_activation": "relu" }),
            "hidden_activation is \"relu\"; only \"gelu_pytorch_tanh\"",
        ),
        (
            json!({ "use_bidirectional_attention": true }),
            "use_bidirectional_attention is true; only",
        ),
        (json!({ "attention_dropout": 0.1 }), "attention_dropout is 0.1; only 0"),
        (
            json!({ "num_key_value_heads": 3 }),
            "num_key_value_heads 3 does not divide num_attention_",
        ),
        (json!({ "head_dim": 3 }), "head_dim 3 is odd"),
        (
            json!({ "layer_types": ["full_attention"] }),
            "layer_types has 1 entries, but num_hidden_layers is 3",
        ),
        (
            json!({ "layer_types": ["full_attention", "full_attention", 4] }),
            "layer_types[2] is 4; only",
        ),
        (json!({ "layer_types": "full_attention" }), "layer_types must be a list, not"),
        (
            json!({ "sliding_window": 0 }),
            "sliding_window must be a whole number of at least 1, not 0",
        ),
        (json!({ "query_pre_attn_scalar": 0 }), "query_pre_attn_scalar must be above 0, not 0"),
        (
            json!({ "attn_logit_softcapping": 0 }),
            "attn_logit_softcapping must be a number above 0, not 0; null",
        ),
        (
            json!({ "final_logit_softcapping": -1 }),
            "final_logit_softcapping must be a number of at least 0",
        ),
        (json!({ "pad_token_id": 10 }), "pad_token_id is 10, but the embedding has 10 rows"),
        (json!({ "query_scale": 3 }), "\"query_scale\" is 3: this program does not know"),
    ] {
        for model_type in ["gemma2", "gemma3_text"] {
            let dir = export(&gemma(model_type));
            set(dir.path(), change.clone());
            let text = refusal_of::<GemmaConfig>(dir.path());
            assert!(text.contains(reason), "no `{reason}` in {text}");
        }
    }
    let second = [
        (
            json!({ "rope_parameters": { "partial_rotary_factor": 0.5 } }),
            "partial_rotary_factor is 0.5; transformers",
        ),
        (json!({ "sliding_window_pattern": 6 }), "\"sliding_window_pattern\" is 6: this program"),
        (
            json!({ "rope_parameters": { "full_attention": {} } }),
            "full_attention is an object, but",
        ),
    ];
    let third_only = [
        (
            json!({ "rope_parameters": { "rope_theta": 1e6 } }),
            "\"rope_parameters.rope_theta\" is 1000000.0: this",
        ),
        (
            json!({ "rope_parameters": { "full_attention": { "rope_type": "odd" } } }),
            "rope_parameters.full_attention.rope_type is \"odd\"; only",
        ),
        (
            json!({ "rope_parameters": { "sliding_attention": { "rope_theta": 0 } } }),
            "rope_parameters.sliding_attention.rope_theta must be above 0",
        ),
        (
            json!({ "rope_local_base_freq": 0, "rope_parameters": null }),
            "json: rope_local_base_freq must be above 0",
        ),
        (
            json!({ "rope_local_base_freq": 30 }),
            "rope_local_base_freq is 30, but rope_parameters.sliding_attention.rope_theta is ",
        ),
        (
            json!({ "rope_theta": 30 }),
            "rope_theta is 30, but rope_parameters.full_attention.rope_theta is ",
        ),
        (
            json!({ "sliding_window_pattern": 0 }),
            "sliding_window_pattern must be a whole number of at least 1",
        ),
        (
            json!({ "rope_scaling": { "rope_type": "linear", "factor": 2 } }),
            "rope_scaling and rope_parameters.full_attention differ",
        ),
    ];
    let cases = second.map(|case| ("gemma2", case)).into_iter();
    for (model_type, (change, reason)) in cases.chain(third_only.map(|case| ("gemma3_text", case)))
    {
        let dir = export(&GemmaConfig { attention_cap: None, ..gemma(model_type) });
        set(dir.path(), change);
        let text = refusal_of::<GemmaConfig>(dir.path());
        assert!(text.contains(reason), "no `{reason}` in {text}");
    }
}

/// Keys and tensors of the other parts of a `gemma3`.
#[test]
fn only_the_text_of_a_multimodal_gemma_is_read() {
    let dir = export(&third("gemma3"));
    set(dir.path(), json!({ "vision_config": { "hidden_size": 3 }, "mm_tokens_per_image": 4 }));
    let text = refusal_of::<GemmaConfig>(dir.path());
    let reason = "config.json: vision_config: the folder is of a model with a part that is not supported; save the \
                  text model alone";
    assert!(text.contains(reason), "{text}");
    let architecture = GemmaConfig::read_architecture(dir.path(), &[]).unwrap();
    assert_eq!(architecture.config, third("gemma3"));
    assert_eq!(
        architecture.warnings,
        ["vision_config is left out: the text model alone is trained"]
    );
    set(dir.path(), json!({ "vision_config": null }));
    let mut tensors = f32_tensors(&third("gemma3"));
    let file = dir.path().join("model.safetensors");
    for tensor in &mut tensors {
        // Names of a model that was saved from memory.
        tensor.0 = tensor.0.replacen("language_model.model.", "model.language_model.", 1);
    }
    write_weights(&file, &tensors);
    weights(dir.path(), &third("gemma3"));
    tensors.push(("vision_tower.x".into(), Dtype::F32, vec![1], f32_bytes([1.0])));
    write_weights(&file, &tensors);
    let text = refusal_of::<GemmaConfig>(dir.path());
    let reason = "tensor `vision_tower.x` is of a vision tower, which is not supported; save the text model alone, by \
                  Gemma3ForCausalLM of transformers";
    assert!(text.contains(reason), "{text}");
    for (change, reason) in [
        (json!({ "text_config": null }), "text_config is missing"),
        (
            json!({ "text_config": { "vocab_size": 0 } }),
            "text_config.vocab_size must be a whole number",
        ),
        (
            json!({ "text_config": { "tie_word_embeddings": false } }),
            "text_config.tie_word_embeddings is false",
        ),
        (
            json!({ "text_config": { "model_type": "llama" } }),
            "text_config.model_type is \"llama\"; only",
        ),
        (
            json!({ "text_config": { "scale": 2 } }),
            "\"text_config.scale\" is 2: this program does not know",
        ),
        (
            json!({ "tie_word_embeddings": false }),
            "tie_word_embeddings is false; only true is supported",
        ),
    ] {
        let dir = export(&third("gemma3"));
        set(dir.path(), change);
        let text = refusal_of::<GemmaConfig>(dir.path());
        assert!(text.contains(reason), "no `{reason}` in {text}");
    }
}

#[test]
fn caps_that_are_not_applied_have_a_warning() {
    let dir = export(&GemmaConfig { attention_cap: Some(0.5), ..third("gemma3_text") });
    let (_, folder) = open::<GemmaConfig>(dir.path()).unwrap();
    let warning = "config.json: attn_logit_softcapping is 0.5: transformers does not apply it in a gemma3, and neither \
                   does this program";
    assert_eq!(folder.warnings(), [warning]);
    assert!(open::<GemmaConfig>(export(&gemma("gemma2")).path()).unwrap().1.warnings().is_empty());
}

#[test]
fn new_gemmas_follow_from_flags() {
    let second = GemmaConfig::new_model("gemma2", &SIZES, 16).unwrap();
    assert_eq!(
        (second.head_dim, second.kv_heads, second.ffn, second.query_scalar),
        (6, 4, 64, 6.0)
    );
    assert_eq!((second.tied, second.padding, second.slides), (true, None, vec![true, false]));
    let third = GemmaConfig::new_model("gemma3_text", &SIZES, 16).unwrap();
    assert_eq!((third.rope.theta, third.local_rope.theta, third.attention_cap), (1e6, 1e4, None));
    assert_eq!(GemmaConfig::new_model("gemma3", &SIZES, 16).unwrap().outline().layers, 2);
    assert_eq!(third.outline().hidden, 24);
}
