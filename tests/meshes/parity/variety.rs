//! Layers that are written with operations only, on every kind of mesh.

use meshwright::nn::RecomputeOverride;
use meshwright::pipeline::StageCut;
use meshwright::prelude::*;
use meshwright::schedule::ScheduleKind;
use meshwright::tensor::{Settings, ZeroStage};
use meshwright_tests::compare::Report;
use meshwright_tests::data::{Batches, PackedData, TokenData};
use meshwright_tests::models::small_sizes;
use meshwright_tests::models::variety::Variety;
use meshwright_tests::pipeline_run::train_stages;
use meshwright_tests::run::{Outcome, Setup, train};

use super::table::report_parity;

const DATA: PackedData = PackedData(TokenData { batch: 8, seq: 12, vocab: 29, masked: true });

fn setup(zero: usize, recompute: Option<RecomputeOverride>, micro_batches: usize) -> Setup {
    let mut sizes = small_sizes::<Variety>(&DATA.0, 6);
    sizes.recompute = recompute;
    let setup = Setup { steps: 2, micro_batches, ..Setup::new(sizes) };
    Setup { settings: Settings { zero: ZeroStage::ALL[zero], ..setup.settings }, ..setup }
}

fn trained(mesh: &str, setup: &Setup) -> Outcome {
    train(mesh, setup, |model: &Variety, rank, turn| {
        let (tokens, targets) = DATA.block(rank, turn);
        model.loss(&tokens, &targets)
    })
}

#[test]
fn layers_of_operations_on_meshes() {
    let one = trained("1", &setup(0, None, 1));
    let full = Some(RecomputeOverride::Full);
    let mut report = Report::default();
    for (mesh, zero, recompute, micro_batches) in [
        ("1", 0, full, 2),
        ("tp=2", 0, None, 1),
        ("tp=4", 0, full, 2),
        ("dp=2", 0, full, 2),
        ("fsdp=2", 3, None, 2),
        ("fsdp=2,tp=2", 3, full, 1),
        ("dp=2,tp=2", 0, None, 2),
    ] {
        let got = trained(mesh, &setup(zero, recompute, micro_batches));
        let label = format!("{mesh}, stage {zero}, {recompute:?}");
        report_parity(&label, &got, &one, &mut report);
    }
    for (mesh, zero) in [("pp=2", 0), ("pp=2,fsdp=2", 3), ("pp=2,tp=2", 0)] {
        let schedule = ScheduleKind::OneFOneB.generate(2, 1, 2).unwrap();
        let setup = setup(zero, None, 2);
        let got = train_stages::<Variety>(mesh, &setup, &schedule, &StageCut::Auto, DATA);
        report_parity(&format!("{mesh}, stage {zero}"), &got, &one, &mut report);
    }
    report.print();
}
