//! Checkpoints and exports of a mixture of experts, whose experts are split over different ranks.

use std::fs;
use std::path::PathBuf;

use meshwright::models::mixtral::Mixtral;
use meshwright_tests::compare::Report;

use super::{Run, bytes};

/// Flags of a model with eight experts.
const EXPERTS: &str = "--hidden 16 --heads 4 --kv-heads 4 --ffn 24";

#[test]
fn a_resumed_run_of_experts_has_the_same_bits() {
    for (mesh, sharding) in [
        ("ep=2", ""),
        ("fsdp=2,ep=2", "--zero 3 --dtype bf16 --micro-batches 2 --recompute full"),
        ("ep=2,tp=2", "--zero 1"),
    ] {
        let run = Run::new();
        let [straight, resumed] = ["straight", "resumed"].map(|name| run.dir(name));
        let more = format!("{EXPERTS} --save-every 5 {sharding}");
        let whole = run.train_model::<Mixtral>(mesh, &more, &[("--save", straight.clone())]);
        let whole = whole.unwrap();
        let half = straight.join("step-00000005");
        let paths = [("--resume", half), ("--save", resumed.clone())];
        let rest = run.train_model::<Mixtral>(mesh, &more, &paths).unwrap();
        assert_eq!(rest.losses, whole.losses[5..], "{mesh}: losses");
        assert!(bytes(&resumed, 10) == bytes(&straight, 10), "{mesh}: parameters and moments");
    }
}

#[test]
fn experts_move_to_other_ranks() {
    let places = [
        ("1", ""),
        ("ep=4", "--zero 1"),
        ("fsdp=2,ep=2", "--zero 3"),
        ("ep=2,tp=2", ""),
        ("dp=2,ep=2", "--zero 2"),
    ];
    let mut report = Report::default();
    for (mesh, sharding) in [("1", ""), ("fsdp=2,ep=2", "--zero 3"), ("ep=2,tp=4", "")] {
        let run = Run::new();
        let saved = run.dir("saved");
        let more = format!("{EXPERTS} --save-every 5 {sharding}");
        let whole = run.train_model::<Mixtral>(mesh, &more, &[("--save", saved.clone())]);
        let whole = whole.unwrap();
        for (other, sharding) in places {
            let paths = [("--resume", saved.join("step-00000005"))];
            let more = format!("{EXPERTS} {sharding}");
            let rest = run.train_model::<Mixtral>(other, &more, &paths).unwrap();
            let label = format!("{mesh} to {other}");
            report.scalars("loss", &label, &rest.losses, &whole.losses[5..], 1e-6);
            report.scalars("norm", &label, &rest.grad_norms, &whole.grad_norms[5..], 2e-5);
        }
    }
    report.print();
}

/// Each rank exports and imports its experts, one tensor for each.
#[test]
fn exports_of_experts_are_those_of_one_rank() {
    let run = Run::new();
    let first = run.dir("exported-0");
    let more = format!("{EXPERTS} --steps 3");
    run.train_model::<Mixtral>("ep=2", &more, &[("--export-hf", first.clone())]).unwrap();
    let weights = |name: &str| fs::read(run.dir(name).join("model.safetensors")).unwrap();
    for (index, mesh) in ["1", "ep=4,tp=2", "fsdp=2,ep=2"].into_iter().enumerate() {
        let name = format!("exported-{}", index + 1);
        let paths = [("--init-from", first.clone()), ("--export-hf", run.dir(&name))];
        run.train_model::<Mixtral>(mesh, "--steps 1 --lr 0", &paths).unwrap();
        assert!(weights(&name) == weights("exported-0"), "{mesh}");
    }
}

/// The weight of the load-balancing loss is that of the flag, else that of the folder, and is exported.
#[test]
fn the_folder_sets_the_balance_loss() {
    let run = Run::new();
    let train = |more: &str, paths: &[(&str, PathBuf)]| {
        run.train_model::<Mixtral>("ep=2", &format!("--steps 3 {more}"), paths).unwrap().losses
    };
    let exported = |name: &str, key: &str| {
        let file = fs::read(run.dir(name).join("config.json")).unwrap();
        serde_json::from_slice::<serde_json::Value>(&file).unwrap()[key].clone()
    };
    let new = train(EXPERTS, &[("--export-hf", run.dir("new"))]);
    assert_eq!(exported("new", "router_aux_loss_coef"), 0.01);
    assert_eq!(train(&format!("{EXPERTS} --balance batch=0.01"), &[]), new);
    let none = train(&format!("{EXPERTS} --balance none"), &[]);
    assert_eq!(train(&format!("{EXPERTS} --balance batch=0"), &[]), none);
    let z_loss = train(&format!("{EXPERTS} --balance none --z-loss 0.5"), &[]);
    assert!(none[0] == new[0] && none[0] == z_loss[0], "auxiliary losses are not reported");
    assert!(none[2] != new[2] && none[2] != z_loss[2] && new[2] != z_loss[2]);

    let export = [("--export-hf", run.dir("strong"))];
    train(&format!("{EXPERTS} --lr 0 --balance batch=0.5 --z-loss 0.1"), &export);
    assert_eq!(exported("strong", "router_aux_loss_coef"), 0.5);
    assert_eq!(exported("strong", "router_z_loss_coef"), 0.1);
    let from = [("--init-from", run.dir("strong"))];
    let strong = train("", &from);
    assert_eq!(train("--balance batch=0.5 --z-loss 0.1", &from), strong);
    assert_ne!(train("--balance batch=0.5 --z-loss 0", &from), strong);
    assert_ne!(train("--balance none", &from), strong);
}
