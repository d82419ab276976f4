//! Resharding of checkpoints from one mesh and ZeRO stage to others.

use std::fs;
use std::path::Path;

use meshwright_tests::compare::Report;

use super::Run;

/// Flags of a model divisible by four, with a layer for each of four pipeline stages.
const DEEP: &str = "--hidden 32 --heads 4 --kv-heads 4 --ffn 48 --layers 4";

#[test]
fn runs_resume_on_other_meshes_and_stages() {
    const REPLICATED: (&str, &str) = ("dp=2,tp=2", "");
    const SHARDED: (&str, &str) = ("fsdp=2", "--zero 3");
    const PIPELINED: (&str, &str) = ("pp=4", "--micro-batches 4 --stages 1,1,1,1");
    // A norm of 32 elements fills two aligned blocks, so some of four ranks have an empty shard.
    let others = [
        ("1", ""),
        ("tp=4", ""),
        ("dp=4", ""),
        ("dp=4,tp=2", ""),
        ("fsdp=4", "--zero 3"),
        ("fsdp=2,tp=2", "--zero 1"),
        ("dp=2,fsdp=2", "--zero 2"),
        ("pp=2", "--micro-batches 2"),
        ("pp=2,fsdp=2", "--micro-batches 4 --schedule zb-v"),
        REPLICATED,
        SHARDED,
        PIPELINED,
    ];
    let mut report = Report::default();
    for (mesh, sharding) in [REPLICATED, SHARDED, PIPELINED] {
        let run = Run::new();
        let saved = run.dir("saved");
        let more = format!("{DEEP} --save-every 5 {sharding}");
        let whole = run.train(mesh, &more, &[("--save", saved.clone())]).unwrap();
        for (mesh, sharding) in others {
            let half = saved.join("step-00000005");
            let rest = run.train(mesh, &format!("{DEEP} {sharding}"), &[("--resume", half)]);
            let rest = rest.unwrap();
            report.scalars("loss", mesh, &rest.losses, &whole.losses[5..], 1e-6);
            report.scalars("gradient norm", mesh, &rest.grad_norms, &whole.grad_norms[5..], 1e-5);
        }
    }
    report.print();
}

/// The ranks save the master weights in bf16 training, which another mesh reads bitwise equal.
#[test]
fn bf16_checkpoints_reshard_unchanged() {
    let run = Run::new();
    let bf16 = |sharding: &str, steps: usize| {
        format!("{DEEP} --dtype bf16 --micro-batches 2 --lr 0 --steps {steps} {sharding}")
    };
    // From here on the learning rate is zero: parameters are only resharded.
    let trained = run.dir("trained");
    let first = format!("{DEEP} --dtype bf16 --steps 5 --zero 3");
    run.train(
        "fsdp=2",
        &first,
        &[("--save", trained.clone()), ("--export-hf", run.dir("exported-0"))],
    )
    .unwrap();
    let mut saved = trained;
    let places = [
        ("dp=2,tp=2", ""),
        ("fsdp=4", "--zero 2"),
        ("fsdp=2,tp=2", "--zero 3"),
        ("pp=2,tp=2", "--schedule interleaved"),
    ];
    for (index, (mesh, sharding)) in places.into_iter().enumerate() {
        let next = run.dir(&format!("saved-{index}"));
        let exported = run.dir(&format!("exported-{}", index + 1));
        let paths =
            [("--resume", saved), ("--save", next.clone()), ("--export-hf", exported.clone())];
        run.train(mesh, &bf16(sharding, 6 + index), &paths).unwrap();
        let weights = |dir: &Path| fs::read(dir.join("model.safetensors")).unwrap();
        assert!(weights(&exported) == weights(&run.dir("exported-0")), "{sharding} on {mesh}");
        saved = next;
    }
}
