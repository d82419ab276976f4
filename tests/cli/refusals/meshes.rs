//! Meshes, schedules and stages that do not fit the model or the batch.

use super::assert_refused;
use crate::{Finished, SMALL, Workspace, assert_contains, program};

#[test]
fn pipelines() {
    let workspace = Workspace::new();
    workspace.write("short.csv", b"0F0,0B0\n1F0\n");
    workspace.write("three.csv", b"0F0,0B0\n1F0,1B0\n2F0,2B0\n");
    workspace.write("times.json", b"{\"blocks.0\": 1.0}");
    let on = |line: &str| format!("{SMALL} --mesh pp=2 {line} --save out");
    assert_refused(
        &workspace,
        &[
            (
                &on("--schedule 2f2b"),
                &["--schedule: `2f2b` is not a schedule", "or a file FILE.csv"],
            ),
            (&on("--virtual-stages 3"), &["--virtual-stages: 1f1b has one stage per rank, not 3"]),
            (
                &on("--schedule interleaved --virtual-stages 4"),
                &["pp=2 x --virtual-stages 4 makes 8 stages, but `blocks` has Layers = 2"],
            ),
            (&on("--stages 1,2"), &["--stages: 1,2 are 2 stages of 3 layers; this mesh has 2"]),
            (&on("--stages 2"), &["--stages: 2 are 1 stage of 2 layers; this mesh has 2"]),
            (
                &on("--schedule interleaved --stages 1,0,1,0"),
                &[
                    "--stages: stage 1 of 1,0,1,0 has no layer, and each stage needs one, except the first and the \
                     last",
                ],
            ),
            (&on("--stages evenly"), &["--stages: `evenly` is not a cut into stages"]),
            (&on("--stages none.json"), &["--stages: none.json: No such file"]),
            (&on("--stages times.json"), &["times.json: has no time of `blocks.1`"]),
            (
                &on("--stages evenly --lr fast"),
                &["the settings have 2 problems", "--stages: `evenly` is not", "--lr"],
            ),
            (&on("--schedule none.csv"), &["--schedule none.csv: cannot read it: No such file"]),
            (
                &on("--schedule none.csv --stages none.json"),
                &["--schedule none.csv: cannot read it", "\n--stages: none.json: No such file"],
            ),
            (
                &on("--schedule short.csv --stages 1,2"),
                &[
                    "--schedule short.csv: rank 1",
                    "\n--stages: 1,2 are 2 stages of 3 layers; this mesh has 2, and `blocks` has 2",
                ],
            ),
            (&on("--schedule short.csv"), &["--schedule short.csv: rank 1"]),
            (&on("--schedule three.csv"), &["it has 3 rows, one per rank; use --mesh pp=3"]),
            (
                &on("--schedule interleaved --virtual-stages 1"),
                &["--virtual-stages: interleaved has two or more stages per rank, not 1"],
            ),
        ],
    );
}

