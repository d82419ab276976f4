//! Settings that a mesh or a checkpoint determines.

use std::ffi::OsString;
use std::path::Path;

use super::*;
use crate::train::config::kept_flags;

fn settings(line: &str) -> RunSettings {
    let words = line.split(' ').map(OsString::from);
    RunSettings::read(words, &Optimizers::default()).unwrap()
}

#[test]
fn a_mesh_may_be_left_to_the_trainer() {
    let mesh = |line: &str| settings(line).mesh;
    let auto = |ranks| Some(MeshSetting::Auto(ranks));
    assert_eq!(mesh("t --mesh dp=2"), Some(MeshSetting::Axes("dp=2".parse().unwrap())));
    assert_eq!(mesh("t"), None);
    assert_eq!(mesh("t --mesh auto=8"), auto(Some(8)));
    assert_eq!(mesh("t --mesh auto"), auto(None));
    for text in ["auto=0", "auto=two", "auto8", "auto="] {
        let expected =
            format!("--mesh: `{text}` is not a number of ranks; write for example `auto=8`");
        assert_eq!(refusal(&format!("--mesh {text}")), expected);
    }
    let expected = "--mesh: `auto=2` is not compared by --preflight; name the axes of the run";
    assert_eq!(refusal("--mesh auto=2 --preflight"), expected);
}

/// RunSettings of a command line that resumes the run of another one.
fn resumed(line: &str, saved: &str) -> Result<Config, String> {
    let saved = Config::parse(saved.split(' ')).unwrap();
    let saved = serde_json::to_value(kept_flags(&saved)).unwrap();
    let kept = settings(line).with_kept(Path::new("out/step-00000002"), &saved);
    kept.and_then(RunSettings::resolve).map_err(|error| error.to_string())
}

#[test]
fn a_resumed_run_takes_the_saved_settings() {
    let saved = "t --mesh fsdp=2 --zero 1 --micro-batches 2 --hidden 64 --data /a --lr 1e-2 --steps 9 --seed 4";
    let expected = Config::parse(format!("{saved} --resume out").split(' ')).unwrap();
    assert_eq!(resumed("t --resume out", saved), Ok(expected.clone()));
    assert_eq!(resumed("t --resume out --mesh fsdp=2,dp=1 --hidden 64", saved), Ok(expected));
    // What depends on the mesh is that of the new one; micro-batches, on which results may depend, are kept.
    let line = "t --resume out --mesh dp=2 --lr 1 --steps 20 --data /b";
    let expected = format!("{line} --hidden 64 --seed 4 --micro-batches 2");
    let expected = Config::parse(expected.split(' ')).unwrap();
    assert_eq!(resumed(line, saved), Ok(expected));
    // A chosen mesh, and an optimizer with other settings.
    let saved = "t --mesh pp=2 --stages 2,2 --optimizer muon --momentum 0.5 --mesh-order pp";
    assert!(resumed("t --mesh cp=2 --cp ring --optimizer adamw", saved).is_ok());
    assert!(resumed("t --schedule gpipe --virtual-stages 1", saved).is_ok());
    // A schedule without an end, over one that has an end.
    let saved = "t --lr-schedule cosine --min-lr 1e-5";
    assert!(resumed("t --lr-schedule constant", saved).is_ok());
    assert_eq!(resumed("t --lr-schedule wsd", saved).unwrap().optimizer.lr.min, 1e-5);
    let saved = "t --mesh pp=2 --stages 2,2 --optimizer muon --momentum 0.5 --mesh-order pp";
    // A folder replaces sizes, and sizes a folder.
    assert!(resumed("t --init-from a --mesh 1", saved).is_ok());
    assert!(resumed("t --hidden 16 --mesh 1", "t --init-from a").is_ok());
    assert!(resumed("t --architecture a --mesh 1", "t --init-from a").is_ok());
    assert!(resumed("t --init-from a --mesh 1", "t --architecture a").is_ok());
    assert!(resumed("t --hidden 16 --mesh 1", "t --architecture a").is_ok());
}

#[test]
fn other_sizes_than_the_saved_ones_are_named() {
    let saved = "t --hidden 64 --vocab 300 --ffn 8";
    let text =
        resumed("t --hidden 32 --vocab 300 --tied --ffn 16 --kv-heads 1", saved).unwrap_err();
    for part in [
        "the settings have 4 problems",
        "--hidden: 32, but 64 was saved in out/step-00000002; leave it out",
        "--kv-heads: 1, but 4 was saved",
        "--ffn: 16, but 8 was saved",
        "--tied: true, but false was saved",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

/// RunSettings of another version, or forged ones.
#[test]
fn unknown_saved_settings_are_refused() {
    // What a run writes is no setting that a checkpoint keeps.
    for name in [
        "export-hf",
        "save",
        "metrics",
        "trace",
        "stage-times",
        "record",
        "explain",
        "threads",
        "resume",
        "config",
    ] {
        let saved = serde_json::json!({ name: "true" });
        let text = settings("t").with_kept(Path::new("out"), &saved).unwrap_err().to_string();
        let expected =
            format!("the saved setting `{name}` is none that checkpoints of this version keep");
        assert!(text.contains(&expected), "{text}");
    }
    for (saved, expected) in [
        (serde_json::json!({ "other": "1" }), "the saved setting `other` is none"),
        (serde_json::json!({ "hidden": 64 }), "the saved setting `hidden` is none"),
        (serde_json::json!([]), "the saved settings are damaged"),
        (serde_json::json!({ "lr": "x" }), "as saved in out: --lr: must be"),
    ] {
        let kept = settings("t").with_kept(Path::new("out"), &saved);
        let text = kept.and_then(RunSettings::resolve).unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
    }
}

/// Checkpoints do not hold flags of a task, so those of the command line apply.
#[test]
fn a_resumed_run_has_the_flags_of_its_task() {
    let saved = serde_json::json!({ "hidden": "64" });
    let given = settings("t --resume out").with_task_flags(7u32);
    let task = given.with_kept(Path::new("out"), &saved).unwrap().task.unwrap();
    assert_eq!(task.flags.unwrap().downcast_ref::<u32>(), Some(&7));
}

#[test]
fn a_chosen_mesh_replaces_the_request() {
    let settings = settings("t --mesh auto=4 --batch 8");
    let mesh: MeshShape = "fsdp=4".parse().unwrap();
    let config = settings.with_mesh(&mesh).resolve().unwrap();
    assert_eq!((config.mesh, config.batch), (mesh, 8));
    assert!(settings.resolve().unwrap_err().to_string().contains("Trainer::from_args"));
}
