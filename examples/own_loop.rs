//! A training loop of its own with the parts of the trainer: a learning-rate schedule, gradient clipping, validation,
//! checkpoints, progress and metrics. `cargo run --release --example own_loop -- out 200`, and with 400 it continues.

use std::path::Path;

use meshwright::Error;
use meshwright::optim::{AdamW, AdamWOptions, Ema};
use meshwright::prelude::*;
use meshwright::tensor::Mean;
use meshwright::train::{
    Decay, LoopCheckpoints, LrSchedule, StepNumbers, StepReports, TrainingState, TrainingStateMut,
};

dims! { Batch @ data, Seq, Hidden, Ffn, Vocab }

const BATCH: usize = 16;
const SEQ: usize = 32;
/// Steps between two evaluations, and between two checkpoints.
const EVERY: u64 = 50;

/// Predicts the next byte from the last one.
#[model]
struct NextByte {
    embed: Embedding<Vocab, Hidden>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    dropout: Dropout,
    #[sharded(tp = "row")]
    down: Linear<Ffn, Hidden>,
    norm: RmsNorm<Hidden>,
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl NextByte {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Tensor<(Batch, Seq, Hidden)> {
        let x = self.embed.forward(tokens);
        let hidden = self.dropout.forward(&self.up.forward(&x).gelu());
        self.norm.forward(&(self.down.forward(&hidden) + x))
    }
}

impl NextByte {
    fn loss(&self, (tokens, targets): &Sample) -> Loss<(Batch, Seq)> {
        self.head.loss(&self.forward(tokens), targets)
    }
}

/// Values that are saved with the tensors, and the one of them that has to be the same when the loop continues.
#[derive(serde::Serialize, serde::Deserialize)]
struct Saved {
    batch: usize,
    /// JSON has no infinity.
    best: Option<f64>,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let trained = match &words[..] {
        [folder, steps] if !folder.starts_with('-') => match steps.parse() {
            Ok(steps) => train("dp=2,tp=2", Path::new(folder), steps),
            Err(_) => Err(Error::Input(format!("{steps} is no number of steps"))),
        },
        _ => Err(Error::Input(
            "give a folder for checkpoints, and a number of steps: out 200".into(),
        )),
    };
    match trained {
        Ok(trained) => println!("lowest validation loss: {:.3?} nats", trained.best),
        // With the exit code of its cause.
        Err(error) => error.exit(),
    }
}

/// Results of the steps of one call, the same on every rank.
#[derive(Debug, Clone, PartialEq)]
pub struct Trained {
    /// The loss before each step.
    pub losses: Vec<f64>,
    /// The lowest validation loss, also of the steps before.
    pub best: Option<f64>,
}

/// Trains up to `steps` steps, from the newest checkpoint in `folder` if there is one.
pub fn train(mesh: &str, folder: &Path, steps: u64) -> Result<Trained> {
    let mut sizes = Sizes::new().with(Hidden, 32).with(Ffn, 64).with(Vocab, 128);
    sizes.dropout = 0.1;
    // Its decay does not depend on `steps`: a loop that continues has the rates of one that was not stopped.
    let schedule =
        LrSchedule { decay: Decay::Cosine, peak: 0.01, min: 0.001, warmup: 20, steps: 400 };
    let trained = run_on(mesh, 0, |rank| {
        let built = build::<NextByte>(rank, &sizes)?;
        let (model, params) = (&built.model, built.params());
        let mut optimizer = AdamW::new(rank, &built.units, AdamWOptions::default());
        let mut average = Ema::new(rank, &built.units, 0.98);

        let mut checkpoints = LoopCheckpoints::open(rank, folder)?.keep(2);
        let (params, mut first) = (&params[..], 0);
        let mut saved = Saved { batch: BATCH, best: None };
        let state =
            TrainingStateMut { params, optimizer: &mut optimizer, average: Some(&mut average) };
        if let Some(loaded) = checkpoints.load_state(rank, state)? {
            (first, saved) = (loaded.step(), loaded.values()?);
            if saved.batch != BATCH {
                let text = format!("{BATCH} rows in a batch, but {} were saved", saved.batch);
                return Err(Error::Input(text));
            }
            if first >= steps {
                return Err(Error::Input(format!("{first} steps are done already")));
            }
        }

        let metrics = folder.join("metrics.jsonl");
        let mut reports =
            StepReports::new(rank, first..steps).with_metrics(metrics, &built, SEQ)?;
        let mut losses = Vec::new();
        for step in first..steps {
            reports.begin_step();
            // Dropout draws another mask in each step.
            rank.set_step(step);
            let loss = model.loss(&sample(rank, step));
            let mean = loss.reduce();
            let mut gradients = loss.backward().reduce();
            let grad_norm = gradients.clip(1.0);
            let numbers = StepNumbers { loss: mean, grad_norm, lr: schedule.rate_at(step) };
            optimizer.step_and_average(numbers.lr, gradients, &mut average);
            losses.push(mean.value());

            let done = step + 1;
            if done % EVERY == 0 {
                // Of the average of the parameters, on samples that are not trained on.
                let of_average = || {
                    let held_out = (0..4).map(|index| sample(rank, 1_000_000 + index));
                    held_out
                        .map(|sample| model.loss(&sample).reduce())
                        .fold(Mean::default(), |a, b| a + b)
                };
                let validation = reports.evaluate(|| Ok(average.with_average(of_average)))?;
                let best =
                    saved.best.map_or(validation.value(), |best| best.min(validation.value()));
                saved.best = Some(best);
                reports.metric("best_loss", best)?;
            }
            reports.end_step(&numbers)?;
            if done % EVERY == 0 || done == steps {
                let state =
                    TrainingState { params, optimizer: &optimizer, average: Some(&average) };
                checkpoints.save_state(rank, done, &state, &saved)?;
            }
        }
        reports.finish()?;
        Ok(Trained { losses, best: saved.best })
    });
    Ok(trained?.swap_remove(0))
}

type Sample = (Tokens<(Batch, Seq)>, Targets<(Batch, Seq)>);

/// Returns the bytes and the next bytes of batch `index`, which follows from the index alone: a loop that continues
/// reads what it would have read, on any mesh. The functions take indices into the whole batch; each rank keeps its
/// rows. `Tokens::from_whole_rows` takes the rows of this rank from a reader of a program.
fn sample(rank: &Rank, index: u64) -> Sample {
    let text = text().as_bytes();
    let byte = |row: usize, place: usize| {
        let start = (index as usize * BATCH + row) * 7919 % (text.len() - SEQ);
        u32::from(text[start + place]) % 128
    };
    let tokens = Tokens::from_fn(rank, &[BATCH, SEQ], |at| byte(at[0], at[1]));
    (tokens, Targets::from_fn(rank, &[BATCH, SEQ], |at| byte(at[0], at[1] + 1)))
}

fn text() -> &'static str {
    include_str!("own_loop.rs")
}
