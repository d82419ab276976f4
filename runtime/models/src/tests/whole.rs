//! Exports in several files and dtypes, and what they replace.

use super::*;

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn format<C: TestFamily>(config: &C) -> HfFormat {
    HfFormat::new(config, config.tensors())
}

#[test]
fn large_models_are_several_files() {
    let config = config(true);
    let dir = tempfile::tempdir().unwrap();
    // The embedding and each matrix of 128 elements is larger.
    let parts = format(&config).with_dtype(StoredDtype::Bf16).with_part_bytes(255);
    write(dir.path(), &config, &parts);
    let text = fs::read_to_string(dir.path().join("model.safetensors.index.json")).unwrap();
    let index: Value = serde_json::from_str(&text).unwrap();
    let tensors = config.tensors();
    let elements: usize = tensors.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum();
    assert_eq!(index["metadata"]["total_size"], elements * 2);
    let files: Vec<String> =
        names(dir.path()).into_iter().filter(|name| name.contains("-of-")).collect();
    assert!(files.len() > 5, "{files:?}");
    for (part, name) in files.iter().enumerate() {
        assert_eq!(*name, format!("model-{:05}-of-{:05}.safetensors", part + 1, files.len()));
        let content = fs::read(dir.path().join(name)).unwrap();
        let stored = safetensors::SafeTensors::deserialize(&content).unwrap();
        let bytes: usize = stored.tensors().iter().map(|(_, tensor)| tensor.data().len()).sum();
        assert!(bytes <= 255 || stored.len() == 1, "{name}: {bytes}");
        for tensor in stored.names() {
            assert_eq!(index["weight_map"][tensor], **name);
        }
    }
    let folder = weights(dir.path(), &config);
    assert_eq!(folder.dtype(), StoredDtype::Bf16);
    for (i, (name, shape)) in tensors.iter().enumerate() {
        let rounded: Vec<f32> =
            values(i, shape).into_iter().map(|x| half::bf16::from_f32(x).to_f32()).collect();
        assert_eq!(folder.read(name, shape, &TensorBox::whole(shape)).unwrap(), rounded, "{name}");
    }
    let keys = fs::read_to_string(dir.path().join("config.json")).unwrap();
    assert!(keys.contains("\"torch_dtype\": \"bfloat16\""), "{keys}");
    // Fewer files, one, and several again leave nothing behind.
    for bytes in [1000, usize::MAX, 255, 4000, 4000] {
        HfExport::prepare(dir.path(), &parts).unwrap();
        let parts = parts.clone().with_part_bytes(bytes);
        write(dir.path(), &config, &parts);
        let fresh = tempfile::tempdir().unwrap();
        write(fresh.path(), &config, &parts);
        assert_eq!(names(dir.path()), names(fresh.path()));
        weights(dir.path(), &config);
    }
}

/// Also over a folder that another run has exported.
#[test]
fn only_other_models_are_kept() {
    let config = config(false);
    let own = format(&config);
    let refused = |folder: &Path, format: &HfFormat, reason: &str| {
        let before = names(folder);
        let text = HfExport::prepare(folder, format).unwrap_err().to_string();
        assert!(text.contains(reason), "no `{reason}` in {text}");
        assert_eq!(names(folder), before);
    };
    let dir = export(&config);
    fs::write(dir.path().join("notes.txt"), "").unwrap();
    HfExport::prepare(dir.path(), &own).unwrap();
    let other = "the folder has a model of other sizes or another family (config.json), which the export would replace";
    refused(dir.path(), &format(&super::config(true)), other);
    refused(dir.path(), &format(&gpt2()), other);
    // Written by another program.
    write_weights(&dir.path().join("model.safetensors"), &f32_tensors(&config));
    let foreign = "the folder has a model that this program has not written (";
    refused(dir.path(), &own, foreign);
    // It is what the run started from.
    let (_, folder) = open::<LlamaConfig>(dir.path()).unwrap();
    let further = own.clone().with_keys_of(&folder);
    HfExport::prepare(dir.path(), &further).unwrap();
    for name in [
        "config.json",
        "pytorch_model.bin",
        "x.gguf",
        "a.safetensors",
        "model.safetensors.index.json",
    ] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(name), "{}").unwrap();
        refused(dir.path(), &own, &format!("{foreign}{name})"));
        refused(dir.path(), &further, foreign);
    }
    let dir = tempfile::tempdir().unwrap();
    for name in ["tokens.bin", ".tmp-model.safetensors", "README.md", "tokenizer.json"] {
        fs::write(dir.path().join(name), "{}").unwrap();
    }
    HfExport::prepare(dir.path(), &own).unwrap();
}

/// Files beside the weights, of a folder and of a tokenizer.
#[test]
fn side_files_are_completed() {
    let (mut config, source) = (config(false), tempfile::tempdir().unwrap());
    config.padding = Some(0);
    let tokenizer =
        json!({ "added_tokens": [{ "id": 1, "content": "<s>" }, { "id": 0, "content": "<pad>" }] });
    let file = |name: &str, content: &str| fs::write(source.path().join(name), content).unwrap();
    let exported = |tokenizer: Option<&Path>, folder: Option<&Path>| {
        let dir = tempfile::tempdir().unwrap();
        let files = SideFiles::read(folder, tokenizer).unwrap();
        write(dir.path(), &config, &format(&config).with_side_files(files));
        dir
    };
    let keys = |dir: &TempDir, name: &str| -> Value {
        serde_json::from_slice(&fs::read(dir.path().join(name)).unwrap()).unwrap()
    };
    let mut generation = json!({ "bos_token_id": 1, "eos_token_id": [2, 3], "pad_token_id": 0 });
    generation["_from_model_config"] = true.into();
    let class = json!({ "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "pad_token": "<pad>" });
    let new = exported(None, None);
    assert_eq!(names(new.path()), ["config.json", "generation_config.json", "model.safetensors"]);
    assert_eq!(keys(&new, "generation_config.json"), generation);
    file("tokenizer.json", &tokenizer.to_string());
    let path = source.path().join("tokenizer.json");
    let alone = exported(Some(&path), None);
    assert_eq!(keys(&alone, "tokenizer_config.json"), class);
    assert_eq!(keys(&alone, "tokenizer.json"), tokenizer);
    let beside = [
        "tokenizer_config.json",
        "special_tokens_map.json",
        "chat_template.jinja",
        "chat_template.json",
    ];
    beside.iter().for_each(|name| file(name, &format!("{{\"of\": \"{name}\"}}")));
    file("generation_config.json", "{\"top_k\": 3}");
    for (tokenizer, folder) in [(Some(&*path), None), (None, Some(source.path()))] {
        let whole = exported(tokenizer, folder);
        for name in beside {
            assert_eq!(
                fs::read(whole.path().join(name)).unwrap(),
                fs::read(source.path().join(name)).unwrap()
            );
        }
        let expected = if folder.is_some() { json!({ "top_k": 3 }) } else { generation.clone() };
        assert_eq!(keys(&whole, "generation_config.json"), expected);
    }
    // Another name says nothing about the files beside it.
    fs::rename(&path, source.path().join("own.json")).unwrap();
    let alone = exported(Some(&source.path().join("own.json")), None);
    assert_eq!(keys(&alone, "tokenizer_config.json"), class);
}
