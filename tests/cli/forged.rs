//! Checkpoints with forged manifests: each is refused with one message, or loaded, and never a panic.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use meshwright::checkpoint::{Checkpoint, Manifest};
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_128;

use super::*;

/// Values that a forger puts in the place of others.
fn unlikely_values() -> Vec<Value> {
    let nested = (0..200).fold(json!(1), |inner, _| json!([inner]));
    vec![
        Value::Null,
        json!(true),
        json!(-1),
        json!(0),
        json!(3),
        json!(1e300),
        json!(0.5),
        json!(i64::MAX),
        json!(u64::MAX),
        json!(1u64 << 62),
        json!(""),
        json!("../../../../etc/passwd"),
        json!("/etc/passwd"),
        json!("rank-00000.safetensors"),
        json!("rank-00099.safetensors"),
        json!("x".repeat(5000)),
        json!([]),
        json!({}),
        json!([1, 2, 3]),
        json!([u64::MAX, u64::MAX]),
        json!([0, u64::MAX, u64::MAX]),
        nested,
    ]
}

/// A generator of numbers from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % limit
    }
}

/// Lists the paths of all values.
fn paths(value: &Value, path: &str, found: &mut Vec<String>) {
    found.push(path.to_owned());
    match value {
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(index, item)| paths(item, &format!("{path}/{index}"), found));
        }
        Value::Object(entries) => {
            let escape = |key: &str| key.replace('~', "~0").replace('/', "~1");
            let entries = entries.iter();
            entries.for_each(|(key, item)| paths(item, &format!("{path}/{}", escape(key)), found));
        }
        _ => {}
    }
}

/// Replaces, removes or repeats a value.
fn forge_value(manifest: &mut Value, numbers: &mut Numbers) {
    let mut found = Vec::new();
    paths(manifest, "", &mut found);
    let path = found[numbers.below(found.len())].clone();
    let target = manifest.pointer_mut(&path).unwrap();
    let unlikely = unlikely_values();
    match (numbers.below(4), target) {
        (0, Value::Array(items)) if !items.is_empty() => {
            items.remove(numbers.below(items.len()));
        }
        (1, Value::Array(items)) if !items.is_empty() => {
            items.push(items[numbers.below(items.len())].clone());
        }
        (0, Value::Object(entries)) if !entries.is_empty() => {
            let key = entries.keys().nth(numbers.below(entries.len())).unwrap().clone();
            entries.remove(&key);
        }
        (1, Value::Object(entries)) if !entries.is_empty() => {
            let other = entries.values().nth(numbers.below(entries.len())).unwrap().clone();
            entries.insert("other".to_owned(), other);
        }
        (_, target) => *target = unlikely[numbers.below(unlikely.len())].clone(),
    }
}

/// Returns the text of a forged manifest.
fn forge(text: &[u8], seed: usize) -> Vec<u8> {
    let mut numbers = Numbers(seed as u64);
    if seed.is_multiple_of(10) {
        let mut text = text.to_vec();
        let at = numbers.below(text.len());
        match numbers.below(4) {
            0 => text.truncate(at),
            1 => text[at] = 0xff,
            2 => text.clear(),
            _ => {
                text.splice(at..at, [b'['; 300]);
            }
        }
        return text;
    }
    let mut manifest: Value = serde_json::from_slice(text).unwrap();
    for _ in 0..1 + numbers.below(3) {
        forge_value(&mut manifest, &mut numbers);
    }
    serde_json::to_vec(&manifest).unwrap()
}

/// Writes a manifest with the hash that it has.
pub fn write_manifest(checkpoint: &Path, text: &[u8]) {
    fs::write(checkpoint.join("manifest.json"), text).unwrap();
    fs::write(checkpoint.join("manifest.xxh3"), format!("{:032x}", xxh3_128(text))).unwrap();
}

/// A workspace with a checkpoint of two steps on two ranks, and the text of its manifest.
fn saved() -> (Workspace, PathBuf, Vec<u8>) {
    let workspace = Workspace::new();
    workspace.train("--mesh fsdp=2 --steps 2 --save out");
    let checkpoint = workspace.path("out/step-00000002");
    let manifest = workspace.read("out/step-00000002/manifest.json");
    (workspace, checkpoint, manifest)
}

#[test]
fn no_manifest_panics() {
    let (_workspace, checkpoint, manifest) = saved();
    let mut refused = 0;
    for seed in 0..500 {
        write_manifest(&checkpoint, &forge(&manifest, seed));
        let opened = std::panic::catch_unwind(|| Checkpoint::open(&checkpoint));
        match opened.unwrap_or_else(|_| panic!("manifest {seed} panics")) {
            Ok(opened) => {
                let held = opened.manifest().files.iter().map(|file| file.bytes).sum::<u64>();
                assert!(held < 1 << 20, "manifest {seed}: {held} bytes");
            }
            Err(error) => {
                refused += 1;
                assert!(error.to_string().contains("step-00000002"), "manifest {seed}: {error}");
            }
        }
    }
    assert!(refused > 350, "only {refused} of 500 are refused");
}

#[test]
fn forged_manifests_are_refused_on_resume() {
    let (workspace, checkpoint, manifest) = saved();
    for seed in (0..500).step_by(7) {
        write_manifest(&checkpoint, &forge(&manifest, seed));
        let line = format!("{SMALL} --mesh fsdp=2 --steps 3 --resume out/step-00000002");
        let run = workspace.run(&line);
        if run.code != Some(0) {
            run.error();
        }
    }
}

