//! Small models with the structure of Llama and GPT-2, ranks on the CPU, and gradients written by hand.
#![expect(dead_code, reason = "the models are built, not run")]

use std::panic::Location;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use meshwright_comm::{CommError, launch};
use meshwright_core::__internal::{BackwardPass, CompletedUnits};
use meshwright_core::layout::{AxisId, AxisSet, Dims};
use meshwright_core::nn::{
    Build, Built, Embedding, LayerCount, LayerNorm, Layers, LearnedPositions, Linear, LmHead,
    RmsNorm, Sizes, Stack,
};
use meshwright_core::tensor::{Gradients, Param, ParamRef, Pending, Rank, Settings, ZeroStage};
use meshwright_cpu::CpuBackend;
use meshwright_macros::{dims, model};
use meshwright_pipeline::{
    ChainOutline, FieldOutline, StageCut, StagePlan, StageRequest, build_stages, cut_stages,
};

dims! { crate = meshwright_core; Vocab, Hidden, Inner, Places }

#[model(crate = meshwright_core)]
struct Block {
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Inner>,
    #[sharded(tp = "row")]
    down: Linear<Inner, Hidden>,
}

/// Embedding, blocks, norm and head; head and embedding are tied by the flag `tied`.
#[model(crate = meshwright_core)]
pub struct TinyLlama {
    #[sharded(tp = "vocab")]
    embed: Embedding<Vocab, Hidden>,
    blocks: Stack<Block>,
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "vocab")]
    #[tied(embed, when = "tied")]
    head: LmHead<Hidden, Vocab>,
}

/// A [`TinyLlama`] with positions and a gain of its own, always tied.
#[model(crate = meshwright_core)]
pub struct TinyGpt2 {
    #[sharded(tp = "vocab")]
    embed: Embedding<Vocab, Hidden>,
    positions: LearnedPositions<Places, Hidden>,
    blocks: Stack<Block>,
    norm: LayerNorm<Hidden>,
    gain: Param<(Hidden,)>,
    #[sharded(tp = "vocab")]
    #[tied(embed)]
    head: LmHead<Hidden, Vocab>,
}

/// A model of the tests, with its chain.
pub trait TestModel: Build {
    const FRONT: &[&str];
    const BACK: &[&str];

    fn chain(layers: usize) -> ChainOutline {
        let field =
            |name: &&str| FieldOutline { name: (*name).to_owned(), layers: None, cost: None };
        let count = LayerCount { dim: "Layers", count: layers };
        let blocks = FieldOutline { name: "blocks".to_owned(), layers: Some(count), cost: None };
        let front = Self::FRONT.iter().map(field);
        ChainOutline {
            model: "Tiny".to_owned(),
            fields: front.chain([blocks]).chain(Self::BACK.iter().map(field)).collect(),
            last: vec![field(&"head")],
        }
    }
}

impl TestModel for TinyLlama {
    const FRONT: &[&str] = &["embed"];
    const BACK: &[&str] = &["norm"];
}

impl TestModel for TinyGpt2 {
    const FRONT: &[&str] = &["embed", "positions"];
    const BACK: &[&str] = &["norm", "gain"];
}

/// Sizes of a model of `layers` blocks; a vocabulary that two tensor-parallel ranks split unevenly.
pub fn sizes(layers: usize, is_tied: bool) -> Sizes {
    let sizes = Sizes::new().with(Vocab, 11).with(Hidden, 6).with(Inner, 10).with(Places, 5);
    sizes.with(Layers, layers).with_flag("tied", is_tied)
}

/// Runs `body` on each rank of a mesh, at a ZeRO stage.
pub fn on_ranks<T: Send>(mesh: &str, zero: ZeroStage, body: impl Fn(&Rank) -> T + Sync) -> Vec<T> {
    let run = launch(&mesh.parse().unwrap(), |comms| {
        let settings = Settings { zero, ..Settings::new(7) };
        let backend = Box::new(CpuBackend::new(1).unwrap());
        Ok::<_, CommError>(body(&Rank::with_settings(comms, backend, settings)))
    });
    run.unwrap_or_else(|error| panic!("{mesh}: {error}"))
}