#[test]
fn meshes() {
    let workspace = Workspace::new();
    let on =
        |mesh: &str| format!("{SMALL} --mesh {mesh} --save out --metrics m.jsonl --export-hf hf");
    assert_refused(
        &workspace,
        &[
            (&on("dp=2,,"), &["--mesh: entry 2 of `dp=2,,` is empty; write it as axis=degree"]),
            (&on("dpp=2"), &["unknown axis `dpp`; did you mean `dp`?"]),
            (&on("tp=0"), &["a degree is at least 1"]),
            (
                &on("ep=2"),
                &[
                    "--mesh: ep=2 needs a model with experts that are split over ep, by `#[sharded(ep = \"experts\")]`",
                ],
            ),
            (
                &on("dp=3"),
                &[
                    "--batch 4 does not divide into 3 equal parts (dp=3 of --mesh); use a multiple of 3",
                ],
            ),
            (
                &on("dp=2,fsdp=2 --micro-batches 2"),
                &["--batch 4 does not divide into 8 equal parts (dp=2 x fsdp=2 of --mesh, times \
                     --micro-batches 2); use a multiple of 8"],
            ),
            (
                &on("1 --micro-batches 3"),
                &[
                    "--batch 4 does not divide into 3 equal parts (--micro-batches 3); use a multiple of 3",
                ],
            ),
            (
                &on("dp=100000"),
                &[
                    "100000 ranks (dp=100000) with 1 thread each are too many",
                    "at most 1024 threads",
                ],
            ),
            // Immediately: the meshes of so many ranks are not enumerated.
            (
                &on("auto=4000000000"),
                &[
                    "--mesh: auto=4000000000: 4000000000 ranks are too many",
                    "starts at most 1024 threads in all; use fewer ranks",
                ],
            ),
            (&on("tp=2 --threads 4000000000").replace("--threads 1 ", ""), &["are too many"]),
            (
                &on("tp=4").replace("--ffn 48", "--ffn 50"),
                &[
                    "the model cannot be built, for 5 reasons:",
                    "\nuse a --mesh whose degrees divide these sizes, or other sizes; this mesh is tp=4",
                    "\n  - `blocks.*.attn.k`: KvHeads = 2 is not divisible by tp = 4",
                    "\n  - `blocks.*.attn.v`: KvHeads = 2 is not divisible by tp = 4",
                    "\n  - `blocks.*.mlp.down`: Ffn = 50 is not divisible by tp = 4",
                    "\n  - `blocks.*.mlp.gate`: Ffn = 50 is not divisible by tp = 4",
                    "\n  - `blocks.*.mlp.up`: Ffn = 50 is not divisible by tp = 4",
                ],
            ),
            (
                &on("tp=3"),
                &[
                    "`blocks.*.attn.q`: Heads = 4 is not divisible by tp = 3",
                    "`blocks.*.attn.k`: KvHeads = 2",
                ],
            ),
        ],
    );
}

#[test]
fn context_parallelism() {
    let workspace = Workspace::new();
    let on = |flags: &str| format!("{SMALL} --save out --metrics m.jsonl {flags}");
    let long = |seq: &str, flags: &str| on(flags).replace("--seq 16", &format!("--seq {seq}"));
    assert_refused(
        &workspace,
        &[
            (
                &long("20", "--mesh cp=4"),
                &[
                    "--seq: 20 does not divide into 2 x cp = 8 chunks (zig-zag order of cp=4); use a multiple of 8",
                ],
            ),
            (&long("1", "--mesh cp=2"), &["--seq: 1 does not divide into 2 x cp = 4 chunks"]),
            (
                &on("--mesh cp=8 --cp ulysses"),
                &[
                    "`blocks.*.attn.core`: 4 query heads of a rank cannot be exchanged among 8 ranks of cp",
                    "`--cp ring`",
                ],
            ),
            (
                &on("--mesh cp=4,tp=2 --cp ulysses"),
                &[
                    "`blocks.*.attn.core`: 2 query heads of a rank cannot be exchanged among 4 ranks of cp",
                ],
            ),
            (
                &on("--mesh cp=4 --cp hybrid=3"),
                &[
                    "`hybrid=3` exchanges heads among groups of 3 ranks, but cp = 4 is not divisible by 3",
                ],
            ),
            (
                &on("--mesh cp=4,tp=3 --cp hybrid=3"),
                &[
                    "the model cannot be built, for ",
                    "`blocks.*.attn.q`: Heads = 4 is not divisible by tp = 3",
                    "`hybrid=3` exchanges heads among groups of 3 ranks",
                ],
            ),
            (
                &on("--mesh dp=2 --cp ulysses"),
                &["--cp: ulysses needs context-parallel ranks", "use --mesh cp=2, or"],
            ),
            (&on("--mesh cp=2 --cp hybrid=0"), &["--cp: `hybrid=0`: `hybrid=N` takes the number"]),
            (&on("--mesh cp=2 --cp ring=2"), &["--cp: `ring=2`: `ring` takes no number"]),
            (
                &on("--mesh cp=2 --cp spiral --lr fast"),
                &["the settings have 2 problems", "--cp: `spiral` is not a style", "--lr"],
            ),
            (
                &on("--mesh cp=100000"),
                &["100000 ranks (cp=100000) with 1 thread each are too many"],
            ),
            (
                &on("--mesh auto=7"),
                &[
                    "--mesh: no mesh of 7 ranks fits",
                    "dp=7: --batch 4 does not divide into 7",
                    "cp=7: --seq",
                ],
            ),
            (
                &on("--mesh cp=2,tp=2 --mesh-order cp"),
                &["--mesh-order: the mesh has tp=2, but the order does not name `tp`; add `tp`"],
            ),
            (&on("--mesh cp=2 --mesh-order cp,cp"), &["--mesh-order: ", "`cp`", "twice"]),
            (&on("--mesh cp=2 --mesh-order cp,sp"), &["--mesh-order: ", "`sp`"]),
            (&on("--mesh cp=2 --mesh-order ,"), &["--mesh-order: ", "is empty"]),
        ],
    );
}

