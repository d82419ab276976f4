//! Import and export of Hugging Face folders.

mod mixtral;

use std::fs;
use std::path::Path;

use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::test_tensors::TestFamily;
use super::*;
use crate::checkpoint::{CheckpointError, TensorBox, TensorSource};
use crate::rotary::RopeParameters;

fn config(tied: bool) -> LlamaConfig {
    LlamaConfig {
        hidden: 8,
        ffn: 12,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 4,
        vocab: 10,
        norm_eps: 1e-5,
        rope: RopeParameters::with_theta(5e5),
        tied,
        max_positions: 64,
        padding: None,
        bos: json!(1),
        eos: json!([2, 3]),
    }
}

/// Distinct numbers for every tensor.
fn values(index: usize, shape: &[usize]) -> Vec<f32> {
    (0..shape.iter().product()).map(|i| index as f32 + i as f32 / 1024.0).collect()
}

fn gpt2() -> Gpt2Config {
    Gpt2Config {
        hidden: 8,
        ffn: 12,
        layers: 2,
        heads: 4,
        vocab: 10,
        positions: 6,
        norm_eps: 1e-4,
        dropout: Gpt2Dropout { embeddings: 0.1, attention: 0.0, residual: 0.2 },
        bos: json!(1),
        eos: json!(2),
    }
}

fn export<C: TestFamily>(config: &C) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut export =
        HfExport::create(dir.path(), &HfFormat::new(config, config.tensors())).unwrap();
    for (i, (name, shape)) in config.tensors().iter().enumerate() {
        export.write(name, &values(i, shape)).unwrap();
    }
    export.finish().unwrap();
    dir
}

/// Opens a folder, and compares its tensors with those of its configuration.
fn open<C: TestFamily>(folder: &Path) -> Result<(C, HfFolder), CheckpointError> {
    let (config, weights) = HfFolder::open::<C>(folder, &[])?;
    weights.check_tensors(&config.tensors())?;
    Ok((config, weights))
}

fn refusal(folder: &Path) -> String {
    refusal_of::<LlamaConfig>(folder)
}

fn refusal_of<C: TestFamily>(folder: &Path) -> String {
    match open::<C>(folder) {
        Ok(_) => panic!("{} was opened", folder.display()),
        Err(error) => error.to_string(),
    }
}

/// The weights of a folder whose configuration is known.
fn weights<C: TestFamily + PartialEq + std::fmt::Debug>(folder: &Path, config: &C) -> HfFolder {
    let (found, weights) = open::<C>(folder).unwrap();
    assert_eq!(found, *config);
    weights
}

/// Changes keys of `config.json`; `null` removes.
fn set(folder: &Path, changes: Value) {
    let path = folder.join("config.json");
    let mut settings: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    for (key, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => settings.as_object_mut().unwrap().remove(key),
            value => settings.as_object_mut().unwrap().insert(key.clone(), value.clone()),
        };
    }
    fs::write(path, settings.to_string()).unwrap();
}

