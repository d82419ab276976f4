//! ZeRO stages, HSDP, recomputation and gradient accumulation, against one rank without them.

use std::num::NonZeroUsize;

use meshwright::checkpoint::hf::LlamaConfig;
use meshwright::models::llama::Llama;
use meshwright::nn::{Layers, RecomputeOverride, Sizes};
use meshwright::tensor::{Settings, ZeroStage};
use meshwright::train::LanguageModel;
use meshwright_tests::data::TokenData;
use meshwright_tests::models::{mixer, nested_llama, recomputed_mixer, saving_llama};
use meshwright_tests::run::Setup;

use super::llama::Case;
use super::table::check_each;

/// Meshes that shard over two ranks, alone, with tensor parallelism and with replicas; and over four, where some ranks
/// have an empty shard of a small unit.
pub const MESHES: [&str; 5] =
    ["fsdp=2", "fsdp=2,tp=2", "dp=2,fsdp=2", "fsdp=4", "dp=2,fsdp=2,tp=2"];

/// One rank and two, with and without tensor parallelism.
pub const NARROW: [&str; 4] = ["1", "tp=2", "fsdp=2", "fsdp=2,tp=2"];

const CASE: Case = Case {
    heads: 4,
    kv_heads: 2,
    tied: false,
    batch: 16,
    seq: 7,
    vocab: 61,
    masked: true,
    layers: 3,
};

/// All overrides of recomputation.
pub const RECOMPUTATIONS: [RecomputeOverride; 5] = [
    RecomputeOverride::Off,
    RecomputeOverride::Full,
    RecomputeOverride::Every(NonZeroUsize::new(2).unwrap()),
    RecomputeOverride::Sqrt,
    RecomputeOverride::Attention,
];

/// Compares a module's model.
macro_rules! check_mixer {
    ($module:ident, $what:literal, $meshes:expr) => {{
        let data = TokenData { batch: 16, seq: 7, vocab: 29, masked: true };
        let mut sizes = Sizes::new()
            .with($module::Hidden, 24)
            .with($module::Ffn, 32)
            .with($module::Vocab, data.vocab)
            .with(Layers, 3);
        sizes.init_std = 0.2;
        sizes.dropout = 0.25;
        let setup = Setup { steps: 3, ..Setup::new(sizes) };
        let others = variants($what, &setup, $meshes);
        check_each(&setup, others, |model: &$module::Mixer, rank, turn| {
            let (tokens, targets) = data.block(rank, turn);
            model.loss(&tokens, &targets, turn.step)
        });
    }};
}

#[test]
fn every_stage_of_a_llama() {
    check_llama::<Llama>("llama", CASE, &MESHES, &[None]);
}

#[test]
fn every_stage_of_a_llama_with_tied_embeddings() {
    check_llama::<Llama>("tied", Case { tied: true, ..CASE }, &MESHES, &[None]);
}

#[test]
fn every_stage_of_other_operations() {
    check_mixer!(mixer, "mixer", &MESHES);
}

#[test]
fn every_recomputation_of_a_llama_at_every_stage() {
    check_llama::<Llama>("llama", CASE, &NARROW, &RECOMPUTATIONS.map(Some));
}

#[test]
fn a_llama_that_saves_some_results() {
    check_llama::<saving_llama::Llama>("saving", CASE, &NARROW, &[None]);
}

#[test]
fn a_llama_with_nested_segments_and_units() {
    let case = Case { tied: true, ..CASE };
    check_llama::<nested_llama::Llama>("nested", case, &NARROW, &[None]);
    check_llama::<nested_llama::Llama>("nested", case, &MESHES[2..3], &[None]);
}

#[test]
fn other_operations_recomputed() {
    check_mixer!(recomputed_mixer, "recomputed mixer", &NARROW);
}

#[track_caller]
fn check_llama<M: LanguageModel<Config = LlamaConfig>>(
    what: &str,
    case: Case,
    meshes: &'static [&'static str],
    ways: &[Option<RecomputeOverride>],
) {
    let Case { batch, seq, vocab, masked, .. } = case;
    let data = TokenData { batch, seq, vocab, masked };
    check_levels::<M>(what, data, &case.setup::<M>(), meshes, ways);
}

/// Trains a few steps at every ZeRO stage, with each of these overrides of recomputation.
#[track_caller]
pub fn check_levels<M: LanguageModel>(
    what: &str,
    data: TokenData,
    setup: &Setup,
    meshes: &'static [&'static str],
    ways: &[Option<RecomputeOverride>],
) {
    let setup = Setup { steps: 3, ..setup.clone() };
    let plain = variants(what, &setup, meshes);
    let others = plain.flat_map(|(mesh, name, setup)| {
        ways.iter().map(move |way| {
            let mut setup = setup.clone();
            setup.sizes.recompute = *way;
            (mesh, format!("{name}, recompute {way:?}"), setup)
        })
    });
    check_each(&setup, others, |model: &M, rank, turn| {
        let (tokens, targets) = data.block(rank, turn);
        model.loss(&tokens, &targets)
    });
}

/// Returns all ZeRO stages on all meshes, with and without gradient accumulation.
pub fn variants<'a>(
    what: &'a str,
    setup: &'a Setup,
    meshes: &'static [&'static str],
) -> impl Iterator<Item = (&'static str, String, Setup)> + use<'a> {
    let levels = || meshes.iter().flat_map(|mesh| ZeroStage::ALL.map(|zero| (*mesh, zero)));
    [1, 4].into_iter().flat_map(move |micro_batches| {
        levels().map(move |(mesh, zero)| {
            let settings = Settings { zero, ..setup.settings };
            let name = format!("{what}, {zero}, {micro_batches} micro-batches");
            (mesh, name, Setup { settings, micro_batches, ..setup.clone() })
        })
    })
}
