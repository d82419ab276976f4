//! Every product of dp, fsdp, tp, pp and cp on up to 16 ranks, against one rank.

use std::ops::RangeInclusive;

use meshwright::checkpoint::hf::LlamaConfig;
use meshwright::models::llama::Llama;
use meshwright::nn::ContextStyle;
use meshwright::pipeline::StageCut;
use meshwright::rotary::RopeParameters;
use meshwright::schedule::ScheduleKind;
use meshwright::tensor::{Settings, ZeroStage};
use meshwright::train::LanguageModel;
use meshwright_tests::compare::Report;
use meshwright_tests::data::TokenData;
use meshwright_tests::pipeline_run::train_stages;
use meshwright_tests::run::{Outcome, Setup, train};

use super::table::report_parity;

/// The degree of each axis.
#[derive(Debug, Clone, Copy)]
struct Degrees {
    dp: usize,
    fsdp: usize,
    tp: usize,
    pp: usize,
    cp: usize,
}

impl Degrees {
    /// Returns all meshes of so many ranks.
    fn all(ranks: usize) -> Vec<Degrees> {
        let divisors = |n: usize| (1..=n).filter(move |degree| n.is_multiple_of(*degree));
        let mut all = Vec::new();
        for dp in divisors(ranks) {
            for fsdp in divisors(ranks / dp) {
                for tp in divisors(ranks / dp / fsdp) {
                    for pp in divisors(ranks / dp / fsdp / tp) {
                        all.push(Degrees { dp, fsdp, tp, pp, cp: ranks / dp / fsdp / tp / pp });
                    }
                }
            }
        }
        all
    }

    fn mesh(self) -> String {
        let Degrees { dp, fsdp, tp, pp, cp } = self;
        format!("dp={dp},fsdp={fsdp},tp={tp},pp={pp},cp={cp}")
    }
}

/// Returns data that every mesh of so many ranks divides into equally many rows of each micro-batch, and chunks of one
/// length.
fn data(ranks: usize) -> TokenData {
    TokenData { batch: ranks, seq: 2 * ranks, vocab: 17, masked: true }
}

/// Returns the setup of a model whose heads divide among so many ranks, with a layer for each pipeline stage.
fn setup(ranks: usize, stages: usize) -> Setup {
    let mut sizes = Llama::sizes(&LlamaConfig {
        hidden: 6,
        ffn: ranks,
        layers: stages,
        heads: ranks,
        kv_heads: ranks,
        head_dim: 2,
        vocab: data(ranks).vocab,
        norm_eps: 1e-5,
        rope: RopeParameters::default(),
        tied: ranks.is_multiple_of(2),
        max_positions: data(ranks).seq,
        ..LlamaConfig::default()
    });
    // Larger values make deep models of this width sensitive to rounding.
    sizes.init_std = 0.1;
    Setup { steps: 1, ..Setup::new(sizes) }
}

/// Trains on a mesh, with as many micro-batches as pipeline stages.
fn train_on(degrees: Degrees, ranks: usize, setup: &Setup) -> Outcome {
    let (mesh, data, stages) = (degrees.mesh(), data(ranks), degrees.pp);
    if stages > 1 {
        let setup = Setup { micro_batches: stages, ..setup.clone() };
        let schedule = ScheduleKind::OneFOneB.generate(stages, 1, stages).unwrap();
        return train_stages::<Llama>(&mesh, &setup, &schedule, &StageCut::Auto, data);
    }
    train(&mesh, setup, |model: &Llama, rank, turn| {
        let (tokens, targets) = data.block(rank, turn);
        model.loss(&tokens, &targets)
    })
}

/// Compares all meshes of these numbers of ranks, and returns how many there are. ZeRO stages and styles of context
/// parallelism take turns.
fn check(ranks: RangeInclusive<usize>) -> usize {
    let styles = [
        ContextStyle::Ring,
        ContextStyle::Gather,
        ContextStyle::Ulysses,
        ContextStyle::Hybrid(None),
    ];
    let (mut meshes, mut sharded, mut distributed) = (0, 0, 0);
    let mut report = Report::default();
    for ranks in ranks {
        let one_rank = Degrees { dp: 1, fsdp: 1, tp: 1, pp: 1, cp: 1 };
        let mut expected = vec![None; ranks + 1];
        for degrees in Degrees::all(ranks) {
            let mut setup = setup(ranks, degrees.pp);
            let one = expected[degrees.pp].get_or_insert_with(|| train_on(one_rank, ranks, &setup));
            if degrees.fsdp > 1 {
                setup.settings = Settings { zero: ZeroStage::ALL[sharded % 4], ..setup.settings };
                sharded += 1;
            }
            if degrees.cp > 1 {
                setup.sizes.context = Some(styles[distributed % styles.len()]);
                distributed += 1;
            }
            let got = train_on(degrees, ranks, &setup);
            let label =
                format!("{}, {:?}, {:?}", degrees.mesh(), setup.settings.zero, setup.sizes.context);
            report_parity(&label, &got, one, &mut report);
            meshes += 1;
        }
    }
    report.print();
    meshes
}

#[test]
fn every_mesh_of_up_to_eight_ranks() {
    assert_eq!(check(1..=8), 96);
}

#[test]
fn every_mesh_of_nine_to_sixteen_ranks() {
    assert_eq!(check(9..=16), 245);
}
