//! Forward passes on tapes of their own: any order of their backward passes has the gradients of ordinary accumulation.

mod orders;
mod refusals;
mod weighted;

use std::rc::Rc;

use meshwright::nn::Built;
use meshwright::prelude::*;
use meshwright::tensor::{
    Accumulating, ActivationGradients, DeferredWeightGradients, ForwardPass, Reduced, Unit,
    WeightGradients,
};

use super::harness::built;
use super::net::{
    Batch, Batched, Ffn, HeadDim, Heads, Hidden, Ids, Seq, Vocab, micro_batch, sizes,
};

dims! {
    /// Rows of the position table.
    Positions,
}

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

#[model]
struct Attn {
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Linear<Hidden, (Heads, HeadDim)>,
    core: Attention<Heads, Heads, HeadDim>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Linear<(Heads, HeadDim), Hidden>,
}

#[forward]
impl Attn {
    fn forward(&self, x: &Stream) -> Stream {
        let (q, k, v) = (self.q.forward(x), self.k.forward(x), self.v.forward(x));
        self.o.forward(&self.core.forward(&(q, k, v)))
    }
}

#[model]
struct Mlp {
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "col")]
    up_bias: Bias<Ffn>,
    dropout: Dropout,
    #[sharded(tp = "row", scatter = Seq)]
    down: Linear<Ffn, Hidden>,
    down_bias: Bias<Hidden>,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Stream) -> Stream {
        let inside = self.up_bias.forward(&self.up.forward(x)).gelu_tanh();
        self.down_bias.forward(&self.down.forward(&self.dropout.forward(&inside)))
    }
}

#[model]
struct Block {
    attn_norm: RmsNorm<Hidden>,
    attn: Attn,
    mlp_norm: LayerNorm<Hidden>,
    mlp: Mlp,
}

#[forward]
impl Block {
    fn forward(&self, x: &Stream) -> Stream {
        let x = x + self.attn.forward(&self.attn_norm.forward(x));
        &x + self.mlp.forward(&self.mlp_norm.forward(&x))
    }
}

/// A language model in two chunks: up to and including `front`, and from `back` on.
#[model]
struct Lm {
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    positions: LearnedPositions<Positions, Hidden>,
    front: Stack<Block>,
    #[recompute(offload, save = [attn.core])]
    back: Stack<Block>,
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "vocab")]
    #[tied(embed, when = "tied")]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl Lm {
    fn forward(&self, tokens: &Ids) -> Stream {
        self.last(&self.first(tokens))
    }

    fn first(&self, tokens: &Ids) -> Stream {
        self.front.forward(&self.positions.forward(&self.embed.forward(tokens)))
    }

    fn last(&self, x: &Stream) -> Stream {
        self.norm.forward(&self.back.forward(x))
    }

    fn loss(&self, x: &Stream, targets: &Ids) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }
}

fn model(rank: &Rank, tied: bool) -> Built<Lm> {
    let mut sizes = sizes().with(Positions, 8).with_flag("tied", tied);
    sizes.dropout = 0.2;
    built(rank, &sizes)
}

fn batch(rank: &Rank, index: usize, count: usize) -> Batched {
    micro_batch(rank, (16, 6), (index, count), false)
}

/// One action of a schedule: chunk and micro-batch.
#[derive(Clone, Copy, PartialEq)]
enum Action {
    /// Forward.
    F(usize, usize),
    /// Backward.
    B(usize, usize),
    /// Backward without deferred weight gradients.
    I(usize, usize),
    /// Deferred weight gradients.
    W(usize, usize),
}

use Action::{B, F, I, W};

/// The chunks of a model with the passes that are recorded and not run backward.
struct Run<'a> {
    rank: &'a Rank,
    built: &'a Built<Lm>,
    count: usize,
    order: &'a [Action],
    gradients: Gradients<Accumulating>,
    first: Vec<Option<(Stream, ForwardPass<Ids, Stream>)>>,
    last: Vec<Option<(Stream, ForwardPass<Stream, Stream>)>>,
    between: Vec<Option<ActivationGradients<Stream>>>,
    deferred: Vec<[Option<DeferredWeightGradients>; 2]>,
}

