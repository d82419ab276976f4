//! A ViT on every kind of mesh: tp on uneven shares of positions, data axes, stages between any two layers, and
//! recomputation.

use meshwright::data::rows_of_rank;
use meshwright::layout::AxisSet;
use meshwright::models::vit::{Batch, Images, Stream, Vit, VitConfig};
use meshwright::nn::RecomputeOverride;
use meshwright::pipeline::StageCut;
use meshwright::random;
use meshwright::schedule::ScheduleKind;
use meshwright::tensor::{Rank, Settings, Targets, ZeroStage};
use meshwright::train::FamilyModel;
use meshwright_tests::compare::Report;
use meshwright_tests::data::Turn;
use meshwright_tests::pipeline_run::{Job, train_job};
use meshwright_tests::run::{Outcome, Setup, train};

use super::table::report_parity;

/// Images of a step.
const IMAGES: usize = 8;

fn config() -> VitConfig {
    VitConfig {
        hidden: 16,
        ffn: 24,
        layers: 3,
        heads: 4,
        image_size: 6,
        patch_size: 2,
        channels: 3,
        classes: 5,
        ..VitConfig::default()
    }
}

#[test]
fn every_mesh_trains_a_vit_as_one_rank_does() {
    let mut report = Report::default();
    for config in [config(), VitConfig { qkv_bias: false, ..config() }] {
        check(&config, &mut report);
    }
    report.print();
}

fn check(config: &VitConfig, report: &mut Report) {
    let mut sizes = Vit::dim_sizes(config);
    // Makes attention, norms and gradients nontrivial.
    sizes.init_std = 0.2;
    let setup = |zero: usize, recompute: Option<RecomputeOverride>| {
        let setup = Setup::new(sizes.clone());
        let settings = Settings { zero: ZeroStage::ALL[zero], ..setup.settings };
        let mut setup = Setup { steps: 2, settings, ..setup };
        setup.sizes.recompute = recompute;
        setup
    };
    let trained = |mesh: &str, setup: &Setup| {
        without_noise(train(mesh, setup, |model: &Vit, rank, turn| {
            let (images, labels) = batch(config, rank, turn);
            model.classifier.loss(&model.forward(&images), &labels)
        }))
    };
    let one = trained("1", &setup(0, None));
    let full = Some(RecomputeOverride::Full);
    for (mesh, zero, recompute) in [
        ("tp=2", 0, None),
        ("tp=4", 0, full),
        ("dp=2", 0, full),
        ("fsdp=2", 3, full),
        ("dp=2,tp=2", 1, None),
        ("fsdp=2,tp=2", 2, full),
    ] {
        let got = trained(mesh, &setup(zero, recompute));
        report_parity(&format!("{mesh}, stage {zero}, {recompute:?}"), &got, &one, report);
    }
    let schedule = ScheduleKind::OneFOneB.generate(2, 1, 2).unwrap();
    let job = Job {
        seq: config.positions(),
        batch: |rank: &Rank, turn| batch(config, rank, turn),
        loss: |model: &Vit, output: &Stream, labels: &Targets<(Batch,)>| {
            model.classifier.loss(output, labels)
        },
    };
    // Before the first layer, between any two, and before the norm.
    for (mesh, first, recompute) in
        [("pp=2", 0, None), ("pp=2", 1, full), ("pp=2,tp=2", 2, None), ("pp=2,dp=2", 3, full)]
    {
        let setup = Setup { micro_batches: 2, ..setup(0, recompute) };
        let cut = StageCut::Counts(vec![first, 3 - first]);
        let got = without_noise(train_job(mesh, &setup, &schedule, &cut, &job));
        report_parity(&format!("{mesh}, {first} layers first, {recompute:?}"), &got, &one, report);
    }
}

/// Returns this rank's images and labels of a micro-batch. Some images have no label.
fn batch(config: &VitConfig, rank: &Rank, turn: Turn) -> (Images, Targets<(Batch,)>) {
    let (position, ranks) = (rank.position(AxisSet::DATA), rank.degree_of(AxisSet::DATA));
    let rows = rows_of_rank(IMAGES, turn.count, position, ranks);
    let first = rows[..turn.index].iter().map(ExactSizeIterator::len).sum();
    let rows = rows[turn.index].clone();
    let sizes = [IMAGES, config.patches(), config.pixels()];
    let len = sizes[1] * sizes[2];
    let key = random::key(turn.step, "images");
    let number = |at: usize| (random::subkey(key, at as u64) >> 40) as f32 / (1 << 23) as f32 - 1.0;
    let pixels: Vec<f32> = (rows.start * len..rows.end * len).map(number).collect();
    let label = |row: usize| match row {
        3 | 4 => Targets::<(Batch,)>::IGNORED,
        row => ((row + turn.step as usize) % config.classes) as u32,
    };
    let labels: Vec<u32> = rows.map(label).collect();
    let images = Images::from_rows(rank, &sizes, first, &pixels);
    (images, Targets::from_rows(rank, &sizes[..1], first, &labels))
}

/// Removes what is noise: a bias of keys shifts the scores of a query by one number, which a softmax does not see.
fn without_noise(mut outcome: Outcome) -> Outcome {
    for tensors in [&mut outcome.gradients, &mut outcome.trained] {
        tensors.retain(|path, _| !path.ends_with("attn.k.bias"));
    }
    outcome
}
