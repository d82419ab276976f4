//! A classifier in a training loop of its own, on four ranks: `cargo run --release --example classifier`.
//!
//! It learns which of three spirals a point of the plane is on, from batches that a formula makes, and its accuracy is
//! measured on points that it has not seen.

use meshwright::optim::{AdamW, AdamWOptions};
use meshwright::prelude::*;
use meshwright::tensor::{Mean, Metric};
use meshwright::train::{Decay, LrSchedule};

dims! { Batch @ data, Features, Hidden, Code, Classes }

const BATCH: usize = 192;
/// The first of the points that are not trained on.
const HELD_OUT: usize = 1_000_000;

#[model]
struct Classifier {
    #[sharded(tp = "col")]
    up: Linear<Features, Hidden>,
    #[sharded(tp = "col")]
    bias: Bias<Hidden>,
    #[sharded(tp = "row")]
    down: Linear<Hidden, Code>,
    norm: LayerNorm<Code>,
    head: Linear<Code, Classes>,
    loss: CrossEntropy<Classes>,
}

#[forward]
impl Classifier {
    fn forward(&self, x: &Tensor<(Batch, Features)>) -> Tensor<(Batch, Classes)> {
        let hidden = self.bias.forward(&self.up.forward(x)).gelu();
        self.head.forward(&self.norm.forward(&self.down.forward(&hidden)).gelu())
    }
}

fn main() -> Result<()> {
    meshwright_examples::refuse_flags_and_processes();
    let trained = train("dp=2,tp=2", 301)?;
    for (step, loss) in trained.losses.iter().enumerate().step_by(50) {
        println!("step {step:3}: loss {loss:.4}");
    }
    println!("accuracy on points that were not trained on: {:.1} %", 100.0 * trained.accuracy);
    Ok(())
}

/// Results of a run, the same on every rank.
#[derive(Debug, Clone)]
pub struct Trained {
    /// The loss before each step.
    pub losses: Vec<f64>,
    /// The fraction of the held-out points whose class is right.
    pub accuracy: f64,
}

/// Trains for `steps` steps, and measures the accuracy.
pub fn train(mesh: &str, steps: u64) -> Result<Trained> {
    let mut sizes = Sizes::new().with(Features, 2).with(Hidden, 64).with(Code, 32).with(Classes, 3);
    sizes.init_std = 0.3;
    let schedule = LrSchedule { decay: Decay::Cosine, peak: 0.01, min: 0.0, warmup: 20, steps };
    let mut trained = run_on(mesh, 0, |rank| {
        let built = build::<Classifier>(rank, &sizes)?;
        let model = &built.model;
        let mut optimizer = AdamW::new(rank, &built.units, AdamWOptions::default());
        let mut losses = Vec::new();
        for step in 0..steps {
            let (points, labels) = batch(rank, step as usize * BATCH);
            let loss = model.loss.forward(&model.forward(&points), &labels);
            losses.push(loss.reduce().value());
            optimizer.step(schedule.rate_at(step), loss.backward().reduce());
        }
        // Without a tape, and without dropout if the model had some.
        let (points, labels) = batch(rank, HELD_OUT);
        let logits = rank.evaluate(|| model.forward(&points));
        Ok(Trained { losses, accuracy: accuracy(&logits, &labels).value() })
    })?;
    Ok(trained.swap_remove(0))
}

/// Returns `BATCH` points from number `first` on, and their classes. The functions take indices into the whole batch;
/// each rank keeps its rows.
fn batch(rank: &Rank, first: usize) -> (Tensor<(Batch, Features)>, Targets<(Batch,)>) {
    let points = Tensor::from_fn(rank, &[BATCH, 2], |at| sample(first + at[0]).0[at[1]]);
    (points, Targets::from_fn(rank, &[BATCH], |at| sample(first + at[0]).1))
}

/// Returns point `index` on one of three spirals, and the number of its spiral.
fn sample(index: usize) -> ([f32; 2], u32) {
    let class = (index % 3) as u32;
    // The fractions of multiples of the golden ratio are evenly distributed.
    let along = ((index / 3) as f64 * 0.618_033_988_749_895).fract() as f32;
    let (sin, cos) = (std::f32::consts::TAU * (along + class as f32 / 3.0)).sin_cos();
    let radius = 0.2 + 0.8 * along;
    ([radius * cos, radius * sin], class)
}

/// Counts the rows whose largest logit is that of their class. This rank counts its own rows; the type of `logits`
/// says over which ranks both numbers are summed.
fn accuracy(logits: &Tensor<(Batch, Classes)>, labels: &Targets<(Batch,)>) -> Mean {
    let (logits_of_rows, labels) = (logits.to_local_vec(), labels.to_local_vec());
    let rows = logits_of_rows.chunks(logits.sizes()[1]).zip(&labels);
    let is_right =
        |(row, label): &(&[f32], &u32)| row.iter().all(|logit| *logit <= row[**label as usize]);
    let hits = rows.filter(is_right).count();
    Metric::of(logits, hits as f64, labels.len() as u64).reduce()
}
