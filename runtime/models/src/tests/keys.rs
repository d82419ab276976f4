//! Keys of `config.json` that change nothing, and those that are not known.

use super::*;

/// Keys of other models, also within objects and of classes, and weights that are not numbers.
#[test]
fn unknown_keys_are_refused() {
    let rope = json!({ "rope_type": "default", "rope_theta": 5e5, "beta_fast": 32 });
    for (change, reason) in [
        (
            json!({ "auto_map": { "AutoModel": "x.Y" }, "residual_multiplier": 0.22 }),
            "\"auto_map\" is {\"AutoModel\":\"x.Y\"}, \"residual_multiplier\" is 0.22: this program does not know what \
             they change; `--accept-keys auto_map,residual_multiplier` runs without them",
        ),
        (json!({ "rope_parameters": rope }), "\"rope_parameters.beta_fast\" is 32: this program"),
        (
            json!({ "architectures": ["LlamaForSequenceClassification"] }),
            "\"architectures\" is [\"LlamaForSequenceClassification\"]: this program",
        ),
        (json!({ "architectures": ["BitnetForCausalLM"] }), "`--accept-keys architectures` runs"),
        (
            json!({ "quantization_config": { "quant_method": "fp8" } }),
            "quantization_config: the weights are quantized (fp8), and quantized weights cannot be trained; use the \
             folder that they were made from, or save them in bf16",
        ),
    ] {
        let dir = export(&config(false));
        set(dir.path(), change);
        let text = refusal(dir.path());
        assert!(text.contains("config.json: ") && text.contains(reason), "no `{reason}` in {text}");
    }
    let dir = export(&config(false));
    set(dir.path(), json!({ "qk_norm": 1, "use_bias": false, "num_nextn_predict_layers": 0 }));
    let accepted = ["qk_norm".to_owned()];
    let (found, folder) = HfFolder::open::<LlamaConfig>(dir.path(), &accepted).unwrap();
    assert_eq!(found, config(false));
    let warning = "config.json: \"num_nextn_predict_layers\" is 0, \"use_bias\" is false: this program does not know \
                   them, and takes them for switched off";
    assert_eq!(folder.warnings(), [warning]);
}

/// Keys that the program does not use survive a round trip, beside those that it sets.
#[test]
fn exports_keep_the_keys_of_their_source() {
    let dir = export(&config(false));
    let kept = json!({ "initializer_range": 0.01, "use_cache": false, "qk_norm": 1, "dtype": "bfloat16",
        "rope_parameters": { "rope_type": "default", "rope_theta": 5e5, "own": 3 } });
    set(dir.path(), kept);
    let accepted = ["qk_norm", "rope_parameters.own"].map(str::to_owned);
    let (mut config, folder) = HfFolder::open::<LlamaConfig>(dir.path(), &accepted).unwrap();
    config.max_positions = 128;
    let format =
        HfFormat::new(&config, config.tensors()).with_dtype(StoredDtype::F16).with_keys_of(&folder);
    let exported = tempfile::tempdir().unwrap();
    write(exported.path(), &config, &format);
    let text = fs::read_to_string(exported.path().join("config.json")).unwrap();
    let settings: Value = serde_json::from_str(&text).unwrap();
    for (path, value) in [
        ("/initializer_range", json!(0.01)),
        ("/use_cache", json!(false)),
        ("/qk_norm", json!(1)),
        ("/rope_parameters/own", json!(3)),
        ("/rope_parameters/rope_theta", json!(5e5)),
        ("/max_position_embeddings", json!(128)),
        ("/torch_dtype", json!("float16")),
        ("/dtype", json!("float16")),
    ] {
        assert_eq!(settings.pointer(path), Some(&value), "{path}");
    }
}

/// Values that stand for others stay as they are, unless the model changes; the class is that of what is written.
#[test]
fn exports_keep_other_spellings() {
    let dir = export(&config(true));
    set(
        dir.path(),
        json!({ "pad_token_id": -1, "architectures": ["LlamaModel"], "rms_norm_eps": 1e-5 }),
    );
    let path = dir.path().join("config.json");
    let mut keys: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    keys["head_dim"] = Value::Null;
    keys["hidden_size"] = json!(16);
    fs::write(&path, keys.to_string()).unwrap();
    let wide = LlamaConfig { hidden: 16, padding: Some(9), ..config(true) };
    write_weights(&dir.path().join("model.safetensors"), &f32_tensors(&wide));
    let (mut read, folder) = open::<LlamaConfig>(dir.path()).unwrap();
    assert_eq!(read, wide);
    let exported = |config: &LlamaConfig| {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), config, &HfFormat::new(config, config.tensors()).with_keys_of(&folder));
        let text = fs::read_to_string(dir.path().join("config.json")).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let same = exported(&read);
    assert_eq!((&same["pad_token_id"], &same["head_dim"]), (&json!(-1), &Value::Null));
    assert_eq!(same["architectures"], json!(["LlamaForCausalLM"]));
    (read.padding, read.tied) = (Some(3), false);
    let changed = exported(&read);
    assert_eq!(
        (&changed["pad_token_id"], &changed["tie_word_embeddings"]),
        (&json!(3), &json!(false))
    );
}

/// Keys of other families that say that nothing is different.
#[test]
fn settings_without_effect_are_understood() {
    for change in [
        json!({ "sliding_window": null, "use_sliding_window": false }),
        json!({ "sliding_window": 4096, "use_sliding_window": false }),
        json!({ "layer_types": ["full_attention", "full_attention"] }),
        json!({ "model_type": null }),
        json!({ "model_type": null, "architectures": null }),
    ] {
        let dir = export(&config(false));
        set(dir.path(), change);
        assert_eq!(LlamaConfig::read(dir.path(), &[]).unwrap().config, config(false));
    }
}
