//! `meshwright bench`: what it measures and writes, and bad input. No test depends on how fast the machine is.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Runs a command line in a folder; returns its exit code and its texts.
fn run(mut command: Command, dir: &Path, args: &str) -> (i32, String, String) {
    let command = command.args(args.split_whitespace()).current_dir(dir);
    let Output { status, stdout, stderr } = command.output().unwrap();
    let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
    (status.code().unwrap(), stdout, stderr)
}

fn meshwright(dir: &Path, args: &str) -> (i32, String, String) {
    run(Command::new(env!("CARGO_BIN_EXE_meshwright")), dir, args)
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn collectives_are_measured_and_calibrate_links() {
    let dir = tempfile::tempdir().unwrap();
    let args = "bench comm --sizes 1KiB,4098B --json comm.json --plot comm.svg";
    let (code, stdout, stderr) = meshwright(dir.path(), args);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.starts_with("2 ranks as threads ("), "{stdout}");
    assert!(stdout.ends_with("wrote comm.json\nwrote comm.svg\n"), "{stdout}");
    // The second size is rounded down.
    let rows: Vec<Vec<&str>> = stdout.lines().map(|row| row.split_whitespace().collect()).collect();
    for row in [["all_reduce", "1", "KiB"], ["all_reduce", "4", "KiB"], ["send_recv", "1", "KiB"]] {
        assert!(rows.iter().any(|found| found.starts_with(&row)), "{row:?}: {stdout}");
    }
    assert!(rows.iter().any(|row| row.first() == Some(&"barrier") && row.len() == 3), "{stdout}");
    let svg = fs::read_to_string(dir.path().join("comm.svg")).unwrap();
    assert!(svg.contains("bytes of the whole tensor") && svg.matches("<g ").count() == 9, "{svg}");
    let record = json(&dir.path().join("comm.json"));
    let all = record["collectives"].as_array().unwrap();
    assert_eq!(all.len(), 9 * 2 + 1);
    for one in all.iter().filter(|one| one["name"] == "all_reduce") {
        let [size, seconds, algorithm, bus] =
            ["size", "seconds", "algorithm_bandwidth", "bus_bandwidth"]
                .map(|key| one[key].as_f64().unwrap());
        assert!(seconds > 0.0 && (algorithm * seconds / size - 1.0).abs() < 1e-9, "{one}");
        // Of two ranks, 2 (p-1) / p.
        assert_eq!(bus, algorithm);
        assert_eq!(one["sent"], one["size"]);
    }
    let ops: Vec<&str> = record["calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| call["op"].as_str().unwrap())
        .collect();
    assert_eq!(ops.len(), 10, "calls that no rank runs ahead in: {ops:?}");

    // Beside the record of a step on the same machine.
    let mut step = record.clone();
    step["calls"] = Value::Array(Vec::new());
    let kernel = |rows: u64| {
        serde_json::json!({ "op": "gemm", "dims": [64 * rows, 64, 256, 0], "dtype": "f32", "count": 3,
                            "flops": 2 * 64 * rows * 64 * 256, "read": 65536, "written": 16384,
                            "seconds": 1e-6 + 2e-5 * rows as f64 })
    };
    step["kernels"] = (1..=12).map(kernel).collect();
    step["sharing_ranks"] = 1.into();
    fs::write(dir.path().join("step.json"), step.to_string()).unwrap();
    let (code, stdout, stderr) =
        meshwright(dir.path(), "calibrate step.json comm.json -o this.toml");
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("collectives"), "{stdout}");
    let (code, _, stderr) = meshwright(dir.path(), "calibrate comm.json -o other.toml");
    assert_eq!(code, 2, "{stderr}");
}

#[test]
fn matmuls_are_measured_by_size() {
    let dir = tempfile::tempdir().unwrap();
    let args = "bench gemm --sizes 64,96x32x48 --threads 1 --json g.json --plot g.svg";
    let (code, stdout, stderr) = meshwright(dir.path(), args);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("96 x 32 x 48") && stdout.contains("peak of bf16: "), "{stdout}");
    let peaks = stdout.lines().filter(|line| line.starts_with("peak of "));
    let peaks: Vec<&str> = peaks.collect();
    assert!(peaks.len() == 2 && peaks.iter().all(|peak| peak.contains("FLOP/s, ")), "{peaks:?}");
    let record = json(&dir.path().join("g.json"));
    let all = record["matmuls"].as_array().unwrap();
    assert_eq!(all.len(), 4);
    let fastest = |dtype: &str| {
        let own = all.iter().filter(|one| one["dtype"] == dtype);
        own.map(|one| one["share"].as_f64().unwrap()).fold(0.0, f64::max)
    };
    assert_eq!([fastest("f32"), fastest("bf16")], [1.0, 1.0]);
    let (code, _, _) = meshwright(
        dir.path(),
        "bench gemm --sizes 64 --threads 1 --dtypes f32 --peak-flops 1e18 --json given.json",
    );
    assert_eq!(code, 0);
    let given = json(&dir.path().join("given.json"));
    assert!(given["matmuls"][0]["share"].as_f64().unwrap() < 1e-3, "{given}");
}

