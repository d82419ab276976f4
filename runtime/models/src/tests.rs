//! Import and export of Hugging Face folders.

mod decoder;
mod encoders;
mod gemma;
mod gpt2;
mod keys;
mod llama;
mod mixtral;
mod mixtures;
mod neox;
mod olmo2;
mod other_content;
mod seq2seq;
mod stored;
mod tensors;
mod vit;
mod whole;

use std::fs;
use std::path::Path;

use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use tempfile::TempDir;

use meshwright_core::rotary::RopeParameters;
use meshwright_store::checkpoint::hf::*;
use meshwright_store::checkpoint::{CheckpointError, StoredDtype, TensorBox, TensorSource};
use meshwright_store::family::ModelSizes;

use crate::*;
use tensors::TestFamily;

/// The sizes of a small model, without those that its family derives.
pub const SIZES: ModelSizes = ModelSizes {
    hidden: 24,
    layers: 2,
    heads: 4,
    kv_heads: None,
    ffn: None,
    vocab: 50,
    tied: false,
    experts: None,
    top_k: None,
};

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
        bos: json!(1),
        eos: json!([2, 3]),
        ..LlamaConfig::default()
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
    write(dir.path(), config, &HfFormat::new(config, config.tensors()));
    dir
}

fn write<C: TestFamily>(folder: &Path, config: &C, format: &HfFormat) {
    let mut export = HfExport::create(folder, format).unwrap();
    for (i, (name, shape)) in config.tensors().iter().enumerate() {
        export.write(name, &values(i, shape)).unwrap();
    }
    export.finish().unwrap();
}

/// Opens a folder, and compares its tensors with its configuration.
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

/// Bytes of f32 numbers.
fn f32_bytes(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
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

/// Names of a bare model, and of one that another module wraps.
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
    let wrapped = |prefix: &'static str| move |name: &str| format!("{prefix}{name}");
    let bare = |name: &str| name.replacen("model.", "backbone.", 1);
    let inside = |name: &str| name.replacen("layers.0.", "layers.0._orig_mod.", 1);
    for rename in [
        &wrapped("module._orig_mod.") as &dyn Fn(&str) -> String,
        &wrapped("student."),
        &wrapped("_fsdp_wrapped_module."),
        &wrapped("base_model.model."),
        &bare,
        &inside,
        &|name| wrapped("module.student.")(&inside(name)),
    ] {
        renamed(rename);
        let folder = weights(dir.path(), &tied);
        let read = folder.read("model.embed_tokens.weight", &[10, 8], &TensorBox::whole(&[10, 8]));
        assert_eq!(read.unwrap(), values(0, &[10, 8]));
    }
    renamed(&|name| format!("student.{}", name.replacen("norm", "scale", 1)));
    let text = refusal(dir.path());
    let reason = "the names of all tensors begin with `student.model.`, but the model expects names such as \
                  `model.embed_tokens.weight`; rename the tensors";
    assert!(text.contains(reason), "{text}");
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

#[test]
fn other_families_are_refused_first() {
    let (llama, gpt2) = (export(&config(false)), export(&gpt2()));
    let text = refusal_of::<Gpt2Config>(llama.path());
    let reason = "config.json: model_type is \"llama\", and this program trains a \"gpt2\"; the program `train`";
    assert!(text.contains(reason), "{text}");
    for family in ["gpt2", "mamba2"] {
        set(gpt2.path(), json!({ "model_type": family }));
        let text = refusal(gpt2.path());
        let reason = format!(
            "config.json: model_type is \"{family}\", and this program trains a \"llama\", \"mistral\", \"qwen2\", \
             \"qwen3\", \"phi3\" or \"smollm3\"; the program `train` takes each family of this library"
        );
        assert!(text.contains(&reason), "{text}");
    }
    // Nothing says which it is: its sizes have other names.
    set(gpt2.path(), json!({ "model_type": null }));
    assert!(refusal(gpt2.path()).contains("hidden_size is missing"), "{}", refusal(gpt2.path()));
}
