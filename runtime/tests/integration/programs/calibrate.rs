//! `meshwright calibrate`: records, and other files that are given by mistake.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use meshwright::sim::calibrate::{KernelRecord, RecordedDevice, StepRecord};

/// Runs the subcommand in a folder; returns its exit code and its texts.
fn calibrate(dir: &Path, args: &str) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    let command = command.arg("calibrate").args(args.split_whitespace()).current_dir(dir);
    let Output { status, stdout, stderr } = command.output().unwrap();
    let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
    (status.code().unwrap(), stdout, stderr)
}

/// Writes a record with `shapes` shapes of matmuls.
fn write_record(path: &Path, device: &str, shapes: u32) {
    let (format, version) = StepRecord::format();
    let kernels = (1..=shapes).map(|idx| KernelRecord {
        op: "gemm".into(),
        dims: [64 * idx, 64, 256, 0],
        dtype: "f32".into(),
        count: 3,
        flops: 2 * u64::from(64 * idx) * 64 * 256,
        read: 1 << 16,
        written: 1 << 14,
        seconds: 1e-6 + f64::from(idx) * 2e-5,
    });
    let record = StepRecord {
        format,
        version,
        device: RecordedDevice {
            kind: "cpu".into(),
            name: device.into(),
            units: 2,
            memory: 1 << 34,
        },
        mesh: "1".into(),
        ranks: 1,
        sharing_ranks: 1,
        dtype: "f32".into(),
        step_seconds: 0.1,
        recorded_seconds: 0.1,
        host_seconds: 0.0,
        measured_steps: 1,
        kernels: kernels.collect(),
        calls: Vec::new(),
    };
    fs::write(path, serde_json::to_string(&record).unwrap()).unwrap();
}

#[test]
fn a_cluster_is_written() {
    let dir = tempfile::tempdir().unwrap();
    write_record(&dir.path().join("r.json"), "A CPU", 12);
    let (code, stdout, stderr) = calibrate(dir.path(), "r.json -o this.toml");
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.contains("matmuls              2 of  12 shapes  "), "{stdout}");
    assert!(stdout.contains("uncertainty of +-8 %"), "{stdout}");
    assert!(stdout.ends_with("train_llama --mesh tp=2 --simulate ./this.tomlx2\n"), "{stdout}");
    let text = fs::read_to_string(dir.path().join("this.toml")).unwrap();
    assert!(text.contains("trust = \"measured\"") && text.contains("[[gpu.sharing]]"), "{text}");
    let mut show = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    let shown =
        show.args(["clusters", "show", "this.toml"]).current_dir(dir.path()).output().unwrap();
    assert!(shown.status.success());
}

#[test]
fn bad_input_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    write_record(&dir.path().join("r.json"), "A CPU", 12);
    write_record(&dir.path().join("b.json"), "B CPU", 12);
    write_record(&dir.path().join("one.json"), "A CPU", 1);
    fs::write(dir.path().join("explain.json"), "{\"collectives\": [], \"kernels\": []}").unwrap();
    for (args, message) in [
        ("none.json -o a.toml", "none.json: No such file"),
        ("explain.json -o a.toml", "explain.json: is the log of a dry run, which has no durations"),
        ("r.json b.json -o a.toml", "r.json is of `A CPU`, but b.json is of `B CPU`"),
        ("one.json -o a.toml", "one.json: has 1 shapes of matmuls, from which no curve follows"),
        ("r.json -o none/a.toml", "-o none/a.toml: the folder does not exist"),
        ("r.json -o a.json", "-o a.json: name a file such as this.toml"),
        ("-o a.toml", "FILE.json"),
        ("r.json", "--output <FILE.toml>"),
    ] {
        let (code, stdout, stderr) = calibrate(dir.path(), args);
        assert_eq!((code, stdout.as_str()), (2, ""), "{args}: {stderr}");
        assert!(stderr.contains(message), "{args}: {stderr}");
        assert!(!dir.path().join("a.toml").exists());
    }
}
