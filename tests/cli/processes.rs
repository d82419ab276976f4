//! Ranks as processes on the CPU, started by `mpirun`: the one beside the compiler wrapper in `MPICC`, or in `PATH`.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Finished, SMALL, Workspace, assert_contains, numbers, program};

/// Starts `ranks` processes of the training program, each with the words of the same line.
fn run_processes(workspace: &Workspace, ranks: usize, line: &str) -> Finished {
    let mut command = launcher();
    add_processes(&mut command, ranks);
    workspace.run_program(command, &format!("{SMALL} {line}"))
}

pub fn launcher() -> Command {
    let beside =
        std::env::var_os("MPICC").map(|wrapper| Path::new(&wrapper).with_file_name("mpirun"));
    let found: Option<PathBuf> = beside.filter(|program| program.exists());
    let mut command = Command::new(found.unwrap_or_else(|| "mpirun".into()));
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    command
        .env("MASTER_PORT", port.to_string())
        // More ranks than cores, and the root of a container.
        .env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe")
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command
}

pub fn add_processes(command: &mut Command, ranks: usize) {
    command.args(["-n", &ranks.to_string()]).arg(program().get_program());
}

/// Threads and processes train the same bits, write the same steps, and print once.
#[test]
fn processes_train_the_bits_of_threads() {
    for (ranks, line) in [
        (4, "--mesh fsdp=2,tp=2 --save-async --save-every 2"),
        (4, "--mesh dp=2,pp=2 --micro-batches 2 --dtype bf16"),
        (2, "--mesh cp=2 --zero 3 --save-every 3"),
        (4, "--mesh dp=2,fsdp=2 --local-steps 2 --save-every 2"),
        (4, "--mesh dp=2,tp=2 --local-steps 4 --fragments 2 --fragment-delay 1"),
    ] {
        let workspace = Workspace::new();
        let line = format!("{line} --steps 4");
        workspace.train(&format!("{line} --save threads --metrics threads.jsonl"));
        let words = format!("{line} --save processes --metrics processes.jsonl --trace trace.json");
        let finished = run_processes(&workspace, ranks, &words);
        assert_eq!(finished.code, Some(0), "{line}\n{}", finished.stderr);
        assert_eq!(finished.stdout.matches("4 steps on ").count(), 1, "{}", finished.stdout);
        let last = |run: &str| workspace.tensors(&format!("{run}/step-00000004"));
        assert!(last("threads") == last("processes"), "{line}");
        let losses = |run: &str| numbers(&workspace.metrics(&format!("{run}.jsonl")), "loss");
        assert_eq!(losses("threads"), losses("processes"), "{line}");
        assert!(workspace.path(&format!("trace.rank{}.json", ranks - 1)).is_file());
    }
}

/// A run of processes continues that of threads, with the ranks that the launcher has started.
#[test]
fn processes_resume_on_a_mesh_of_their_number() {
    let workspace = Workspace::new();
    workspace.train("--mesh dp=2 --steps 2 --save out");
    let line = "--mesh auto --steps 4 --save out --resume auto --export-hf hf";
    let resumed = run_processes(&workspace, 2, line);
    assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
    workspace.train("--mesh dp=2 --steps 4 --save whole");
    assert!(workspace.tensors("out/step-00000004") == workspace.tensors("whole/step-00000004"));
    assert!(workspace.path("hf/model.safetensors").is_file());
    // Every process has the warning, and one prints it.
    let line = "--mesh dp=2 --steps 5 --lr 0.002 --save out --resume auto";
    let changed = run_processes(&workspace, 2, line);
    assert_eq!(changed.code, Some(0), "{}", changed.stderr);
    assert_eq!(changed.stderr.matches("warning: --resume: not as in").count(), 1);
}

/// No mesh would be better.
#[test]
fn a_port_in_use_is_named_whatever_the_mesh() {
    let workspace = Workspace::new();
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let mut command = launcher();
    command.env("MASTER_PORT", taken.local_addr().unwrap().port().to_string());
    add_processes(&mut command, 2);
    let refused = workspace.run_program(command, &format!("{SMALL} --mesh auto --steps 2"));
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert_contains(&refused.stderr, "error: rank 0 cannot listen at 127.0.0.1:");
}

/// Hosts without a shared folder are as processes in different working directories.
#[test]
fn processes_need_one_folder() {
    let workspace = Workspace::new();
    let text = workspace.path("text.txt").display().to_string();
    let line = format!("{SMALL} --mesh dp=2 --steps 2 --save out").replace("text.txt", &text);
    let mut command = launcher();
    for (host, separator) in [("first", ":"), ("second", "")] {
        std::fs::create_dir(workspace.path(host)).unwrap();
        command.args(["--wdir", host]);
        add_processes(&mut command, 1);
        command.args(line.split(' ').chain([separator]).filter(|word| !word.is_empty()));
    }
    let finished = workspace.run_program(command, "");
    assert_eq!(finished.code, Some(2), "{}", finished.stderr);
    assert_contains(&finished.stderr, "--save: rank 1 does not see out of rank 0 (process ");
    assert_contains(
        &finished.stderr,
        "name a folder that all hosts share, or a path in object storage",
    );
}

#[test]
fn processes_that_differ_are_named() {
    let workspace = Workspace::new();
    let mut command = launcher();
    add_processes(&mut command, 1);
    command.args(format!("{SMALL} --mesh dp=2 --steps 2 --seed 1").split(' ')).arg(":");
    add_processes(&mut command, 1);
    let finished = workspace.run_program(command, &format!("{SMALL} --mesh dp=2 --steps 2"));
    assert_eq!(finished.code, Some(2), "{}", finished.stderr);
    assert_contains(&finished.stderr, "`--seed` is 0 on rank 1, but 1 on rank 0");

    let few = run_processes(&workspace, 2, "--mesh dp=4 --steps 2");
    assert_eq!(few.code, Some(2), "{}", few.stderr);
    let text = "error: --mesh dp=4 has 4 ranks, but 2 processes were started; start 4";
    assert_contains(&few.stderr, text);

    let preflight = run_processes(&workspace, 2, "--mesh dp=2 --steps 4 --preflight");
    assert_eq!(preflight.code, Some(2), "{}", preflight.stderr);
    assert_contains(&preflight.stderr, "--preflight: ");
}

/// Every process has an error on which the ranks have agreed, and the first one prints it.
#[test]
fn a_common_error_is_printed_once() {
    let workspace = Workspace::new();
    let line = "--mesh dp=2 --steps 20 --optimizer sgd --lr 1e38 --clip 0";
    let diverged = run_processes(&workspace, 2, line);
    assert_eq!(diverged.code, Some(4), "{}", diverged.stderr);
    assert_eq!(diverged.stderr.matches("training stopped").count(), 1, "{}", diverged.stderr);
}