/// A checkpoint names no file or folder that a run writes.
#[test]
fn forged_outputs_are_refused() {
    let (workspace, checkpoint, text) = saved();
    workspace.write("victim", b"precious");
    let before = workspace.listing();
    for name in
        ["export-hf", "save", "metrics", "trace", "stage-times", "explain", "threads", "config"]
    {
        let mut forged: Value = serde_json::from_slice(&text).unwrap();
        forged["config"]["flags"][name] = json!("victim");
        write_manifest(&checkpoint, &serde_json::to_vec(&forged).unwrap());
        let run = workspace.run("--resume out --steps 3");
        let expected =
            format!("the saved setting `{name}` is none that checkpoints of this version keep");
        assert_contains(run.error(), &expected);
    }
    assert_eq!(workspace.listing(), before);
    assert_eq!(workspace.read("victim"), b"precious");
}

/// Each fault by itself, with its message.
#[test]
fn forged_names_and_boxes_are_named() {
    let (workspace, checkpoint, text) = saved();
    let manifest: Value = serde_json::from_slice(&text).unwrap();
    let shards = "/files/0/shards/0";
    for (path, value, expected) in [
        ("/files/0/name", json!("../step-00000002/rank-00000.safetensors"), "it names \"../step"),
        ("/files/0/name", json!("/etc/passwd"), "files of ranks are rank-NNNNN.safetensors"),
        ("/files/0/name", json!("rank-00001.safetensors"), "it names rank-00001.safetensors twice"),
        (
            "/files/0/bytes",
            json!(1u64 << 40),
            "rank-00000.safetensors has 1099511627776 bytes, but",
        ),
        ("/files/0/bytes", json!(8), "has 8 bytes, but its shards have"),
        (&format!("{shards}/offset"), json!([0, 0, 0, 0]), "outside its shape"),
        (&format!("{shards}/shape"), json!([]), "outside its shape"),
        (&format!("{shards}/offset/0"), json!(u64::MAX), "outside its shape"),
        (&format!("{shards}/global_shape"), json!([u64::MAX, u64::MAX]), "another file says"),
    ] {
        let mut forged = manifest.clone();
        *forged.pointer_mut(path).unwrap_or_else(|| panic!("{path}")) = value;
        write_manifest(&checkpoint, &serde_json::to_vec(&forged).unwrap());
        let text = Checkpoint::open(&checkpoint).unwrap_err().to_string();
        assert_contains(&text, "manifest.json is damaged: ");
        assert_contains(&text, expected);
        let run = workspace.run(&format!("{SMALL} --mesh fsdp=2 --steps 3 --resume out"));
        assert_contains(run.error(), expected);
    }
}

/// A damaged checkpoint with a file of any length is skipped, and none of its content is read.
#[test]
fn endless_sparse_files_are_skipped() {
    let (workspace, checkpoint, _) = saved();
    workspace.train("--mesh fsdp=2 --steps 4 --save out --resume out");
    let newest = workspace.path("out/step-00000004");
    for name in ["rank-00001.safetensors", "manifest.json", "manifest.xxh3"] {
        let path = newest.join(name);
        let content = fs::read(&path).unwrap();
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
        let opened = Checkpoint::open(&workspace.path("out")).unwrap();
        assert_eq!(opened.folder(), checkpoint);
        assert_contains(&opened.skipped()[0].to_string(), &format!("{name} is damaged: "));
        fs::write(&path, content).unwrap();
    }
    Checkpoint::open(&newest).unwrap();
}

/// A file of a checkpoint that is a link to a file elsewhere.
#[test]
fn links_out_of_a_checkpoint_are_not_opened() {
    let (workspace, checkpoint, _) = saved();
    for name in ["rank-00001.safetensors", "manifest.json", "manifest.xxh3"] {
        let (path, elsewhere) = (checkpoint.join(name), workspace.path("elsewhere"));
        fs::rename(&path, &elsewhere).unwrap();
        symlink(&elsewhere, &path).unwrap();
        let text = Checkpoint::open(&checkpoint).unwrap_err().to_string();
        assert_contains(&text, &format!("{name} is damaged: it is a link out of its checkpoint"));
        fs::remove_file(&path).unwrap();
        fs::rename(&elsewhere, &path).unwrap();
    }
    // A link within the checkpoint, and one to the whole checkpoint.
    fs::rename(checkpoint.join("manifest.json"), checkpoint.join("other.json")).unwrap();
    symlink("other.json", checkpoint.join("manifest.json")).unwrap();
    symlink(&checkpoint, workspace.path("link")).unwrap();
    Checkpoint::open(&workspace.path("link")).unwrap();
}

/// `latest` as a file of text, with the path of another file.
#[test]
fn a_latest_of_text_is_not_followed() {
    let (workspace, checkpoint, _) = saved();
    let latest = workspace.path("out/latest");
    for text in ["step-00000001", "../../../../etc/passwd", "/etc/passwd", ""] {
        fs::remove_file(&latest).unwrap();
        fs::write(&latest, text).unwrap();
        for path in [&latest, &workspace.path("out")] {
            assert_eq!(Checkpoint::open(path).unwrap().folder(), checkpoint);
        }
    }
}

/// A tensor without elements; no file holds a shard of it.
#[test]
fn empty_tensors_need_no_shard() {
    let (_workspace, checkpoint, text) = saved();
    let mut manifest: Value = serde_json::from_slice(&text).unwrap();
    manifest["tensors"]["params.empty"] = json!({ "shape": [0, 3] });
    write_manifest(&checkpoint, &serde_json::to_vec(&manifest).unwrap());
    let opened = Checkpoint::open(&checkpoint).unwrap();
    let none = meshwright::checkpoint::TensorBox::whole(&[0, 3]);
    use meshwright::checkpoint::TensorSource;
    assert_eq!(opened.read("params.empty", &[0, 3], &none).unwrap(), Vec::<f32>::new());
    assert!(Manifest::read(&checkpoint).is_ok());
}
