//! Checkpoints of runs whose ranks share sequences: the number of ranks, their style and their ZeRO stage may change.

use meshwright_tests::compare::Report;

use super::{OPTIMIZERS, Run, tensors};

const SMALL: &str = "--hidden 32 --heads 8 --kv-heads 4 --ffn 48 --seq 24 --steps 6 --save-every 3";

#[test]
fn runs_resume_on_other_numbers_of_cp_ranks() {
    let others = [
        ("1", ""),
        ("cp=2", ""),
        ("cp=3", "--cp gather"),
        ("cp=4", "--cp ulysses --zero 1"),
        ("fsdp=2,cp=2", "--cp hybrid --zero 3"),
        ("pp=2,cp=2", "--micro-batches 2"),
        ("dp=2,cp=2,tp=2", ""),
    ];
    let mut report = Report::default();
    for (mesh, sharding) in [("cp=2", ""), ("cp=4", "--zero 3")] {
        let run = Run::new();
        let saved = run.dir("saved");
        let paths = [("--save", saved.clone())];
        let whole = run.train(mesh, &format!("{SMALL} {sharding}"), &paths).unwrap();
        let expected = tensors(&saved.join("step-00000006"));
        for (index, (other, sharding)) in others.into_iter().enumerate() {
            let rest = run.dir(&format!("rest-{index}"));
            let paths = [("--resume", saved.join("step-00000003")), ("--save", rest.clone())];
            let summary = run.train(other, &format!("{SMALL} {sharding}"), &paths).unwrap();
            let label = format!("from {mesh} to {other}");
            report.scalars("loss", &label, &summary.losses, &whole.losses[3..], 1e-6);
            report.scalars("norm", &label, &summary.grad_norms, &whole.grad_norms[3..], 1e-5);
            let got = tensors(&rest.join("step-00000006"));
            report.tensors("state", &label, &got, &expected, 1e-3);
        }
    }
    report.print();
}

#[test]
fn every_optimizer_shards_its_state_over_cp_ranks() {
    let mut report = Report::default();
    for optimizer in OPTIMIZERS {
        let run = Run::new();
        let common = format!("{SMALL} {optimizer} --ema 0.8");
        let one = run.train("1", &common, &[("--save", run.dir("one"))]).unwrap();
        let expected = tensors(&run.dir("one").join("step-00000006"));
        for (mesh, zero) in [("cp=4", "1"), ("cp=4", "3"), ("fsdp=2,cp=2", "2")] {
            let saved = run.dir(&format!("{mesh}-{zero}"));
            let paths = [("--save", saved.clone())];
            let got = run.train(mesh, &format!("{common} --zero {zero}"), &paths).unwrap();
            let label = format!("{optimizer} on {mesh} at stage {zero}");
            report.scalars("loss", &label, &got.losses, &one.losses, 1e-5);
            report.scalars("norm", &label, &got.grad_norms, &one.grad_norms, 1e-4);
            let got = tensors(&saved.join("step-00000006"));
            report.tensors("state", &label, &got, &expected, 1e-3);
        }
    }
    report.print();
}
