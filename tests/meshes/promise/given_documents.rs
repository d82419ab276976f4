//! Documents that a program gives to its tokens: the same on all ranks that share the rows, in each step.

use std::sync::Arc;

use meshwright::layout::AxisId;
use meshwright::pipeline::{Pipeline, StageCut, StageRequest, build_stages, plan_stages};
use meshwright::prelude::*;
use meshwright::schedule::{ScheduleKind, verify};

use super::harness::{MeshCase, built, mesh, on, stage3};

dims! { Batch @ data, Seq @ cp, Hidden, Heads, HeadDim, Vocab }

type Ids = Tokens<(Batch, Seq)>;
type Stream = Tensor<(Batch, Seq, Hidden)>;

#[model]
struct Block {
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(cp = "ring")]
    core: Attention<Heads, Heads, HeadDim>,
    #[sharded(tp = "row")]
    o: Linear<(Heads, HeadDim), Hidden>,
}

#[forward]
impl Block {
    fn forward(&self, x: &Stream) -> Stream {
        let q = self.q.forward(x);
        x + self.o.forward(&self.core.forward(&(q.clone(), q.clone(), q)))
    }
}

#[model]
struct Net {
    #[pipeline_stage]
    embed: Embedding<Vocab, Hidden>,
    #[pipeline_stage]
    blocks: Stack<Block>,
    #[pipeline_stage(last)]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl Net {
    fn forward(&self, tokens: &Ids) -> Stream;
}

const ROWS: usize = 4;
const SEQ: usize = 8;

fn sizes() -> Sizes {
    let sizes = Sizes::new().with(Hidden, 8).with(Heads, 4).with(HeadDim, 2).with(Vocab, 11);
    sizes.with(Layers, 4)
}

/// The ranks that give documents, and those that give others.
#[derive(Clone, Copy)]
enum Giving {
    All,
    /// Not the last rank.
    Most,
    /// The last rank gives others.
    Others,
}

/// Tokens of a micro-batch, with documents of 3 tokens.
fn tokens(rank: &Rank, index: usize, giving: Giving) -> Ids {
    let ids: Ids =
        Tokens::from_fn(rank, &[ROWS, SEQ], |at| ((at[0] * 5 + at[1] + index) % 11) as u32);
    let is_last = rank.index() + 1 == rank.comms().shape().world_size();
    let len = match giving {
        Giving::Most if is_last => return ids,
        Giving::Others if is_last => 2,
        _ => 3,
    };
    let rows = ids.local_extents()[0].local;
    let starts: Vec<u32> =
        (0..rows).flat_map(|_| (0..SEQ).map(|at| (at / len * len) as u32)).collect();
    ids.with_documents(&starts)
}

/// Line of `tokens` at which documents are given.
const GIVEN_AT: &str = "given_documents.rs:81";

/// Trains two steps, whose second one has these documents.
fn steps(rank: &Rank, giving: Giving) -> f64 {
    let net = built::<Net>(rank, &sizes());
    let mut norm = 0.0;
    for giving in [Giving::All, giving] {
        let batch = tokens(rank, 0, giving);
        let loss = net.model.head.loss(&net.model.forward(&batch), &batch);
        norm = loss.backward().reduce().norm();
    }
    norm
}

/// A step of a pipeline with two micro-batches.
fn pipeline_step(rank: &Rank, kind: ScheduleKind, giving: Giving) -> f64 {
    let schedule = kind.generate(rank.degree(AxisId::Pp), kind.default_chunks(), 2).unwrap();
    let schedule = Arc::new(verify(&schedule).unwrap());
    let placement = &schedule.lowered().placement;
    let request = StageRequest { placement, cut: &StageCut::Even, seq: SEQ };
    let plan = plan_stages::<Net>(rank, &sizes(), &request).unwrap();
    let built = build_stages::<Net>(rank, &sizes(), &plan).unwrap();
    let pipeline = Pipeline::new(rank, &built, &sizes(), &plan, &schedule).unwrap();
    let inputs = [0, 1].map(|index| tokens(rank, index, giving));
    let loss = |model: &Net, x: &Stream, index: usize| model.head.loss(x, &inputs[index]);
    pipeline.run_step(&built.model, &inputs, loss).unwrap().gradients.reduce().norm()
}

#[test]
fn documents_of_some_ranks_are_refused() {
    for case in [mesh("tp=2"), mesh("cp=2"), mesh("dp=2,tp=2"), stage3("fsdp=2,cp=2,tp=2")] {
        on(case, |rank| steps(rank, Giving::All)).unwrap();
        for (giving, difference) in
            [(Giving::Most, "only rank"), (Giving::Others, "have given different ones")]
        {
            let result = on(case, |rank| steps(rank, giving));
            let message = result.expect_err(case.mesh);
            for part in ["the documents of a step", difference, GIVEN_AT] {
                assert!(message.contains(part), "{}: no `{part}` in {message}", case.mesh);
            }
        }
    }
    // Data ranks have rows of their own.
    on(mesh("dp=2"), |rank| steps(rank, Giving::Others)).unwrap();
}

/// The ranks of all stages have the documents of the rows, whether they read the tokens or not.
#[test]
fn documents_of_some_stages_are_refused() {
    let cases: [(MeshCase, ScheduleKind); 3] = [
        (mesh("pp=2"), ScheduleKind::OneFOneB),
        (mesh("pp=2"), ScheduleKind::ZeroBubbleV),
        (mesh("dp=2,pp=2"), ScheduleKind::GPipe),
    ];
    for (case, kind) in cases {
        on(case, |rank| pipeline_step(rank, kind, Giving::All)).unwrap();
        for (giving, parts) in [
            (Giving::Most, ["the documents of a step", "only rank"]),
            // They are values of the first step, too.
            (Giving::Others, ["documents of token ids shaped", "made it of different numbers"]),
        ] {
            let message = on(case, |rank| pipeline_step(rank, kind, giving)).expect_err(case.mesh);
            for part in parts.into_iter().chain([GIVEN_AT]) {
                assert!(message.contains(part), "{}: no `{part}` in {message}", case.mesh);
            }
        }
    }
}