#[test]
fn processes_of_a_launcher() {
    let workspace = Workspace::new();
    let run = |variables: &[(&str, &str)]| {
        let mut command = program();
        command.envs(variables.iter().copied());
        workspace.run_program(command, &format!("{SMALL} --steps 1"))
    };
    let torchrun =
        [("RANK", "1"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "2")];
    let refused = run(&torchrun);
    let assert_processes_refused = |finished: &Finished, rank: usize, world: usize| {
        let text = if cfg!(feature = "mpi") {
            format!("has 1 rank, but {world} processes were started; start 1")
        } else {
            format!(
                "this process was started as rank {rank} of {world}, but this program connects no processes on the CPU"
            )
        };
        assert_contains(finished.error(), &text);
    };
    assert_processes_refused(&refused, 1, 2);
    let script = [
        ("SLURM_PROCID", "0"),
        ("SLURM_LOCALID", "0"),
        ("SLURM_NTASKS", "4"),
        ("SLURM_NNODES", "1"),
    ];
    let finished = run(&script);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let task = run(&[&script[..], &[("SLURM_STEP_ID", "0")]].concat());
    assert_processes_refused(&task, 0, 4);
    // MPICH started from the script of a job.
    let mpich =
        run(&[&script[..], &[("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("MPI_LOCALNRANKS", "2")]]
            .concat());
    assert_processes_refused(&mpich, 1, 2);
    let unknown = run(&[&script[..], &[("PMIX_RANK", "1")]].concat());
    assert_contains(unknown.error(), "has PMIX_RANK, so a launcher has started this process");
    let pod = run(&[("JOB_COMPLETION_INDEX", "1")]);
    assert_contains(pod.error(), "has JOB_COMPLETION_INDEX, but no MESHWRIGHT_WORLD_SIZE");
    let single =
        run(&[("JOB_COMPLETION_INDEX", "0"), ("MESHWRIGHT_WORLD_SIZE", "1"), ("RANK", "")]);
    assert_eq!(single.code, Some(0), "{}", single.stderr);
}

/// A command that needs no ranks reads no variables of launchers, however incomplete these are.
#[test]
fn launchers_matter_only_for_ranks() {
    let workspace = Workspace::new();
    let slurm = [
        ("SLURM_PROCID", "0"),
        ("SLURM_NTASKS", "4"),
        ("SLURM_LOCALID", "0"),
        ("SLURM_NNODES", "2"),
    ];
    for variables in [
        &slurm[..],
        &[("JOB_COMPLETION_INDEX", "0")],
        &[("RANK", "")],
        &[("RANK", "0")],
        &[("RANK", "x"), ("WORLD_SIZE", "y")],
        &[("PMIX_RANK", "0")],
        &[("OMPI_COMM_WORLD_RANK", "0")],
    ] {
        for (line, part) in [
            ("--help", "--mesh"),
            (&format!("{SMALL} --explain --mesh dp=2"), "all_reduce"),
            (&format!("{SMALL} --explain --mesh auto=2"), "all_reduce"),
            (&format!("{SMALL} --explain --mesh dp=2 --device cuda"), "all_reduce"),
        ] {
            let mut command = program();
            command.envs(variables.iter().copied());
            let finished = workspace.run_program(command, line);
            assert_eq!(finished.code, Some(0), "{variables:?} {line}\n{}", finished.stderr);
            assert_contains(&finished.stdout, part);
        }
    }
}
