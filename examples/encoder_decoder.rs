//! An encoder and a decoder in one pipeline, on two ranks: `cargo run --release --example encoder_decoder`.
//!
//! The decoder uses the output of the encoder in every layer, a skip connection over any number of stages. So a tuple
//! crosses from one stage to the next: the encoder's stream and the decoder's. The model learns `(x + y) mod 13` of the
//! tokens `x` of the encoder and `y` of the decoder.

use std::collections::BTreeMap;
use std::sync::Arc;

use meshwright::layout::AxisId;
use meshwright::nn::Built;
use meshwright::optim::{AdamW, AdamWOptions};
use meshwright::pipeline::{Pipeline, StageCut, StageRequest, build_stages, plan_stages};
use meshwright::prelude::*;
use meshwright::schedule::{ScheduleKind, verify};
use meshwright::tensor::{Mean, ParamRef, Reduced};
use meshwright::testing::Observed;

dims! { Batch @ data, Seq, Hidden, Ffn, Vocab, Encoders }

type Ids = Tokens<(Batch, Seq)>;
type Stream = Tensor<(Batch, Seq, Hidden)>;
/// The streams of the encoder and of the decoder.
type Streams = (Stream, Stream);

/// Tokens of a micro-batch, and their number of sequences and positions.
const SHAPE: [usize; 2] = [4, 12];
const VOCAB: usize = 13;
const MICRO_BATCHES: usize = 4;

/// The embeddings of both inputs.
#[model]
struct Front {
    source: Embedding<Vocab, Hidden>,
    target: Embedding<Vocab, Hidden>,
}

#[forward]
impl Front {
    fn forward(&self, (source, target): &(Ids, Ids)) -> Streams {
        (self.source.forward(source), self.target.forward(target))
    }
}

