//! Losses of heads with options, log-probabilities with weights, and divergences.

use meshwright::backend::DType;
use meshwright::tensor::{Loss, Rank, Settings, ZeroStage};
use meshwright_tests::compare::{Report, distance};
use meshwright_tests::data::{TokenData, Turn};
use meshwright_tests::models::heads::{Batch, ManyHeads, Seq};
use meshwright_tests::run::{Setup, train};

use super::table::check_each;

const DATA: TokenData = TokenData { batch: 8, seq: 12, vocab: 32, masked: true };

fn setup() -> Setup {
    Setup { steps: 2, ..Setup::new(ManyHeads::sizes(DATA.vocab)) }
}

type LossOf = fn(&ManyHeads, &Rank, Turn) -> Loss<(Batch, Seq)>;

const LOSSES: [(&str, LossOf); 4] = [
    ("fused loss", |model, rank, turn| {
        let (tokens, targets) = DATA.block(rank, turn);
        model.fused(&tokens, &targets)
    }),
    ("loss of logits", |model, rank, turn| {
        let (tokens, targets) = DATA.block(rank, turn);
        model.apart(&tokens, &targets)
    }),
    ("log-probabilities with weights", |model, rank, turn| {
        let (tokens, targets) = DATA.block(rank, turn);
        model.weighted(&tokens, &targets)
    }),
    ("divergence", |model, rank, turn| model.distilled(&DATA.block(rank, turn).0)),
];

#[test]
fn losses_of_heads_on_meshes() {
    let setup = setup();
    let with = |micro_batches, zero| {
        let settings = Settings { zero, ..setup.settings };
        Setup { micro_batches, settings, ..setup.clone() }
    };
    let meshes = [
        ("tp=2", with(1, ZeroStage::Replicated)),
        ("tp=4", with(2, ZeroStage::Replicated)),
        ("dp=2,tp=2", with(4, ZeroStage::Replicated)),
        ("fsdp=2", with(2, ZeroStage::Parameters)),
        ("cp=2", with(1, ZeroStage::Replicated)),
        ("cp=2,tp=2", with(2, ZeroStage::Replicated)),
        ("1", with(4, ZeroStage::Replicated)),
    ];
    for (name, loss) in LOSSES {
        let others = meshes.clone().map(|(mesh, setup)| (mesh, name.to_owned(), setup));
        check_each(&setup, others, loss);
    }
}

/// Relative to f32. The logits of a head are rounded to bf16 without `f32_logits`.
const BF16: f64 = 3e-2;

#[test]
fn losses_of_heads_in_bf16() {
    let run = |loss: LossOf, compute, f32_logits| {
        let mut setup = Setup { steps: 1, ..setup() };
        setup.settings.compute = compute;
        setup.sizes.head.f32_logits = f32_logits;
        train("tp=2", &setup, loss)
    };
    let mut report = Report::default();
    for (name, loss) in LOSSES {
        let wide = run(loss, DType::F32, false);
        let errors = [false, true].map(|f32_logits| {
            let got = run(loss, DType::Bf16, f32_logits);
            let label = format!("{name}, f32 logits: {f32_logits}");
            report.scalars("loss", &label, &got.losses, &wide.losses, BF16);
            report.tensors("gradient", &label, &got.gradients, &wide.gradients, BF16);
            distance(&[got.losses[0] as f32], &[wide.losses[0] as f32])
        });
        if name == "fused loss" {
            assert!(errors[1] < errors[0] || errors[0] < 1e-4, "{name}: {errors:?}");
        }
    }
    report.print();
}
