//! `meshwright ckpt inspect`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use meshwright::checkpoint::{
    CheckpointWriter, Keep, ResumedRun, RunHistory, ShardEntry, TensorBox, TrainState,
};
use meshwright::data::{DataPosition, Order};

fn inspect(args: &[&str], dir: &Path) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    command.args(["ckpt", "inspect"]).args(args).current_dir(dir);
    let Output { status, stdout, stderr } = command.output().unwrap();
    let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
    (status.code().unwrap(), stdout, stderr)
}

fn position(samples: u64) -> DataPosition {
    DataPosition {
        samples,
        file: "text.txt".to_owned(),
        tokens: 100,
        fingerprint: "00".to_owned(),
        blocks: None,
        ids: None,
        tokenizer: None,
        seq: 8,
        batch: 8,
        order: Order::Sequential,
        seed: 0,
        documents: None,
        packing: None,
        held_out: None,
        sources: None,
        first_step: 0,
    }
}

fn save(dir: &Path, step: u64) {
    fs::create_dir_all(dir).unwrap();
    let writer = CheckpointWriter::begin_checkpoint(dir, step).unwrap();
    let whole = |name: &str, data| {
        let (global_shape, tensor_box) = (vec![2, 3], TensorBox::whole(&[2, 3]));
        ShardEntry { name: name.to_owned(), global_shape, tensor_box, data }
    };
    let values = [1.5f32; 6];
    let entries = ["params.a", "params.b", "exp_avg.a"].map(|name| whole(name, &values[..]));
    let file = writer.write_rank(0, &entries).unwrap();
    let history = RunHistory {
        run: "0123".to_owned(),
        resumed: vec![ResumedRun { run: "4567".to_owned(), step: 1 }],
    };
    let state = TrainState {
        step,
        seed: 7,
        mesh: "dp=2,tp=2".to_owned(),
        mesh_order: None,
        data: Some(position(8 * step)),
        history,
        evaluation: None,
        skipped: 0,
        config: serde_json::Value::Null,
        own_loop: None,
    };
    writer.commit(vec![file], state, Keep::default()).unwrap();
}

#[test]
fn a_checkpoint_is_described() {
    let dir = tempfile::tempdir().unwrap();
    save(&dir.path().join("out"), 2);
    save(&dir.path().join("out"), 4);
    for path in ["out", "out/latest", "out/step-00000004"] {
        let (code, stdout, stderr) = inspect(&[path], dir.path());
        assert_eq!((code, stderr.as_str()), (0, ""), "{path}");
        let first = stdout.lines().next().unwrap();
        assert!(first.ends_with("out/step-00000004: all files match their hashes"), "{stdout}");
        for line in [
            "  step 4 of seed 7, saved on the mesh dp=2,tp=2",
            "  32 samples of text.txt were trained on",
            "  run 0123",
            "  resumed from step 1 of run 4567",
            "  exp_avg            1 tensors               6 elements",
            "  params             2 tensors              12 elements",
        ] {
            assert!(stdout.lines().any(|found| found == line), "{line}\n{stdout}");
        }
        assert!(!stdout.contains("params.a"), "{stdout}");
    }
    let (_, stdout, _) = inspect(&["--tensors", "out/step-00000002"], dir.path());
    assert!(
        stdout.contains("  step 2 of seed 7") && stdout.contains("  params.a [2, 3]\n"),
        "{stdout}"
    );
}

#[test]
fn damage_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    save(&dir.path().join("out"), 2);
    save(&dir.path().join("out"), 4);
    let file = dir.path().join("out/step-00000004/rank-00000.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let (code, stdout, stderr) = inspect(&["out"], dir.path());
    assert_eq!((code, stderr.as_str()), (1, ""));
    assert!(stdout.starts_with("skipped: "), "{stdout}");
    assert!(
        stdout.contains("step-00000004/rank-00000.safetensors is damaged: its content differs")
    );
    assert!(stdout.contains("out/step-00000002: all files match their hashes"), "{stdout}");
    let (code, stdout, stderr) = inspect(&["out/step-00000004"], dir.path());
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert!(stderr.starts_with("error: ") && stderr.contains("is damaged"), "{stderr}");
    let (code, _, stderr) = inspect(&["none"], dir.path());
    assert_eq!(code, 2);
    assert!(stderr.starts_with("error: no checkpoint at none: "), "{stderr}");
}

#[test]
fn forged_manifests_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    save(&dir.path().join("out"), 2);
    let checkpoint = dir.path().join("out/step-00000002");
    let text = std::fs::read_to_string(checkpoint.join("manifest.json")).unwrap();
    for (from, to, expected) in [
        ("rank-00000.safetensors", "../../../etc/passwd", "it names \"../../../etc/passwd\""),
        ("\"step\": 2", "\"step\": -2", "invalid value"),
        ("\"offset\": [", "\"offset\": [7,", "outside its shape"),
    ] {
        let forged = text.replace(from, to);
        assert_ne!(forged, text);
        let hash = xxhash_rust::xxh3::xxh3_128(forged.as_bytes());
        std::fs::write(checkpoint.join("manifest.json"), forged).unwrap();
        std::fs::write(checkpoint.join("manifest.xxh3"), format!("{hash:032x}")).unwrap();
        let (code, stdout, stderr) = inspect(&["out"], dir.path());
        assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
        assert!(stderr.starts_with("error: ") && stderr.contains(expected), "{stderr}");
    }
}
