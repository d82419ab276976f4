//! Dry runs of models that no machine of a test can hold: in little memory, and few addresses.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Workspace, assert_contains, gpt2_program, mixtral_program, program};

/// Limit of the addresses of a dry run, in kB.
const ADDRESSES: usize = 8_000_000;

/// Largest resident memory of a dry run, in kB.
const RESIDENT: usize = 200_000;

const LLAMA_70B: &str = "--hidden 8192 --layers 80 --heads 64 --kv-heads 8 --ffn 28672 --vocab 128256 \
                         --seq 4096 --data text.txt";
const LLAMA_405B: &str = "--hidden 16384 --layers 126 --heads 128 --kv-heads 8 --ffn 53248 --vocab 128256 \
                          --seq 8192 --data text.txt";
const MIXTRAL_8X22B: &str = "--hidden 6144 --layers 56 --heads 48 --kv-heads 8 --ffn 16384 \
                             --vocab 32768 --seq 4096 --data text.txt";

/// Lists the collectives of a step under the limits, and returns what is printed.
#[track_caller]
fn dry_run(program: &Command, line: &str) -> String {
    let workspace = Workspace::new();
    let text: String = (0..4000).map(|n| format!("{n} times {n} is {}\n", n * n)).collect();
    workspace.write("text.txt", text.as_bytes());
    // Zeros that take no place.
    std::fs::File::create(workspace.path("long.u16.bin")).unwrap().set_len(200_000_016).unwrap();
    let mut limited = Command::new("bash");
    let script = format!("ulimit -v {ADDRESSES}; exec \"$0\" \"$@\"");
    limited.arg("-c").arg(script).arg(program.get_program());
    limited.args(line.split_whitespace()).arg("--explain").current_dir(workspace.path(""));
    let (output, errors) = (workspace.path("stdout"), workspace.path("stderr"));
    let file = |path| Stdio::from(std::fs::File::create(path).unwrap());
    let mut child = limited.stdout(file(&output)).stderr(file(&errors)).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let (start, mut peak) = (Instant::now(), 0);
    let code = loop {
        // The peak of the process so far.
        let of_process = std::fs::read_to_string(&status).unwrap_or_default();
        let resident = of_process.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let resident = resident.and_then(|text| text.split_whitespace().next()?.parse().ok());
        peak = peak.max(resident.unwrap_or(0));
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        if start.elapsed() > Duration::from_secs(300) {
            child.kill().unwrap();
            panic!("still running: {line}");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let [output, errors] = [output, errors].map(|path| std::fs::read_to_string(path).unwrap());
    assert_eq!(code, Some(0), "{line}\n{output}\n{errors}");
    println!("{peak} kB in {:.1} s: {line}", start.elapsed().as_secs_f64());
    assert!(peak < RESIDENT, "{line}: {peak} kB\n{output}\n{errors}");
    assert!(!errors.contains("the memory plan leaves out"), "{line}\n{errors}");
    assert_contains(&output, "collectives of a step");
    output + &errors
}

#[test]
fn a_70b_needs_little_memory_at_every_zero_stage() {
    for flags in [
        "--mesh fsdp=8 --batch 8 --zero 0",
        "--mesh fsdp=8 --batch 8 --zero 1 --dtype bf16",
        "--mesh fsdp=8 --batch 8 --zero 2",
        "--mesh fsdp=8 --batch 16 --zero 3 --micro-batches 2 --recompute full",
        "--mesh dp=2,fsdp=4 --batch 8 --zero 2 --dtype bf16 --reduce-dtype bf16",
        "--mesh 1 --batch 1",
        "--mesh fsdp=8 --batch 8 --optimizer muon --zero 2",
        "--mesh fsdp=2,cp=2,tp=2 --batch 8 --recompute full --documents 10 --ema 0.99",
        "--mesh fsdp=4,tp=2 --batch 8 --zero 3 --save run --save-every 1 --save-async --export-hf folder",
    ] {
        dry_run(&program(), &format!("{LLAMA_70B} {flags}"));
    }
}

#[test]
fn a_mesh_is_chosen_for_a_70b() {
    let notes = [
        "",
        "so memory is not counted; set that of each rank by --memory-limit",
        "\nno mesh fits in the ",
    ];
    for (ranks, flags, chosen, notes) in [
        (8, "", "dp=8, the cheapest mesh of 8 ranks", &notes[1..]),
        (64, "", "dp=64, the cheapest mesh of 64 ranks", &notes[1..]),
        (8, "--memory-limit 400GB", "fsdp=8; cheaper ones do not fit:", &notes[..1]),
        (64, "--memory-limit 80GB", "fsdp=64; cheaper ones do not fit:", &notes[..1]),
        // More ranks than a process has threads.
        (2048, "--memory-limit 80GB", "dp=32,fsdp=64; cheaper ones do not fit:", &notes[..1]),
        (16384, "", "dp=16384, the cheapest mesh of 16384 ranks", &notes[1..]),
    ] {
        let batch = ranks.max(64);
        let flags = format!("--batch {batch} --recompute full --mesh auto={ranks} {flags}");
        let text = dry_run(&program(), &format!("{LLAMA_70B} {flags}"));
        assert_contains(&text, &format!("--mesh auto: {chosen}"));
        notes.iter().for_each(|note| assert_contains(&text, note));
        assert_eq!(text.contains("memory is not counted"), notes.len() > 1, "{text}");
    }
    // A small model fits.
    let text = dry_run(&program(), "--hidden 64 --batch 8 --data text.txt --mesh auto=2");
    assert_contains(&text, "--mesh auto: dp=2, the cheapest mesh of 2 ranks\n");
    assert!(!text.contains("memory is not counted"), "{text}");
}

#[test]
fn a_405b_on_sixteen_thousand_ranks_needs_little_memory() {
    let mesh = "--mesh pp=16,fsdp=128,tp=8 --batch 2048 --micro-batches 16 --schedule interleaved";
    dry_run(&program(), &format!("{LLAMA_405B} {mesh} --zero 1 --dtype bf16"));
}

#[test]
fn experts_long_sequences_and_other_families_need_little_memory() {
    for flags in
        ["--mesh ep=8 --batch 8", "--mesh fsdp=2,ep=4,tp=2 --batch 16 --zero 3 --micro-batches 2"]
    {
        dry_run(&mixtral_program(), &format!("{MIXTRAL_8X22B} {flags}"));
    }
    let long = LLAMA_70B.replace("--seq 4096", "--seq 32768");
    dry_run(&program(), &format!("{long} --mesh cp=8,tp=8 --batch 1"));
    let gpt2 = "--hidden 12288 --layers 96 --heads 96 --ffn 49152 --vocab 50257 --seq 2048 --data text.txt";
    dry_run(&gpt2_program(), &format!("{gpt2} --mesh fsdp=8,tp=8 --batch 8 --zero 3"));
}

/// Neither tables nor tokens nor samples are made.
#[test]
fn long_sequences_and_large_vocabularies_need_little_memory() {
    let long = LLAMA_70B.replace("--seq 4096 --data text.txt", "--data long.u16.bin");
    for flags in [
        "--seq 1048576 --batch 8 --mesh fsdp=8",
        "--seq 4194304 --batch 8 --mesh fsdp=8",
        "--seq 67108864 --batch 8 --mesh fsdp=8 --documents 0",
        "--seq 67108864 --batch 2 --mesh cp=8,dp=2",
    ] {
        dry_run(&program(), &format!("{long} {flags}"));
    }
    for flags in ["", "--documents 0"] {
        let line = format!("--data long.u16.bin --seq 100000000 --batch 8 {flags}");
        dry_run(&gpt2_program(), &line);
    }
    for vocab in ["100000000", "1000000000"] {
        dry_run(&program(), &format!("--data text.txt --vocab {vocab}"));
        dry_run(&gpt2_program(), &format!("--data text.txt --vocab {vocab}"));
    }
}
