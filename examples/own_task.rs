//! A task and a model of a program's own, with every flag of the trainer:
//! `cargo run --release --example own_task -- --steps 200`.
//!
//! The task is to name the letter that a text has most of.

use std::io;

use meshwright::checkpoint::hf::{HfKeys, KeyResult};
use meshwright::data::{Example, ExampleSource, Field, RowStreams, RowWriter};
use meshwright::prelude::*;
use meshwright::random;
use meshwright::train::{
    ConfigKeys, FamilyModel, Optimizers, Rows, SizeFlag, Task, TaskSetup, TaskTrainer,
};

dims! { Batch @ data, Seq, Hidden, Ffn, Letters, Classes }

/// A batch of texts.
pub type Text = Tokens<(Batch, Seq)>;

/// The model, whose head reads the mean over the positions.
#[model]
pub struct Counter {
    #[pipeline_stage]
    embed: Embedding<Letters, Hidden>,
    #[pipeline_stage]
    blocks: Stack<Block>,
    #[pipeline_stage(last)]
    head: Linear<Hidden, Classes>,
    #[pipeline_stage(last)]
    loss: CrossEntropy<Classes>,
}

/// A layer that computes each position by itself.
#[model]
pub struct Block {
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row")]
    down: Linear<Ffn, Hidden>,
}

/// The stream between the layers.
pub type Stream = Tensor<(Batch, Seq, Hidden)>;

#[forward]
impl Block {
    fn forward(&self, x: &Stream) -> Stream {
        x + self.down.forward(&self.up.forward(&self.norm.forward(x)).silu())
    }
}

#[forward]
impl Counter {
    fn forward(&self, text: &Text) -> Stream;
}

/// The keys of `config.json`, and the flags of a new model.
#[derive(Clone, Default)]
pub struct CounterConfig {
    hidden: usize,
    ffn: usize,
    layers: usize,
}

impl ConfigKeys for CounterConfig {
    const MODEL_TYPES: &'static [&'static str] = &["letter_counter"];

    fn keys(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        keys.size(SizeFlag::HIDDEN, "hidden_size", &mut self.hidden)?;
        keys.size_or_new(SizeFlag::FFN, "intermediate_size", &mut self.ffn, 2 * self.hidden)?;
        keys.size(SizeFlag::LAYERS, "num_hidden_layers", &mut self.layers)
    }
}

impl FamilyModel for Counter {
    type Positions = Seq;
    type Config = CounterConfig;

    fn tensor_names(_: &CounterConfig) -> Vec<HfName> {
        Vec::new()
    }

    fn dim_sizes(config: &CounterConfig) -> Sizes {
        Sizes::new()
            .with(Hidden, config.hidden)
            .with(Ffn, config.ffn)
            .with(Layers, config.layers)
            .with(Letters, 26)
            .with(Classes, CLASSES)
    }
}

const CLASSES: usize = 3;

// ANCHOR: task
/// Names the letter that a text has most of, one of the first three.
pub struct MostFrequent {
    seq: usize,
}

impl Task for MostFrequent {
    type Model = Counter;
    type Extra = Targets<(Batch,)>;
    type Over = (Batch,);
    type Flags = ();
    const NAME: &'static str = "most-frequent";

    fn open(setup: &TaskSetup<'_, CounterConfig, ()>) -> std::result::Result<Self, String> {
        Ok(MostFrequent { seq: setup.seq() })
    }

    fn streams(&self) -> RowStreams {
        RowStreams::new().ids("text", &[self.seq], 26).targets("class", &[], CLASSES)
    }

    fn row(
        &self,
        example: &Example,
        _: u64,
        row: &mut RowWriter<'_>,
    ) -> std::result::Result<(), String> {
        let text = example.text("text")?.bytes().map(|letter| u32::from(letter - b'a'));
        row.ids("text").iter_mut().zip(text.cycle()).for_each(|(to, letter)| *to = letter);
        row.ids("class")[0] = example.integer("class")? as u32;
        Ok(())
    }

    fn input(&self, rows: &Rows<'_>) -> (Text, Targets<(Batch,)>) {
        (rows.tokens("text"), rows.tokens("class"))
    }

    fn loss(&self, model: &Counter, output: &Stream, class: &Self::Extra) -> Loss<(Batch,)> {
        model.loss.forward(&model.head.forward(&output.mean(Seq)), class)
    }
}
// ANCHOR_END: task

/// Texts of random letters.
pub struct Texts;

impl ExampleSource for Texts {
    fn name(&self) -> &str {
        "random texts"
    }

    fn examples(&self) -> u64 {
        4096
    }

    fn fingerprint(&self) -> String {
        "random texts 1".to_owned()
    }

    fn read(&self, index: u64) -> io::Result<Example> {
        let key = random::key(index, "text");
        let letters = (0..15).map(|at| (random::subkey(key, at) % CLASSES as u64) as usize);
        let mut counts = [0; CLASSES];
        let text = letters.map(|letter| {
            counts[letter] += 1;
            (b'a' + letter as u8) as char
        });
        let text = Field::Text(text.collect());
        let most = (0..CLASSES).max_by_key(|letter| counts[*letter]).unwrap_or(0);
        let class = Field::Integer(most as i64);
        Ok(Example::new([("text".to_owned(), text), ("class".to_owned(), class)]))
    }
}

fn main() -> meshwright::Result<()> {
    let texts = |_: &()| Ok(Texts);
    let (trainer, ()) =
        TaskTrainer::<MostFrequent>::from_args_on_examples(&Optimizers::default(), texts)?;
    trainer.run()
}
