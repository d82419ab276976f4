//! Folders and files that are known, but no models that can be read: each is named, with the next step.

use super::*;

/// Asserts that a folder with these files, whose content does not count, is refused, with and without `config.json`.
#[track_caller]
fn assert_named(files: &[&str], reason: &str) {
    for has_config in [false, true] {
        let dir = export(&config(false));
        let folder = dir.path();
        fs::remove_file(folder.join("model.safetensors")).unwrap();
        if !has_config {
            fs::remove_file(folder.join("config.json")).unwrap();
        }
        for name in files {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "{}").unwrap();
        }
        let text = refusal(folder);
        let reason = reason.replace("DIR", &folder.display().to_string());
        assert!(text.contains(&reason), "no `{reason}` in {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

#[test]
fn weights_in_other_formats_are_named() {
    let convert = "python3 -c 'from transformers import AutoModelForCausalLM as M; M.from_pretrained(\"DIR\", \
                   dtype=\"auto\").save_pretrained(\"DIR\")'";
    for name in
        ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "pytorch_model.bin.index.json"]
    {
        let reason = format!(
            "its weights are in pickle files ({name}); convert them to safetensors: {convert}"
        );
        assert_named(&[name], &reason);
    }
    for (files, reason) in [
        (
            &["x.Q4_K_M.gguf"][..],
            "x.Q4_K_M.gguf is a GGUF file, whose weights are mostly quantized; use the folder",
        ),
        (&["x.gguf", "tokenizer.json"], "M.from_pretrained(\"DIR\", gguf_file=\"x.gguf\", dtype"),
        (
            &["adapter_config.json", "adapter_model.safetensors"],
            "it is an adapter (adapter_config.json), not a whole",
        ),
        (
            &["params.json", "consolidated.00.pth", "tokenizer.model"],
            "consolidated.00.pth is of the format in which",
        ),
        (
            &["consolidated.safetensors"],
            "consolidated.safetensors is of the format in which Meta or Mistral",
        ),
        (&["tf_model.h5"], "tf_model.h5 holds weights of TensorFlow or Flax"),
        (&["flax_model.msgpack"], "flax_model.msgpack holds weights of TensorFlow or Flax"),
        (
            &["model-00001-of-00002.safetensors"],
            "several files of weights, but no model.safetensors.index.json",
        ),
        (
            &["weights.safetensors"],
            "its only file of weights is weights.safetensors; rename it to model.safetensors",
        ),
    ] {
        assert_named(files, reason);
    }
}

/// A folder without a configuration has nothing else to name.
#[test]
fn missing_files_are_named() {
    let dir = export(&config(false));
    fs::remove_file(dir.path().join("config.json")).unwrap();
    let text = refusal(dir.path());
    assert!(text.contains("config.json: No such file"), "{text}");
    fs::write(dir.path().join("model.onnx"), "").unwrap();
    fs::remove_file(dir.path().join("model.safetensors")).unwrap();
    fs::write(dir.path().join("config.json"), config(false).to_json().to_string()).unwrap();
    let text = refusal(dir.path());
    assert!(text.contains("index.json, and no weights in another known format"), "{text}");
}

#[test]
fn incomplete_downloads_are_named() {
    for name in ["model.safetensors.incomplete", ".cache/huggingface/download/abc.incomplete"] {
        let file = name.rsplit('/').next().unwrap();
        assert_named(
            &[name],
            &format!("its download is not complete ({file}); start the download again"),
        );
    }
    // A snapshot of the hub's cache is links to blobs. Some blobs are not there yet.
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("models--o--n");
    let snapshot = model.join("snapshots/0123");
    fs::create_dir_all(&snapshot).unwrap();
    fs::create_dir(model.join("blobs")).unwrap();
    fs::write(snapshot.join("config.json"), config(false).to_json().to_string()).unwrap();
    std::os::unix::fs::symlink("../../blobs/45", snapshot.join("model.safetensors")).unwrap();
    let text = refusal(&snapshot);
    assert!(
        text.contains("model.safetensors is a link to a file that is not there; download"),
        "{text}"
    );
    fs::write(model.join("blobs/45.incomplete"), "").unwrap();
    let text = refusal(&snapshot);
    assert!(text.contains("its download is not complete (45.incomplete)"), "{text}");
}

#[test]
fn folders_around_a_model_name_it() {
    for place in ["", "models--o--n", "models--o--n/snapshots"] {
        let dir = tempfile::tempdir().unwrap();
        let model = dir.path().join("models--o--n");
        for revision in ["ab", "cd"] {
            fs::create_dir_all(model.join("snapshots").join(revision)).unwrap();
        }
        fs::create_dir_all(model.join("refs")).unwrap();
        fs::write(model.join("refs/main"), "ab").unwrap();
        let text = refusal(&dir.path().join(place));
        let snapshot = model.join("snapshots/ab").display().to_string();
        assert!(
            text.ends_with(&format!("hub's cache; name the snapshot in it, {snapshot}")),
            "{text}"
        );
    }
    assert_named(
        &["checkpoint-500/config.json"],
        "inside of it has a model; name DIR/checkpoint-500",
    );
    let of_run = "it holds checkpoints of a run; --resume DIR continues the run, and --resume DIR --export-hf DIR";
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("step-00000010")).unwrap();
    let text = refusal(dir.path());
    assert!(text.contains(&of_run.replacen("DIR", &dir.path().display().to_string(), 2)), "{text}");
}

#[test]
fn files_are_no_folders() {
    let dir = export(&config(false));
    for (name, reason) in [
        ("model.safetensors", "it is a file, not a folder; name the folder that it is in"),
        ("config.json", "it is a file, not a folder; name the folder that it is in"),
        ("x.gguf", "it is a GGUF file; use the folder of safetensors that it was made from"),
        ("x.bin", "it is a file, not a folder"),
    ] {
        let path = dir.path().join(name);
        if !path.exists() {
            fs::write(&path, "").unwrap();
        }
        let text = refusal(&path);
        assert!(text.ends_with(reason) || text.contains(&format!("{reason},")), "{text}");
    }
    for (path, reason) in [
        ("owner/name", "no such folder; a model of the Hugging Face hub is named hf://owner/name"),
        ("https://huggingface.co/owner/name", "is named hf://owner/name"),
        ("https://huggingface.co/owner/name/tree/main", "is named hf://owner/name"),
        ("/owner/name", "/owner/name: there is no such folder"),
        ("../owner", "../owner: there is no such folder"),
        ("name", "name: there is no such folder"),
    ] {
        let text = refusal(Path::new(path));
        assert!(text.ends_with(reason), "{text}");
    }
}