/// Writes tensors of any dtype with the reference library.
fn write_weights(path: &Path, tensors: &[(String, Dtype, Vec<usize>, Vec<u8>)]) {
    let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
        (name.as_str(), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

fn f32_tensors<C: TestFamily>(config: &C) -> Vec<(String, Dtype, Vec<usize>, Vec<u8>)> {
    let bytes = |values: Vec<f32>| values.iter().flat_map(|x| x.to_le_bytes()).collect();
    let tensors = config.tensors().into_iter().enumerate();
    tensors
        .map(|(i, (name, shape))| {
            let bytes = bytes(values(i, &shape));
            (name, Dtype::F32, shape, bytes)
        })
        .collect()
}

#[test]
fn exports_are_imported_bit_for_bit() {
    assert_imports(&config(false));
    assert_imports(&config(true));
    assert_imports(&gpt2());
    assert_imports(&Gpt2Config { ffn: 32, ..gpt2() });
}

#[track_caller]
fn assert_imports<C: TestFamily + PartialEq + std::fmt::Debug>(config: &C) {
    let dir = export(config);
    let mut names: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["config.json", "model.safetensors"]);
    let folder = weights(dir.path(), config);
    for (i, (name, shape)) in config.tensors().iter().enumerate() {
        assert_eq!(folder.read(name, shape, &TensorBox::whole(shape)).unwrap(), values(i, shape));
    }
}

#[test]
fn rows_and_columns_are_read_alone() {
    let dir = export(&config(false));
    let folder = weights(dir.path(), &config(false));
    let embedding = values(0, &[10, 8]);
    let read = |offset: [usize; 2], shape: [usize; 2]| {
        folder.read("model.embed_tokens.weight", &[10, 8], &TensorBox::new(&offset, &shape))
    };
    assert_eq!(read([3, 0], [2, 8]).unwrap(), embedding[24..40]);
    let columns = read([0, 4], [10, 4]).unwrap();
    let expected: Vec<_> = embedding.chunks(8).flat_map(|row| row[4..].to_vec()).collect();
    assert_eq!(columns, expected);
    let text = read([9, 0], [2, 8]).unwrap_err().to_string();
    assert!(text.contains("of shape [10, 8] has no part [9..11, 0..8]"), "{text}");
}

#[test]
fn shards_and_half_precision_are_read() {
    let config = config(false);
    let dir = export(&config);
    fs::remove_file(dir.path().join("model.safetensors")).unwrap();
    let mut tensors = f32_tensors(&config);
    let half = |values: Vec<f32>| {
        values.iter().flat_map(|x| half::f16::from_f32(*x).to_le_bytes()).collect::<Vec<_>>()
    };
    let bf16 = |values: Vec<f32>| {
        values.iter().flat_map(|x| half::bf16::from_f32(*x).to_le_bytes()).collect::<Vec<_>>()
    };
    let shape = tensors[1].2.clone();
    (tensors[1].1, tensors[1].3) = (Dtype::F16, half(values(1, &shape)));
    let shape = tensors[2].2.clone();
    (tensors[2].1, tensors[2].3) = (Dtype::BF16, bf16(values(2, &shape)));
    let (first, second) = tensors.split_at(7);
    write_weights(&dir.path().join("model-1.safetensors"), first);
    write_weights(&dir.path().join("model-2.safetensors"), second);
    let file = |i: usize| if i < 7 { "model-1.safetensors" } else { "model-2.safetensors" };
    let map: serde_json::Map<_, _> =
        tensors.iter().enumerate().map(|(i, tensor)| (tensor.0.clone(), json!(file(i)))).collect();
    let index = dir.path().join("model.safetensors.index.json");
    fs::write(&index, json!({ "weight_map": map }).to_string()).unwrap();

    let folder = weights(dir.path(), &config);
    for (i, (name, shape)) in config.tensors().iter().enumerate() {
        let expected: Vec<f32> = values(i, shape)
            .into_iter()
            .map(|x| match i {
                1 => half::f16::from_f32(x).to_f32(),
                2 => half::bf16::from_f32(x).to_f32(),
                _ => x,
            })
            .collect();
        assert_eq!(folder.read(name, shape, &TensorBox::whole(shape)).unwrap(), expected, "{name}");
    }

    fs::remove_file(dir.path().join("model-2.safetensors")).unwrap();
    let text = refusal(dir.path());
    assert!(text.contains("cannot read") && text.contains("model-2.safetensors"), "{text}");
    write_weights(&dir.path().join("model-2.safetensors"), &tensors[6..]);
    let text = refusal(dir.path());
    assert!(
        text.contains("model-2.safetensors: tensor `") && text.contains("is also in"),
        "{text}"
    );
    for (content, reason) in [
        ("{", "not an index"),
        ("{\"weight_map\": {}}", "the weight_map is empty"),
        ("{\"weight_map\": {\"a\": \"../x\"}}", "`../x` is not the name of a file of this folder"),
    ] {
        fs::write(&index, content).unwrap();
        let text = refusal(dir.path());
        assert!(text.contains("index.json") && text.contains(reason), "{text}");
    }
}

#[test]
fn settings_of_real_llamas_are_understood() {
    let dir = export(&config(false));
    let read = || LlamaConfig::read(dir.path(), &[]).unwrap().config;
    set(dir.path(), json!({ "rope_parameters": null, "rope_theta": 1234.0 }));
    assert_eq!(read().rope, RopeParameters::with_theta(1234.0));
    set(dir.path(), json!({ "rope_theta": null }));
    assert_eq!(read().rope, RopeParameters::default());
    set(dir.path(), json!({ "rope_parameters": { "rope_theta": 77, "rope_type": "default" } }));
    assert_eq!(read().rope, RopeParameters::with_theta(77.0));
    set(dir.path(), json!({ "head_dim": null, "num_key_value_heads": null }));
    assert_eq!((read().head_dim, read().kv_heads), (2, 4));
    let absent = json!({ "rms_norm_eps": null, "tie_word_embeddings": null, "hidden_act": null,
        "max_position_embeddings": null, "bos_token_id": null, "attention_bias": null });
    set(dir.path(), absent);
    let config = read();
    assert_eq!((config.norm_eps, config.tied, config.max_positions), (1e-6, false, 2048));
    assert_eq!(config.bos, Value::Null);
}

/// Bytes of f32 numbers.
fn f32_bytes(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

/// The frequencies of heads of four elements with the base of [`config`].
fn frequencies() -> Vec<u8> {
    f32_bytes([1.0, 5e5f32.powf(-0.5)])
}

#[test]
fn redundant_llama_tensors_are_ignored() {
    let tied = config(true);
    let dir = export(&tied);
    let mut tensors = f32_tensors(&tied);
    let file = dir.path().join("model.safetensors");
    tensors.push(("lm_head.weight".into(), Dtype::F32, vec![10, 8], tensors[0].3.clone()));
    let name = "model.layers.0.self_attn.rotary_emb.inv_freq";
    tensors.push((name.into(), Dtype::F32, vec![2], frequencies()));
    write_weights(&file, &tensors);
    assert!(weights(dir.path(), &tied).warnings().is_empty());

    // The one weight under the name of the head only, as `safetensors` may store shared tensors.
    write_weights(&file, &tensors[1..]);
    let folder = weights(dir.path(), &tied);
    let read = folder.read("model.embed_tokens.weight", &[10, 8], &TensorBox::whole(&[10, 8]));
    assert_eq!(read.unwrap(), values(0, &[10, 8]));

    tensors.last_mut().unwrap().3 = f32_bytes([1.0, 0.5]);
    write_weights(&file, &tensors);
    let text = refusal(dir.path());
    let reason =
        format!("tensor `{name}` holds other rotary frequencies than those of config.json");
    assert!(text.contains(&reason), "{text}");
}

/// The padding row may count from the end, like PyTorch's `padding_idx`.
#[test]
fn the_padding_row_is_read() {
    let dir = export(&config(false));
    let read = |id: Value| {
        set(dir.path(), json!({ "pad_token_id": id }));
        open::<LlamaConfig>(dir.path()).map(|(config, _)| config.padding)
    };
    for (id, row) in [(json!(0), 0), (json!(9), 9), (json!(-1), 9), (json!(-10), 0)] {
        assert_eq!(read(id).unwrap(), Some(row));
    }
    for id in [json!(10), json!(-11), json!("x"), json!(1.5)] {
        let text = read(id.clone()).unwrap_err().to_string();
        let reason = format!("pad_token_id is {id}, but the embedding has 10 rows; correct it, or");
        assert!(text.contains(&reason), "{text}");
    }
    let padded = LlamaConfig { padding: Some(3), ..config(true) };
    assert_imports(&padded);
    assert_imports(&MixtralConfig { padding: Some(3), ..mixtral::mixtral(true) });
}

/// Names of a bare model, and those of one that another module wraps.
#[test]
fn other_prefixes_are_understood() {
    let tied = config(true);
    let dir = export(&tied);
    let file = dir.path().join("model.safetensors");
    let renamed = |rename: &dyn Fn(&str) -> String| {
        let mut tensors = f32_tensors(&tied);
        tensors.iter_mut().for_each(|tensor| tensor.0 = rename(&tensor.0));
        write_weights(&file, &tensors);
    };
    renamed(&|name| name.replacen("model.", "", 1));
    weights(dir.path(), &tied);
    renamed(&|name| format!("module._orig_mod.{name}"));
    let folder = weights(dir.path(), &tied);
    let read = folder.read("model.embed_tokens.weight", &[10, 8], &TensorBox::whole(&[10, 8]));
    assert_eq!(read.unwrap(), values(0, &[10, 8]));
    // Not all of them.
    renamed(&|name| name.replacen("model.norm", "module.model.norm", 1));
    assert!(refusal(dir.path()).contains("unexpected: module.model.norm.weight"));
}

#[test]
fn lfs_pointers_are_named() {
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 12345\n";
    let dir = export(&config(false));
    for name in ["model.safetensors", "config.json"] {
        fs::write(dir.path().join(name), pointer).unwrap();
        let text = refusal(dir.path());
        let reason =
            format!("{name}: it is a Git LFS pointer; fetch the file itself: git lfs pull");
        assert!(text.contains(&reason), "{text}");
    }
    let read = SideFiles::read(Some(dir.path()), None);
    assert_eq!(read.unwrap(), SideFiles::default());
    fs::write(dir.path().join("tokenizer.model"), pointer).unwrap();
    let text = SideFiles::read(Some(dir.path()), None).unwrap_err().to_string();
    assert!(text.contains("tokenizer.model: it is a Git LFS pointer"), "{text}");
}

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
            "quantization_config: the weights are quantized (fp8); save them in bf16 or f32 first",
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
    let format = HfFormat::new(&config, config.tensors()).with_keys_of(&folder);
    for (path, value) in [
        ("/initializer_range", json!(0.01)),
        ("/use_cache", json!(false)),
        ("/qk_norm", json!(1)),
        ("/rope_parameters/own", json!(3)),
        ("/rope_parameters/rope_theta", json!(5e5)),
        ("/max_position_embeddings", json!(128)),
        ("/torch_dtype", json!("float32")),
    ] {
        assert_eq!(format.settings.pointer(path), Some(&value), "{path}");
    }
    assert_eq!(format.settings.get("dtype"), None);
}

/// A stored head is never left out unseen, wherever it is stored.
#[test]
fn stored_heads_that_differ_are_used() {
    assert_unties(&config(true), &config(false));
    assert_unties(&mixtral::mixtral(true), &mixtral::mixtral(false));
}

#[track_caller]
fn assert_unties<C: TestFamily + PartialEq + std::fmt::Debug>(tied: &C, untied: &C) {
    let dir = export(tied);
    let tensors = f32_tensors(tied);
    let mut head = values(0, &[10, 8]);
    head[79] += 0.5;
    let head = [("lm_head.weight".to_owned(), Dtype::F32, vec![10, 8], f32_bytes(head.clone()))];
    let assert_untied = |prefix: &str| {
        let folder = weights(dir.path(), untied);
        let read = folder.read("lm_head.weight", &[10, 8], &TensorBox::whole(&[10, 8])).unwrap();
        assert_eq!(f32_bytes(read), head[0].3);
        let [warning] = folder.warnings() else { panic!("one warning") };
        let names =
            format!("`{prefix}lm_head.weight` differs from `{prefix}model.embed_tokens.weight`");
        assert!(warning.contains(&names), "{warning}");
    };
    let mut all = [&tensors[..], &head].concat();
    write_weights(&dir.path().join("model.safetensors"), &all);
    assert_untied("");
    all.iter_mut().for_each(|tensor| tensor.0.insert_str(0, "module."));
    write_weights(&dir.path().join("model.safetensors"), &all);
    assert_untied("module.");

    fs::remove_file(dir.path().join("model.safetensors")).unwrap();
    write_weights(&dir.path().join("a.safetensors"), &tensors);
    write_weights(&dir.path().join("b.safetensors"), &head);
    let mut map: serde_json::Map<_, _> =
        tensors.iter().map(|(name, ..)| (name.clone(), json!("a.safetensors"))).collect();
    map.insert("lm_head.weight".into(), json!("b.safetensors"));
    let index = json!({ "weight_map": map });
    fs::write(dir.path().join("model.safetensors.index.json"), index.to_string()).unwrap();
    assert_untied("");
}

/// Folders as the first ones were published: of the bare model, and with the causal masks.
#[test]
fn early_gpt2_folders_are_read() {
    let config = gpt2();
    let dir = export(&config);
    let mut tensors = f32_tensors(&config);
    for (name, ..) in &mut tensors {
        *name = name.replacen("transformer.", "", 1);
    }
    let mask: Vec<u8> = (0..36).map(|i| u8::from(i % 6 <= i / 6)).collect();
    tensors.push(("h.0.attn.bias".into(), Dtype::U8, vec![1, 1, 6, 6], mask.clone()));
    let numbers = f32_bytes(mask.iter().map(|visible| f32::from(*visible)));
    tensors.push(("h.1.attn.bias".into(), Dtype::F32, vec![1, 1, 6, 6], numbers));
    tensors.push(("h.1.attn.masked_bias".into(), Dtype::F32, vec![], f32_bytes([-1e4])));
    tensors.push(("lm_head.weight".into(), Dtype::F32, vec![10, 8], tensors[0].3.clone()));
    let file = dir.path().join("model.safetensors");
    write_weights(&file, &tensors);
    let folder = weights(dir.path(), &config);
    for (i, (name, shape)) in config.tensors().iter().enumerate() {
        assert_eq!(folder.read(name, shape, &TensorBox::whole(shape)).unwrap(), values(i, shape));
    }

    tensors.push(("transformer.wpe.weight".into(), Dtype::F32, vec![6, 8], vec![0; 192]));
    write_weights(&file, &tensors);
    let text = refusal_of::<Gpt2Config>(dir.path());
    assert!(text.contains("wpe.weight` is there a second time, as `"), "{text}");
    tensors.pop();

    let others = [
        (4, vec![1; 36], "tensor `h.0.attn.bias` is not the mask of a causal attention"),
        (2, f32_bytes([-1.0]), "tensor `h.1.attn.masked_bias` does not mask"),
        (
            1,
            f32_bytes(values(9, &[10, 8])),
            "tensor `lm_head.weight` differs from `wte.weight`, which a gpt2 takes for its head",
        ),
    ];
    for (from_end, content, reason) in others {
        let mut other = tensors.clone();
        let index = other.len() - from_end;
        other[index].3 = content;
        write_weights(&file, &other);
        let text = refusal_of::<Gpt2Config>(dir.path());
        assert!(text.contains(reason), "no `{reason}` in {text}");
    }
}

#[test]
fn settings_of_real_gpt2s_are_understood() {
    let dir = export(&gpt2());
    let absent = json!({ "n_inner": null, "n_positions": null, "layer_norm_epsilon": null, "attn_pdrop": null,
        "activation_function": null, "bos_token_id": null, "tie_word_embeddings": null, "model_type": null });
    set(dir.path(), absent);
    let read = Gpt2Config::read(dir.path(), &[]).unwrap().config;
    assert_eq!((read.ffn, read.positions, read.norm_eps), (32, 1024, 1e-5));
    assert_eq!((read.dropout.attention, read.dropout.residual), (0.1, 0.2));
    assert_eq!((read.bos, read.eos), (Value::Null, json!(2)));
    set(dir.path(), json!({ "activation_function": "gelu_pytorch_tanh", "use_cache": true }));
    assert!(Gpt2Config::read(dir.path(), &[]).is_ok());
}

#[test]
fn other_families_are_refused_first() {
    let (llama, gpt2) = (export(&config(false)), export(&gpt2()));
    let text = refusal_of::<Gpt2Config>(llama.path());
    let reason = "config.json: model_type is \"llama\"; only \"gpt2\" is supported by the model of this program";
    assert!(text.contains(reason), "{text}");
    let text = refusal(gpt2.path());
    let reason = "config.json: model_type is \"gpt2\"; only \"llama\" is supported by the model of this program";
    assert!(text.contains(reason), "{text}");
    // Nothing says which it is: its sizes have other names.
    set(gpt2.path(), json!({ "model_type": null }));
    assert!(refusal(gpt2.path()).contains("hidden_size is missing"), "{}", refusal(gpt2.path()));
}

#[test]
fn unsupported_gpt2_settings_are_refused() {
    for (change, reason) in [
        (
            json!({ "activation_function": "gelu" }),
            "activation_function is \"gelu\"; only \"gelu_new\" or \"gelu_pytorch_tanh\" is supported",
        ),
        (json!({ "scale_attn_weights": false }), "scale_attn_weights is false; only true is"),
        (
            json!({ "scale_attn_by_inverse_layer_idx": true }),
            "scale_attn_by_inverse_layer_idx is true; only false is supported",
        ),
        (json!({ "add_cross_attention": true }), "add_cross_attention is true; only false is"),
        (json!({ "tie_word_embeddings": false }), "tie_word_embeddings is false; only true is"),
        (
            json!({ "rope_theta": 1e4 }),
            "rope_theta is not a setting of a gpt2, where positions are learned; leave it out",
        ),
        (
            json!({ "num_key_value_heads": 2 }),
            "num_key_value_heads is not a setting of a gpt2, where each query head has keys",
        ),
        (json!({ "n_head": 3 }), "n_head 3 does not divide n_embd 8"),
        (json!({ "n_layer": null }), "n_layer is missing"),
        (json!({ "n_layer": 200 }), "n_layer is 200, but the weights hold 28 tensors in all"),
        (json!({ "n_positions": 0 }), "n_positions must be a whole number of at least 1, not 0"),
        (json!({ "resid_pdrop": 1 }), "resid_pdrop must be below 1, not 1"),
        (
            json!({ "n_inner": 16 }),
            "transformer.h.0.mlp.c_fc.weight has shape [8, 12], expected [8, 16]",
        ),
    ] {
        let dir = export(&gpt2());
        set(dir.path(), change);
        let text = refusal_of::<Gpt2Config>(dir.path());
        assert!(text.contains(reason), "no `{reason}` in {text}");
    }
}

#[test]
fn unsupported_llama_settings_are_refused() {
    for (change, reason) in [
        (
            json!({ "model_type": "mistral" }),
            "model_type is \"mistral\"; only \"llama\" is supported",
        ),
        (json!({ "hidden_act": "gelu" }), "hidden_act is \"gelu\"; only \"silu\" is supported"),
        (json!({ "hidden_act": 3 }), "hidden_act must be text, not 3"),
        (json!({ "attention_bias": true }), "attention_bias is true; only models without biases"),
        (json!({ "mlp_bias": true }), "mlp_bias is true"),
        (json!({ "attention_dropout": 0.1 }), "attention_dropout is 0.1; only 0"),
        (json!({ "rope_parameters": 3 }), "rope_parameters must be an object, not 3"),
        (
            json!({ "rope_theta": -1, "rope_parameters": {} }),
            "rope_theta must be a number of at least 0",
        ),
        (json!({ "rope_theta": 0, "rope_parameters": {} }), "rope_theta must be above 0, not 0"),
        (json!({ "hidden_size": null }), "hidden_size is missing"),
        (
            json!({ "vocab_size": "ten" }),
            "vocab_size must be a whole number of at least 1, not \"ten\"",
        ),
        (
            json!({ "num_hidden_layers": 0 }),
            "num_hidden_layers must be a whole number of at least 1",
        ),
        (json!({ "num_key_value_heads": 3 }), "num_key_value_heads 3 does not divide"),
        (
            json!({ "num_attention_heads": 6, "head_dim": null }),
            "num_attention_heads 6 does not divide",
        ),
        (json!({ "head_dim": 3 }), "head_dim 3 is odd"),
        (json!({ "tie_word_embeddings": 1 }), "tie_word_embeddings must be true or false, not 1"),
        (
            json!({ "sliding_window": 4096 }),
            "sliding_window is 4096; only models whose attention has no window",
        ),
        (
            json!({ "sliding_window": 4096, "use_sliding_window": true }),
            "sliding_window is 4096; only models",
        ),
        (json!({ "use_sliding_window": true }), "use_sliding_window is true; only models"),
        (
            json!({ "layer_types": ["full_attention", "sliding_attention"] }),
            "layer_types is [\"full_attention\",\"sliding_attention\"]; only layers of \"full_attention\"",
        ),
        (json!({ "layer_types": "all" }), "layer_types is \"all\"; only layers of"),
        (
            json!({ "model_type": null, "architectures": ["MistralForCausalLM"] }),
            "architectures has \"MistralForCausalLM\", and there is no model_type; only \"llama\" is supported",
        ),
        (
            json!({ "rope_parameters": null, "rope_scaling": { "factor": 2 } }),
            "rope_scaling.rope_type is missing, but factor is given",
        ),
    ] {
        let dir = export(&config(false));
        set(dir.path(), change);
        let text = refusal(dir.path());
        assert!(text.contains("config.json: ") && text.contains(reason), "no `{reason}` in {text}");
    }
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

#[test]
fn other_weights_are_refused_by_tensor() {
    let config = config(false);
    let dir = export(&config);
    let weights = dir.path().join("model.safetensors");
    let refused_with = |tensors: &[_]| {
        write_weights(&weights, tensors);
        refusal(dir.path())
    };
    let tensors = f32_tensors(&config);

    let mut other = tensors.clone();
    other[2] = ("model.extra".into(), Dtype::F32, vec![1], vec![0; 4]);
    let text = refused_with(&other);
    let q = "model.layers.0.self_attn.q_proj.weight";
    let listed =
        format!("has other sizes or settings:\n  - missing: {q}\n  - unexpected: model.extra");
    assert!(text.contains(&listed), "{text}");

    let mut other = tensors.clone();
    other[2].2 = vec![8, 16];
    let text = refused_with(&other);
    let expected = format!("other sizes or settings:\n  - {q} has shape [8, 16], expected [16, 8]");
    assert!(text.contains(&expected), "{text}");

    let mut other = tensors.clone();
    other[2].1 = Dtype::I32;
    let text = refused_with(&other);
    assert!(
        text.contains(&format!("tensor `{q}` has dtype I32; only F32, F16 and BF16")),
        "{text}"
    );

    write_weights(&weights, &tensors);
    let content = fs::read(&weights).unwrap();
    fs::write(&weights, &content[..content.len() - 9]).unwrap();
    let text = refusal(dir.path());
    assert!(text.contains("model.safetensors is damaged") && text.contains("truncated"), "{text}");

    fs::remove_file(&weights).unwrap();
    let text = refusal(dir.path());
    assert!(text.contains("neither model.safetensors nor model.safetensors.index.json"), "{text}");
    fs::write(dir.path().join("config.json"), "{").unwrap();
    assert!(refusal(dir.path()).contains("config.json: not JSON"), "{}", refusal(dir.path()));
    fs::remove_file(dir.path().join("config.json")).unwrap();
    let text = refusal(dir.path());
    assert!(text.contains("cannot read") && text.contains("config.json"), "{text}");
    let text = refusal(&dir.path().join("missing"));
    assert!(text.contains("missing: there is no such folder"), "{text}");
}