/// A layer of the encoder, which passes the stream of the decoder on.
#[model]
struct EncoderLayer {
    norm: RmsNorm<Hidden>,
    up: Linear<Hidden, Ffn>,
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl EncoderLayer {
    fn forward(&self, (source, target): &Streams) -> Streams {
        let hidden = self.up.forward(&self.norm.forward(source)).silu();
        (source + self.down.forward(&hidden), target.clone())
    }
}

/// A layer of the decoder, whose hidden layer is gated by the output of the encoder.
#[model]
struct DecoderLayer {
    norm: RmsNorm<Hidden>,
    up: Linear<Hidden, Ffn>,
    gate: Linear<Hidden, Ffn>,
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl DecoderLayer {
    fn forward(&self, (source, target): &Streams) -> Streams {
        let hidden = self.up.forward(&self.norm.forward(target)).silu() * self.gate.forward(source);
        (source.clone(), target + self.down.forward(&hidden))
    }
}

/// The last stage, which no longer needs the hidden states of the encoder.
#[model]
struct Back {
    norm: RmsNorm<Hidden>,
}

#[forward]
impl Back {
    fn forward(&self, (_, target): &Streams) -> Stream {
        self.norm.forward(target)
    }
}

#[model]
struct EncoderDecoder {
    #[pipeline_stage]
    front: Front,
    #[pipeline_stage]
    encoder: Stack<EncoderLayer, Encoders>,
    #[pipeline_stage]
    decoder: Stack<DecoderLayer>,
    #[pipeline_stage]
    back: Back,
    #[pipeline_stage(last)]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl EncoderDecoder {
    fn forward(&self, tokens: &(Ids, Ids)) -> Stream;
}

fn main() -> meshwright::Result<()> {
    meshwright_examples::refuse_flags_and_processes();
    let losses = train(2, ScheduleKind::OneFOneB, 301)?.losses;
    for (step, loss) in losses.iter().enumerate().step_by(50) {
        println!("step {step:3}: loss {loss:.5}");
    }
    Ok(())
}

/// Results of a run.
#[derive(Debug, PartialEq)]
pub struct Trained {
    /// The loss before each step.
    pub losses: Vec<f64>,
    /// The parameters after the last step, by path.
    pub params: BTreeMap<String, Vec<f32>>,
}

/// Trains for `steps` steps on the stages of `ranks` ranks.
pub fn train(ranks: usize, kind: ScheduleKind, steps: usize) -> meshwright::Result<Trained> {
    let by_rank = meshwright::run_on(&format!("pp={ranks}"), 0, |rank| {
        train_rank(rank, kind, steps, &mut |_, _, _| ())
    })?;
    // The losses are the same on every rank; each has the parameters of its own stages.
    let losses = by_rank[0].losses.clone();
    Ok(Trained { losses, params: by_rank.into_iter().flat_map(|rank| rank.params).collect() })
}

/// Observes the losses, gradients and parameters of three steps.
pub fn observe(rank: &Rank) -> meshwright::Result<Observed> {
    let mut observed = Observed::new(rank);
    train_rank(rank, ScheduleKind::OneFOneB, 3, &mut |built, loss, gradients| {
        observed.parameters(built);
        observed.loss(loss);
        observed.gradients(built, gradients);
    })?;
    Ok(observed)
}

/// Reads the stages of a rank, with the loss and the gradients of a step.
type SeeStep<'a> = dyn FnMut(&Built<EncoderDecoder>, f64, &Gradients<Reduced>) + 'a;

/// Trains the stages of a rank, and calls `see` before each update.
fn train_rank(
    rank: &Rank,
    kind: ScheduleKind,
    steps: usize,
    see: &mut SeeStep<'_>,
) -> meshwright::Result<Trained> {
    let schedule = kind.generate(rank.degree(AxisId::Pp), kind.default_chunks(), MICRO_BATCHES);
    let schedule = schedule.expect("all numbers are above 0");
    let schedule = Arc::new(verify(&schedule).expect("generated schedules have no faults"));
    let mut sizes = Sizes::new().with(Hidden, 24).with(Ffn, 64).with(Vocab, VOCAB);
    sizes = sizes.with(Encoders, 2).with(Layers, 2).with(Seq, SHAPE[1]);
    sizes.init_std = 0.2;
    let placement = &schedule.lowered().placement;
    let request = StageRequest { placement, cut: &StageCut::Even, seq: SHAPE[1] };
    let plan = plan_stages::<EncoderDecoder>(rank, &sizes, &request)?;
    let built = build_stages::<EncoderDecoder>(rank, &sizes, &plan)?;
    let pipeline = Pipeline::new(rank, &built, &sizes, &plan, &schedule)?;
    let mut optimizer = AdamW::new(rank, &built.units, AdamWOptions::default());
    let mut losses = Vec::with_capacity(steps);
    for step in 0..steps {
        let batches = (0..MICRO_BATCHES).map(|index| batch(rank, MICRO_BATCHES * step + index));
        let (inputs, sums): (Vec<(Ids, Ids)>, Vec<Ids>) = batches.unzip();
        let step = pipeline.run_step(&built.model, &inputs, |model, output, index| {
            model.head.loss(output, &sums[index])
        })?;
        let mut mean = Mean::default();
        step.losses.iter().for_each(|loss| mean += loss.reduce());
        losses.push(mean.value());
        let gradients = step.gradients.reduce();
        see(&built, mean.value(), &gradients);
        optimizer.step(0.005, gradients);
    }
    let owned = built.params().into_iter().filter(ParamRef::is_owned);
    let params = owned.map(|param| (param.path().to_owned(), param.gather(rank)));
    Ok(Trained { losses, params: params.collect() })
}

/// Returns the inputs of a micro-batch, and their sums.
fn batch(rank: &Rank, number: usize) -> ((Ids, Ids), Ids) {
    let tokens = |seed: u32| -> Vec<u32> {
        let elements = SHAPE[0] * SHAPE[1];
        let mix = |i: u32| i.wrapping_mul(2_654_435_761) ^ seed.wrapping_mul(40_503);
        let of = |i: usize| (mix((number * elements + i) as u32) >> 13) % VOCAB as u32;
        (0..elements).map(of).collect()
    };
    let (source, target) = (tokens(1), tokens(7));
    let sums: Vec<u32> = source.iter().zip(&target).map(|(x, y)| (x + y) % VOCAB as u32).collect();
    let ids = |tokens: &[u32]| Tokens::from_block(rank, &SHAPE, tokens);
    ((ids(&source), ids(&target)), ids(&sums))
}