impl<'a> Run<'a> {
    fn new(rank: &'a Rank, built: &'a Built<Lm>, count: usize, order: &'a [Action]) -> Run<'a> {
        let gradients = Gradients::of_passes(rank);
        Run {
            rank,
            built,
            count,
            order,
            gradients,
            first: (0..count).map(|_| None).collect(),
            last: (0..count).map(|_| None).collect(),
            between: (0..count).map(|_| None).collect(),
            deferred: (0..count).map(|_| [None, None]).collect(),
        }
    }

    /// Returns the units that are complete after action `at`, which finishes weight gradients of `chunk`.
    fn complete(&self, at: usize, chunk: usize) -> Vec<Rc<Unit>> {
        let finishes = |action: &Action, chunk: Option<usize>| match action {
            B(of, _) | W(of, _) => chunk.is_none_or(|chunk| *of == chunk),
            F(..) | I(..) => false,
        };
        let later = &self.order[at + 1..];
        let is_last = |chunk| !later.iter().any(|action| finishes(action, chunk));
        let is_tied = self.built.units.iter().all(|unit| unit.name() != "head");
        let chunk_of = |unit: &Unit| match unit.name() {
            "embed" if is_tied => None,
            "embed" | "positions" => Some(0),
            name if name.starts_with("front") => Some(0),
            _ => Some(1),
        };
        let is_complete = |unit: &&Rc<Unit>| match chunk_of(unit) {
            Some(of) => of == chunk && is_last(Some(chunk)),
            None => is_last(None),
        };
        self.built.units.iter().filter(is_complete).cloned().collect()
    }

    fn act(&mut self, at: usize) {
        let built = self.built;
        let model = &built.model;
        match self.order[at] {
            F(0, i) => {
                let tokens = batch(self.rank, i, self.count).tokens;
                let pass = ForwardPass::record(self.rank, &tokens, |tokens| model.first(tokens));
                self.first[i] = Some(pass);
            }
            F(_, i) => {
                let (x, _) = self.first[i].as_ref().expect("the first chunk has run");
                let pass = ForwardPass::record(self.rank, x, |x| model.last(x));
                self.last[i] = Some(pass);
            }
            B(chunk, i) => {
                let units = self.complete(at, chunk);
                self.backward(chunk, i, WeightGradients::Now { complete: &units });
            }
            I(chunk, i) => self.backward(chunk, i, WeightGradients::Deferred),
            W(chunk, i) => {
                let units = self.complete(at, chunk);
                self.deferred[i][chunk].take().expect("deferred before").compute_gradients(&units);
            }
        }
    }

    fn backward(&mut self, chunk: usize, i: usize, weights: WeightGradients<'_>) {
        let gradients = &mut self.gradients;
        if chunk == 0 {
            let (_, pass) = self.first[i].take().expect("recorded before");
            let (_, deferred) = pass.backward(gradients, self.between[i].take(), weights);
            self.deferred[i][0] = deferred;
        } else {
            let (y, mut pass) = self.last[i].take().expect("recorded before");
            let targets = batch(self.rank, i, self.count).targets;
            pass.add_loss(&y, |y| self.built.model.loss(y, &targets));
            let (dx, deferred) = pass.backward(gradients, None, weights);
            self.between[i] = Some(dx);
            self.deferred[i][1] = deferred;
        }
    }

    fn reduce(mut self) -> Gradients<Reduced> {
        (0..self.order.len()).for_each(|at| self.act(at));
        self.gradients.complete().reduce()
    }
}

/// Returns the gradients of ordinary accumulation.
fn accumulated(rank: &Rank, built: &Built<Lm>, count: usize) -> Gradients<Reduced> {
    let loss = |i| {
        let batch = batch(rank, i, count);
        built.model.loss(&built.model.forward(&batch.tokens), &batch.targets)
    };
    let first = (1..count - 1).fold(loss(0).accumulate(), |sum, i| sum.accumulate(loss(i)));
    first.backward(loss(count - 1)).reduce()
}
