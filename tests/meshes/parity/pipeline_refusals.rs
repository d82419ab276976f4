//! Models, meshes and schedules that no pipeline fits, refused before anything is allocated or sent.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use meshwright::layout::{AxisId, AxisSet};
use meshwright::models::llama::Llama;
use meshwright::pipeline::{Pipeline, StageCut, StageRequest, build_stages, plan_stages};
use meshwright::prelude::*;
use meshwright::schedule::{ScheduleKind, verify};
use meshwright::tensor::SegmentData;
use meshwright::train::Config;
use meshwright_tests::data::Turn;
use meshwright_tests::models::gpt::Gpt;
use meshwright_tests::run::on_mesh;

use super::pipeline::{DEEP, generate};

dims! {
    Batch @ data,
    Seq,
    Part,
    Hidden,
    Vocab,
}

type Ids = Tokens<(Batch, Seq)>;
type Stream = Tensor<(Batch, Seq, Hidden)>;
/// A stream, and numbers of parts whose number no parameter has.
type Parts = (Stream, Tensor<(Batch, Seq, Part)>);

// A model whose layers pass their input on; none of its passes runs.

#[model]
#[allow(dead_code, reason = "the model is declared only")]
struct PartsFront {
    embed: Embedding<Vocab, Hidden>,
}

#[forward]
impl PartsFront {
    fn forward(&self, _: &Ids) -> Parts {
        unreachable!("the model is planned alone")
    }
}

#[model]
#[allow(dead_code, reason = "the model is declared only")]
struct PartsLayer {
    norm: RmsNorm<Hidden>,
}

#[forward]
impl PartsLayer {
    fn forward(&self, flow: &Parts) -> Parts {
        flow.clone()
    }
}

#[model]
#[allow(dead_code, reason = "the model is declared only")]
struct PartsBack {
    norm: RmsNorm<Hidden>,
}

#[forward]
impl PartsBack {
    fn forward(&self, (x, _): &Parts) -> Stream {
        self.norm.forward(x)
    }
}

#[model]
#[allow(dead_code, reason = "the model is declared only")]
struct PartsModel {
    #[pipeline_stage]
    front: PartsFront,
    #[pipeline_stage]
    layers: Stack<PartsLayer>,
    #[pipeline_stage]
    back: PartsBack,
    #[pipeline_stage(last)]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl PartsModel {
    fn forward(&self, ids: &Ids) -> Stream;
}

/// Returns the problems of stages of `M` on two ranks, which both find.
fn problems_of_stages<M: Model + Module<In: SegmentData>>(sizes: &Sizes) -> Vec<String> {
    let mut found = on_mesh("pp=2", 1, |rank| {
        let request = StageRequest { placement: &[0, 1], cut: &StageCut::Even, seq: 5 };
        let refused = plan_stages::<M>(rank, sizes, &request).err();
        refused.map_or_else(Vec::new, |error| error.problems)
    });
    assert_eq!(found[0], found[1]);
    found.swap_remove(0)
}

#[test]
fn boundaries_without_a_shape_are_refused() {
    let sizes = Sizes::new().with(Hidden, 6).with(Vocab, 11).with(Layers, 4);
    assert_eq!(
        problems_of_stages::<PartsModel>(&sizes),
        [
            "`layers`: its output, which crosses to the next pipeline stage, has the dim Part, which has no size: set \
             it by `Sizes::with(Part, ..)`"
        ]
    );
    let sizes = sizes.with(Part, 3);
    assert_eq!(problems_of_stages::<PartsModel>(&sizes), Vec::<String>::new());
}

/// A `forward` with a body has no stages.
#[test]
fn models_with_a_written_forward_are_refused() {
    let train = |mesh: &str| {
        let words = format!(
            "train --hidden 32 --heads 4 --layers 2 --batch 4 --seq 8 --steps 1 --threads 1 --sample-tokens 0 --mesh \
             {mesh}"
        );
        Trainer::<Gpt>::new(Config::parse(words.split(' ')).unwrap()).and_then(Trainer::train)
    };
    assert_eq!(
        train("pp=2").unwrap_err().to_string(),
        "--mesh: pp=2 needs a model with stages: put `#[pipeline_stage]` on the fields of `Gpt`"
    );
    assert_eq!(train("1").unwrap().losses.len(), 1);
}

/// Ranks of different data exchange no messages, so they would not notice it.
#[test]
fn data_ranks_compare_their_schedules() {
    let setup = DEEP.setup::<Llama>();
    let data = DEEP.data();
    let run = |kinds: [ScheduleKind; 2]| {
        on_mesh("dp=2,pp=2", 1, |rank| {
            let kind = kinds[rank.comms().group(AxisSet::of(AxisId::Dp)).rank()];
            let schedule = Arc::new(verify(&generate(kind, 2, 2)).unwrap());
            let placement = &schedule.lowered().placement;
            let request = StageRequest { placement, cut: &StageCut::Even, seq: DEEP.seq };
            let plan = plan_stages::<Llama>(rank, &setup.sizes, &request).unwrap();
            let built = build_stages::<Llama>(rank, &setup.sizes, &plan).unwrap();
            let pipeline = Pipeline::new(rank, &built, &setup.sizes, &plan, &schedule).unwrap();
            let block = |index| data.block(rank, Turn { step: 0, index, count: 2 });
            let (tokens, targets): (Vec<_>, Vec<_>) = (0..2).map(block).unzip();
            let step = pipeline.run_step(&built.model, &tokens, |model, output, index| {
                model.loss_of_output(output, &targets[index])
            });
            drop(step.unwrap().gradients.reduce());
        });
    };
    run([ScheduleKind::OneFOneB; 2]);
    // Both reduce gradients in the same order.
    let kinds = [ScheduleKind::OneFOneB, ScheduleKind::GPipe];
    let refused = catch_unwind(AssertUnwindSafe(|| run(kinds))).unwrap_err();
    let text = refused.downcast_ref::<String>().unwrap();
    assert!(text.contains("the pipeline schedule"), "{text}");
}
