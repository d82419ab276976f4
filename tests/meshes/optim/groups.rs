//! Tests of parameter groups.

use meshwright::nn::build;
use meshwright::optim::{AdamWOptions, MuonOptions, ParamGroups, Select, Sgd, SgdOptions};
use meshwright::tensor::ZeroStage;
use meshwright_tests::compare::Report;
use meshwright_tests::run::on_mesh;

use super::net::{Case, Net, Run, first, sizes};

#[test]
fn groups_scale_freeze_and_decay_what_they_select() {
    let sgd = SgdOptions { momentum: 0.0, nesterov: false, weight_decay: 0.5 };
    let case = Case::new(sgd);
    let plain = first("1", &case);
    let groups = ParamGroups::default()
        .lr_scale(Select::path("body.**"), 0.5)
        .lr_scale(Select::path("body.up.*"), 0.0)
        .decay(Select::dim("Vocab"), false)
        .decay(Select::Dims(1), true);
    let case = Case { groups, ..case };
    let grouped = first("1", &case);
    // In the first step, parameters and gradients are the same.
    let change = |run: &Run, path: &str| -> Vec<f64> {
        let (before, after) = (&run.params[0][path], &run.params[1][path]);
        before.iter().zip(after).map(|(before, after)| f64::from(after - before)).collect()
    };
    for (path, before) in &plain.params[0] {
        let (plain, grouped_change) = (change(&plain, path), change(&grouped, path));
        let decayed = |x: f32| 0.02 * 0.5 * f64::from(x);
        for ((index, x), change) in before.iter().enumerate().zip(&grouped_change) {
            let expected = match path.as_str() {
                "body.up.weight" => 0.0,
                "body.embed.weight" | "body.head.weight" => 0.5 * (plain[index] + decayed(*x)),
                "body.norm.weight" => 0.5 * (plain[index] - decayed(*x)),
                _ => 0.5 * plain[index],
            };
            assert!((change - expected).abs() < 3e-7, "{path}[{index}]: {change}, not {expected}");
        }
    }
    let mut report = Report::default();
    for zero in ZeroStage::ALL {
        let sharded = first("fsdp=2,tp=2", &case.at(zero));
        let (got, one) = (sharded.params.last().unwrap(), grouped.params.last().unwrap());
        report.tensors("parameter", &format!("groups at {zero}"), got, one, 1e-5);
    }
    report.print();
}

#[test]
fn a_matrix_taken_from_muon_is_updated_by_adamw() {
    let adamw = AdamWOptions::default();
    let muon = MuonOptions { momentum: 0.95, adamw };
    let groups = ParamGroups::default().matrix(Select::path("**.weight"), false);
    let without = first("1", &Case { groups, ..Case::new(muon) });
    let expected = first("1", &Case::new(adamw));
    assert_eq!(without.losses, expected.losses);
    assert_eq!(without.params.last(), expected.params.last());
}

#[test]
fn rules_that_apply_to_nothing_are_refused() {
    let messages = on_mesh("1", 1, |rank| {
        let built = build::<Net>(rank, &sizes()).unwrap();
        let groups = ParamGroups::default;
        [
            groups().decay(Select::path("*.*.bias"), true).decay(Select::dim("Vocabulary"), false),
            groups().lr_scale(Select::Dims(1), f64::NAN),
            groups().matrix(Select::path("body.norm.weight"), true),
        ]
        .map(|groups| {
            let sgd = Sgd::with_groups(rank, &built.units, SgdOptions::default(), &groups);
            sgd.err().unwrap().to_string()
        })
    });
    let [nothing, scale, matrix] = &messages[0];
    assert!(nothing.contains("the dim `Vocabulary` selects no parameter"), "{nothing}");
    assert!(nothing.contains("body.embed.weight"), "{nothing}");
    assert!(scale.contains("the number of dims 1 has the learning rate scaled by NaN"), "{scale}");
    assert!(matrix.contains("makes a matrix of `body.norm.weight`, which does not"), "{matrix}");
}
