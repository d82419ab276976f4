//! Checkpoints that are written while training goes on: `--save-async`.

use crate::{SMALL, Workspace, assert_contains};

const MESHES: [&str; 5] = [
    "1",
    "dp=2,tp=2",
    "fsdp=2,tp=2 --zero 3 --dtype bf16 --ema 0.9",
    "pp=2 --micro-batches 2 --tied",
    "dp=2 --zero 0 --optimizer muon",
];

/// A checkpoint holds the state after its step, whatever is trained until it is complete.
#[test]
fn checkpoints_are_those_of_a_run_that_waits() {
    let workspace = Workspace::new();
    for (index, mesh) in MESHES.iter().enumerate() {
        let line = format!("--mesh {mesh} --steps 9 --save-every 2");
        let [waits, goes_on] = ["waits", "async"].map(|name| format!("{name}-{index}"));
        workspace.train(&format!("{line} --save {waits}"));
        workspace.train(&format!("{line} --save {goes_on} --save-async"));
        let files = |dir: &str| -> Vec<String> {
            let all = workspace.listing().into_iter();
            all.filter_map(|name| Some(name.strip_prefix(dir)?.to_owned())).collect()
        };
        let names = files(&waits);
        assert_eq!(names, files(&goes_on), "{mesh}");
        let tensors: Vec<_> = names.iter().filter(|name| name.ends_with(".safetensors")).collect();
        assert!(tensors.len() >= 5, "{mesh}: {names:?}");
        for name in tensors {
            let read = |dir: &str| workspace.read(&format!("{dir}{name}"));
            assert!(read(&waits) == read(&goes_on), "{mesh}: {name}");
        }
    }
}

#[test]
fn old_checkpoints_are_removed() {
    let workspace = Workspace::new();
    workspace.train("--mesh dp=2 --steps 7 --save out --save-every 2 --save-async --keep 2");
    let names = workspace.folder_entries();
    assert_eq!(names, ["out/latest", "out/step-00000006", "out/step-00000007"]);
}

/// The run waits for the checkpoint before it reports, and does not save the same state again.
#[test]
fn a_run_that_diverges_completes_its_checkpoint() {
    let workspace = Workspace::new();
    for mesh in ["1", "dp=2,tp=2"] {
        let line = format!("{SMALL} --mesh {mesh} --steps 9 --lr 1e30 --save out");
        let finished = workspace.run(&format!("{line} --save-every 1 --save-async"));
        assert_contains(finished.error(), "error: step 2: the ");
        assert_contains(finished.error(), "the state before this step is in out. A lower --lr");
        let names = workspace.folder_entries();
        assert_eq!(names, ["out/latest", "out/step-00000001"], "{mesh}");
        std::fs::remove_dir_all(workspace.path("out")).unwrap();
    }
}

#[test]
fn parameters_that_are_not_finite_are_not_saved() {
    let workspace = Workspace::new();
    workspace.train("--steps 2 --save out");
    let line = format!("{SMALL} --lr 1e39 --clip 0 --weight-decay 0 --resume out --save out");
    let finished = workspace.run(&format!("{line} --save-every 1 --save-async --steps 9"));
    assert_contains(finished.error(), "error: step 3: its update has made elements of");
    assert!(workspace.path("out/step-00000002/manifest.json").is_file());
    assert!(!workspace.path("out/step-00000003").exists());
}