/// Placement of `stages` stages on the ranks of `pp` in turn; `V` of them, back from the last rank.
pub fn placement(ranks: usize, stages: usize, is_v: bool) -> Vec<usize> {
    let of_stage = |stage: usize| if is_v { stage.min(stages - 1 - stage) } else { stage % ranks };
    (0..stages).map(of_stage).collect()
}

/// Plans the stages of a model of 4 layers on this rank's mesh, one per rank.
pub fn plan_of<M: TestModel>(rank: &Rank, sizes: &Sizes) -> StagePlan {
    let ranks = rank.degree(AxisId::Pp);
    let request =
        StageRequest { placement: &placement(ranks, ranks, false), cut: &StageCut::Auto, seq: 5 };
    cut_stages::<M>(rank, sizes, &M::chain(sizes.get::<Layers>().unwrap()), &request).unwrap()
}

/// Builds the stages of a model on this rank, one per rank of `pp`.
pub fn build_tiny<M: TestModel>(rank: &Rank, is_tied: bool) -> Built<M> {
    let sizes = sizes(4, is_tied);
    build_stages(rank, &sizes, &plan_of::<M>(rank, &sizes)).unwrap()
}

/// Returns a number that depends on the path, the position in the global parameter and the owner.
pub fn planted(path: &str, index: usize, owner: usize) -> f32 {
    let hash = xxh3_64_with_seed(path.as_bytes(), (index * 64 + owner) as u64);
    (hash >> 40) as f32 / (1 << 23) as f32 - 1.0
}

/// Returns the expected sum of a planted gradient over the owners: in order, in f32.
pub fn planted_sum(param: &ParamRef, index: usize, ranks: &[usize]) -> f32 {
    let owners = if ranks.is_empty() { &[0] } else { ranks };
    let first = planted(param.path(), index, owners[0]);
    owners[1..].iter().fold(first, |sum, owner| sum + planted(param.path(), index, *owner))
}

/// Writes a gradient into the units that this rank owns, and reduces it over the data ranks, as a backward does. Owners
/// of tied units have different gradients.
pub fn plant_gradients<M>(rank: &Rank, built: &Built<M>) -> Gradients<Pending> {
    let pass = BackwardPass::new(rank, Location::caller(), None);
    for unit in &built.units {
        assert!(pass.acquire(unit));
    }
    pass.begin_micro_batch(CompletedUnits::All);
    let is_first = rank.position(AxisSet::DATA) == 0;
    for param in built.params().iter().filter(|param| param.is_owned()) {
        let owners = param.unit().owners().filter(|owners| owners.ranks().len() > 1);
        let owner = owners.map_or(0, |_| rank.position(AxisSet::of(AxisId::Pp)));
        let value = |index| if is_first { planted(param.path(), index, owner) } else { 0.0 };
        let block: Vec<f32> = block_indices(param).into_iter().map(value).collect();
        param.widen_gradient_axes(rank);
        param.unit().note_contribution();
        param.with_gradient(|mut gradient, _| gradient.write(&block));
    }
    pass.end_micro_batch(rank);
    Gradients::of_latest_backward(rank, <(Hidden,)>::VARIES, 1.0)
}

/// Returns the index in the global parameter of each element of this rank's block.
pub fn block_indices(param: &ParamRef) -> Vec<usize> {
    let global_index = |mut rest: usize| {
        let (mut index, mut stride) = (0, 1);
        for extent in param.local_extents().iter().rev() {
            index += extent.index(rest % extent.local) * stride;
            rest /= extent.local;
            stride *= extent.global;
        }
        index
    };
    (0..param.local_len()).map(global_index).collect()
}
