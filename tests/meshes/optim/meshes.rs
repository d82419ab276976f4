//! Every optimizer on meshes and at every ZeRO stage, against one rank; memory and communication of Muon.

use std::sync::Arc;

use meshwright::backend::DType;
use meshwright::optim::{AdamWOptions, MuonOptions, SgdOptions, UpdateRule};
use meshwright::tensor::{Settings, ZeroStage};
use meshwright_examples::lion::Lion;
use meshwright_tests::compare::{Report, assert_same_bits};

use super::net::{Case, MATRICES, first, run};

// Relative to one rank, in f32. Seen: 3e-7 of a tensor's norm, 1e-7 of a loss.
const TOLERANCE: f64 = 3e-6;
const LOSS: f64 = 1e-6;

const MESHES: [&str; 7] =
    ["dp=2", "tp=2", "fsdp=2", "fsdp=3", "fsdp=2,tp=2", "dp=2,fsdp=2", "dp=2,fsdp=2,tp=2"];

/// The optimizers of the library, and one from outside.
fn optimizers() -> [(&'static str, Arc<dyn UpdateRule>); 4] {
    [
        ("adamw", Arc::new(ADAMW)),
        ("sgd", Arc::new(SGD)),
        ("muon", Arc::new(MUON)),
        ("lion", Arc::new(Lion::default())),
    ]
}
const MUON: MuonOptions = MuonOptions { momentum: 0.95, adamw: ADAMW };
const ADAMW: AdamWOptions = AdamWOptions { betas: (0.9, 0.95), eps: 1e-8, weight_decay: 0.1 };
const SGD: SgdOptions = SgdOptions { momentum: 0.9, nesterov: true, weight_decay: 0.1 };

#[test]
fn every_optimizer_on_every_mesh_and_stage() {
    for (name, rule) in optimizers() {
        let case = Case { ema: Some(0.5), ..Case::of_rule(rule) };
        let one = first("1", &case);
        let mut report = Report::default();
        for mesh in MESHES {
            for zero in levels(mesh) {
                let label = format!("{name} on {mesh}, {zero}");
                let runs = run(mesh, &case.at(*zero));
                for other in &runs[1..] {
                    assert_eq!(other.losses, runs[0].losses, "{label}");
                    let (last, first) = (other.params.last(), runs[0].params.last());
                    assert_same_bits(&label, last.unwrap(), first.unwrap());
                }
                let got = &runs[0];
                report.scalars("loss", &label, &got.losses, &one.losses, LOSS);
                for (step, (got, one)) in got.params.iter().zip(&one.params).enumerate() {
                    report.tensors("parameter", &format!("{label}, {step}"), got, one, TOLERANCE);
                }
                for ((got, loss), (one, one_loss)) in got.averages.iter().zip(&one.averages) {
                    report.tensors("average", &label, got, one, TOLERANCE);
                    report.scalars("loss of average", &label, &[*loss], &[*one_loss], LOSS);
                }
            }
        }
        report.print();
    }
}

/// Elements of the unit's flat buffers, aligned to 16: embedding, positions, shift, norm, up, bias, down, whole, head.
fn lines(tp: usize) -> (usize, usize) {
    let of = |len: usize| len.div_ceil(16);
    let vocab = of(13usize.div_ceil(tp) * 12);
    let matrices = 2 * of(12 * 20 / tp) + of(12 * 12);
    let places = of(11 * 12) + of(9 * 12);
    (2 * vocab + places + of(12) + of(20 / tp) + matrices, matrices)
}

#[test]
fn state_memory_matches_the_formula() {
    for (mesh, fsdp, tp) in [("1", 1, 1), ("dp=2", 1, 1), ("fsdp=2", 2, 1), ("fsdp=3,tp=2", 3, 2)] {
        for zero in levels(mesh) {
            for compute in [DType::F32, DType::Bf16] {
                for (name, rule) in optimizers() {
                    for ema in [None, Some(0.9)] {
                        let mut case = Case { ema, ..Case::of_rule(Arc::clone(&rule)) };
                        case.settings = Settings { compute, zero: *zero, ..case.settings };
                        let (all, matrices) = lines(tp);
                        let shards = if *zero == ZeroStage::Replicated { 1 } else { fsdp };
                        let copies =
                            usize::from(compute == DType::Bf16) + usize::from(ema.is_some());
                        // The ranks with the larger shard of the vocabulary.
                        let runs = run(mesh, &case).into_iter().skip(tp - 1).step_by(tp);
                        let bytes: usize = runs.map(|run| run.bytes).take(shards).sum();
                        let kept = match name {
                            "adamw" => 2 * all,
                            "sgd" | "lion" => all,
                            _ => 2 * all - matrices,
                        };
                        let expected = (kept + copies * all) * 16 * 4;
                        assert_eq!(bytes, expected, "{name} on {mesh}, {zero}, {compute}, {ema:?}");
                    }
                }
            }
        }
    }
}

/// Each shard of a matrix is sent to the matrix's owner within the replica, and each rank receives its shard of the
/// result; the owner's own shard is not sent.
#[test]
fn muon_sends_each_shard_and_result_once() {
    for (mesh, zero, axes) in [
        ("dp=2", ZeroStage::Replicated, "dp"),
        ("fsdp=2,tp=2", ZeroStage::Optimizer, "fsdp x tp"),
        ("dp=2,tp=2", ZeroStage::Replicated, "dp x tp"),
        ("dp=2,fsdp=2", ZeroStage::Parameters, "dp x fsdp"),
    ] {
        let runs = run(mesh, &Case::new(MUON).at(zero));
        let sent: u64 = runs.iter().filter_map(|run| run.sent.get(axes)).sum();
        // Matrices are sorted by size; the last rank owns the first one.
        let matrices = MATRICES.iter().enumerate().map(|(index, (path, rows, cols))| {
            let parts = || runs.iter().map(|run| run.owned[*path]);
            let own = parts().nth(runs.len() - 1 - index % runs.len()).unwrap();
            rows * cols - own + parts().sum::<usize>() - own
        });
        assert_eq!(sent, 4 * matrices.sum::<usize>() as u64, "{mesh}");
    }
}

/// Returns the ZeRO stages to test on a mesh: all if it has an axis to shard over.
pub fn levels(mesh: &str) -> &'static [ZeroStage] {
    if mesh.contains("fsdp") { &ZeroStage::ALL } else { &ZeroStage::ALL[..1] }
}
