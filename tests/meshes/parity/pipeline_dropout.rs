//! Dropout in pipeline stages, also of attention weights: its masks follow from field and global row, so they do not
//! depend on stages.

use meshwright::nn::RecomputeOverride;
use meshwright::pipeline::StageCut;
use meshwright::schedule::ScheduleKind;
use meshwright_tests::compare::Report;
use meshwright_tests::data::TokenData;
use meshwright_tests::models::small_sizes;
use meshwright_tests::models::staged::StagedGpt;
use meshwright_tests::pipeline_run::train_stages;
use meshwright_tests::run::Setup;

use super::pipeline::{assert_bits, generate, train_whole};
use super::table::report_parity;

const RATE: f32 = 0.2;

/// A model of eight layers, at a dropout rate.
fn setup(data: &TokenData, rate: f32, recompute: Option<&str>) -> Setup {
    let mut sizes = small_sizes::<StagedGpt>(data, 8);
    sizes.dropout = rate;
    sizes.recompute = recompute.map(|text| text.parse::<RecomputeOverride>().unwrap());
    Setup { steps: 3, micro_batches: 4, clips: false, ..Setup::new(sizes) }
}

/// Also in recomputed layers, which repeat the masks of the first computation.
#[test]
fn dropout_has_the_bits_of_one_rank() {
    let data = TokenData { batch: 4, seq: 8, vocab: 61, masked: false };
    let without = train_whole::<StagedGpt>(&setup(&data, 0.0, None), data);
    for recompute in [None, Some("every=3")] {
        let mut setup = setup(&data, RATE, recompute);
        setup.sizes.attention.dropout = RATE;
        let one = train_whole::<StagedGpt>(&setup, data);
        for (dropped, whole) in one.losses.iter().zip(&without.losses) {
            assert_ne!(dropped, whole, "dropout changes the loss");
        }
        for (ranks, kind) in [
            (2, ScheduleKind::OneFOneB),
            (2, ScheduleKind::ZeroBubbleV),
            (2, ScheduleKind::DualPipeV),
            (4, ScheduleKind::ZeroBubbleH1),
            (4, ScheduleKind::Interleaved),
        ] {
            let (mesh, schedule) = (format!("pp={ranks}"), generate(kind, ranks, 4));
            let cut = StageCut::Even;
            let got = train_stages::<StagedGpt>(&mesh, &setup, &schedule, &cut, data);
            assert_bits(&format!("dropout, recompute {recompute:?}, {kind} on {mesh}"), &got, &one);
        }
    }
}

#[test]
fn dropout_over_other_axes_matches_one_rank() {
    let data = TokenData { batch: 8, seq: 8, vocab: 61, masked: true };
    let mut report = Report::default();
    for recompute in ["none", "full"] {
        let setup = setup(&data, RATE, Some(recompute));
        let one = train_whole::<StagedGpt>(&setup, data);
        for (mesh, kind) in
            [("fsdp=2,pp=2", ScheduleKind::ZeroBubbleV), ("tp=2,pp=2", ScheduleKind::OneFOneB)]
        {
            let schedule = generate(kind, 2, 4);
            let got = train_stages::<StagedGpt>(mesh, &setup, &schedule, &StageCut::Even, data);
            let label = format!("dropout, recompute {recompute}, {kind} on {mesh}");
            report_parity(&label, &got, &one, &mut report);
        }
    }
    report.print();
}
