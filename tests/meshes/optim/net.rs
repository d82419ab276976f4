//! A small model in one unit, and runs of it. Its vocabulary is odd, so that matrices begin at different offsets on
//! different ranks.

use std::collections::BTreeMap;
use std::sync::Arc;

use meshwright::backend::Category;
use meshwright::nn::build;
use meshwright::optim::{Ema, Optimizer, ParamGroups, UpdateRule};
use meshwright::prelude::*;
use meshwright::tensor::{ParamRef, Settings, ZeroStage};
use meshwright_tests::compare::Tensors;
use meshwright_tests::data::{TokenData, Turn};
use meshwright_tests::run::on_mesh_with;

dims! { Batch @ data, Seq, Hidden, Heads, HeadDim, Vocab, Positions }

#[model]
pub struct Body {
    #[sharded(tp = "vocab")]
    embed: Embedding<Vocab, Hidden>,
    positions: LearnedPositions<Positions, Hidden>,
    /// A matrix by its dims, but added, so it is not a linear map.
    shift: Param<(Seq, Hidden)>,
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    bias: Bias<(Heads, HeadDim)>,
    #[sharded(tp = "row")]
    down: Linear<(Heads, HeadDim), Hidden>,
    whole: Linear<Hidden, Hidden>,
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
}

#[model]
pub struct Net {
    body: Body,
}

impl Net {
    pub fn loss(
        &self,
        tokens: &Tokens<(Batch, Seq)>,
        targets: &Targets<(Batch, Seq)>,
    ) -> Loss<(Batch, Seq)> {
        let body = &self.body;
        let x = body.positions.forward(&body.embed.forward(tokens)) + &body.shift;
        let inside = body.bias.forward(&body.up.forward(&body.norm.forward(&x))).silu();
        let x = x + body.down.forward(&inside);
        let x = &x + body.whole.forward(&x).tanh();
        body.head.loss(&x, targets)
    }
}

/// The matrix parameters, with rows and columns.
pub const MATRICES: [(&str, usize, usize); 3] = [
    ("body.up.weight", HIDDEN, HEADS * HEAD_DIM),
    ("body.down.weight", HEADS * HEAD_DIM, HIDDEN),
    ("body.whole.weight", HIDDEN, HIDDEN),
];
/// Other parameters with weight decay.
pub const TABLES: [&str; 4] =
    ["body.embed.weight", "body.positions.weight", "body.shift", "body.head.weight"];

const HIDDEN: usize = 12;
const HEADS: usize = 4;
const HEAD_DIM: usize = 5;
const DATA: TokenData = TokenData { batch: 4, seq: 9, vocab: 13, masked: true };

pub const STEPS: u64 = 4;
pub const LR: f64 = 0.02;

/// Training options of a run.
#[derive(Clone)]
pub struct Case {
    pub rule: Arc<dyn UpdateRule>,
    pub groups: ParamGroups,
    pub ema: Option<f64>,
    pub settings: Settings,
}

impl Case {
    pub fn new(rule: impl UpdateRule + 'static) -> Case {
        Case::of_rule(Arc::new(rule))
    }

    pub fn of_rule(rule: Arc<dyn UpdateRule>) -> Case {
        let settings = Settings::new(11);
        Case { rule, groups: ParamGroups::default(), ema: None, settings }
    }

    pub fn at(&self, zero: ZeroStage) -> Case {
        Case { settings: Settings { zero, ..self.settings }, ..self.clone() }
    }
}

/// The results of a run on one rank.
pub struct Run {
    pub losses: Vec<f64>,
    /// Gradients of each step.
    pub gradients: Vec<Tensors>,
    /// Parameters before each step, and after the last.
    pub params: Vec<Tensors>,
    /// The average after each step, and its loss.
    pub averages: Vec<(Tensors, f64)>,
    /// Bytes of optimizer state and average.
    pub bytes: usize,
    /// Bytes sent in the last step of an optimizer without an average, by axes.
    pub sent: BTreeMap<String, u64>,
    /// Number of elements of each parameter in the rank's shard.
    pub owned: BTreeMap<String, usize>,
}

/// Trains on every rank of a mesh.
#[track_caller]
pub fn run(mesh: &str, case: &Case) -> Vec<Run> {
    on_mesh_with(mesh, 1, case.settings, |rank| {
        let built = build::<Net>(rank, &sizes()).unwrap();
        let rule = Arc::clone(&case.rule);
        let optimizer = Optimizer::with_groups(rank, &built.units, rule, &case.groups);
        let mut optimizer = optimizer.unwrap();
        let mut average = case.ema.map(|decay| Ema::new(rank, &built.units, decay));
        let gather = || -> Tensors {
            let params = built.params().into_iter();
            params.map(|param| (param.path().to_owned(), param.gather(rank))).collect()
        };
        let owned = |param: &ParamRef| (param.path().to_owned(), param.owned().len());
        let mut run = Run {
            losses: Vec::new(),
            gradients: Vec::new(),
            params: vec![gather()],
            averages: Vec::new(),
            bytes: 0,
            sent: BTreeMap::new(),
            owned: built.params().iter().map(owned).collect(),
        };
        for step in 0..STEPS {
            rank.set_step(step);
            let (tokens, targets) = DATA.block(rank, Turn { step, index: 0, count: 1 });
            let loss = built.model.loss(&tokens, &targets);
            run.losses.push(loss.reduce().value());
            let mut gradients = loss.backward().reduce();
            gradients.clip(0.5);
            let of = |param: &ParamRef| gradients.gather(param);
            let params = built.params();
            let named = params.iter().map(|param| (param.path().to_owned(), of(param)));
            run.gradients.push(named.collect());
            let before = rank.comms().bytes_by_axes();
            match &mut average {
                None => {
                    optimizer.step(LR, gradients);
                    let now = rank.comms().bytes_by_axes().into_iter();
                    let sent = now.map(|(axes, sent)| {
                        (axes.to_string(), sent - before.get(&axes).copied().unwrap_or(0))
                    });
                    run.sent = sent.collect();
                }
                Some(average) => {
                    optimizer.step_and_average(LR, gradients, average);
                    run.averages.push(average.with_average(|| {
                        let evaluate = || built.model.loss(&tokens, &targets).reduce().value();
                        let loss = rank.evaluate(evaluate);
                        (gather(), loss)
                    }));
                }
            }
            run.params.push(gather());
        }
        let live: BTreeMap<Category, usize> = rank.allocator().live().collect();
        run.bytes = live[&Category::Optimizer];
        run
    })
}

/// Returns the loss of the first batch.
pub fn first_loss(rank: &Rank, model: &Net) -> Loss<(Batch, Seq)> {
    let (tokens, targets) = DATA.block(rank, Turn { step: 0, index: 0, count: 1 });
    model.loss(&tokens, &targets)
}

/// Returns the sizes of the model.
pub fn sizes() -> Sizes {
    let mut sizes = Sizes::new()
        .with(Seq, DATA.seq)
        .with(Positions, DATA.seq + 2)
        .with(Hidden, HIDDEN)
        .with(Heads, HEADS)
        .with(HeadDim, HEAD_DIM)
        .with(Vocab, DATA.vocab);
    sizes.init_std = 0.3;
    sizes
}

/// Calls [`run`] and returns the results of the first rank.
#[track_caller]
pub fn first(mesh: &str, case: &Case) -> Run {
    run(mesh, case).swap_remove(0)
}