#[test]
fn bad_input_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (args, message) in [
        ("comm --ranks 1", "one rank has no other to communicate with; use --ranks 2"),
        ("comm --ranks 0", "invalid value '0' for '--ranks <N>'"),
        (
            "comm --ops all_reduce,foo",
            "invalid value 'foo' for '--ops <NAME,..>' [possible values: all_reduce",
        ),
        (
            "comm --sizes 0",
            "--sizes: `0` has no element of f32 for each of 2 ranks; use at least 8 B",
        ),
        ("comm --sizes 6B --dtype bf16 --ranks 4", "use at least 8 B"),
        ("comm --sizes 1KiB,x", "--sizes: must be numbers of bytes such as 64KiB,8MiB, not `x`"),
        ("comm --sizes 9999TB", "but"),
        ("comm --json a.txt", "--json: a.txt does not end in .json"),
        ("comm --plot none/a.svg", "--plot: there is no folder none"),
        ("comm --device tpu", "invalid value 'tpu'"),
        ("gemm --sizes 0", "--sizes: must be numbers from 1 to 1048576"),
        ("gemm --sizes 2x3", "--sizes: must be numbers from 1 to 1048576"),
        ("gemm --sizes 1000000", "use smaller sizes"),
        ("gemm --peak-flops 1e12", "--peak-flops: is the peak in one dtype"),
        ("gemm --dtypes f32 --peak-flops -1", "--peak-flops: must be above 0"),
        ("gemm --dtypes f32 --peak-flops nan", "--peak-flops: must be above 0"),
        ("gemm --plot a.png", "--plot: a.png does not end in .svg"),
        ("foo", "unknown command `foo`"),
    ] {
        let (code, stdout, stderr) = meshwright(dir.path(), &format!("bench {args}"));
        assert_eq!((code, stdout.as_str()), (2, ""), "{args}: {stderr}");
        assert!(stderr.contains(message), "{args}: {stderr}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// A launcher that starts one process has chosen the number of ranks.
#[test]
fn one_process_of_a_launcher_has_nothing_to_measure() {
    let dir = tempfile::tempdir().unwrap();
    let bench = |args: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
        command.envs([
            ("OMPI_COMM_WORLD_RANK", "0"),
            ("OMPI_COMM_WORLD_SIZE", "1"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "0"),
        ]);
        run(command, dir.path(), &format!("bench comm --ops barrier {args}"))
    };
    let (code, stdout, stderr) = bench("");
    assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
    assert!(stderr.contains("one rank has no other to communicate with"), "{stderr}");
    let (code, stdout, stderr) = bench("--ranks 2");
    assert!(code == 0 && stdout.starts_with("2 ranks as threads ("), "{stderr}");
}

/// Processes measure together, and the first one prints and writes. One failure ends all of them.
#[cfg(feature = "mpi")]
#[test]
fn processes_measure_over_mpi() {
    let dir = tempfile::tempdir().unwrap();
    let mpirun = |args: &str| {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let beside =
            std::env::var_os("MPICC").map(|path| Path::new(&path).with_file_name("mpirun"));
        let found = beside.filter(|path| path.exists());
        let mut command = Command::new(found.unwrap_or_else(|| "mpirun".into()));
        command
            .env("MASTER_PORT", port.to_string())
            .env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe")
            .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        let tool = env!("CARGO_BIN_EXE_meshwright");
        run(command, dir.path(), &format!("-n 2 {tool} bench comm {args}"))
    };
    let (code, stdout, stderr) =
        mpirun("--sizes 1KiB --ops all_reduce,send_recv,barrier --json c.json");
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(stdout.matches("2 ranks as processes over MPI").count(), 1, "{stdout}");
    assert_eq!(json(&dir.path().join("c.json"))["collectives"].as_array().unwrap().len(), 3);
    for (args, message) in [
        ("--ranks 3", "--ranks 3: 2 processes were started"),
        ("--sizes 1KiB --json none/c.json", "--json: there is no folder none"),
    ] {
        let (code, stdout, stderr) = mpirun(args);
        assert_eq!((code, stdout.as_str()), (2, ""), "{args}: {stderr}");
        assert!(stderr.contains(message), "{args}: {stderr}");
    }
}
