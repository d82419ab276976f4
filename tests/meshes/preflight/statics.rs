//! Numbers that a program keeps in a `static`: the numbers of its first run stay, so the mesh runs in a process of its
//! own.

use std::sync::OnceLock;

use meshwright::layout::AxisSet;
use meshwright::models::llama::Llama;
use meshwright::optim::{AdamWOptions, FlatSlice, Group, UpdateRule, Updated};
use meshwright::prelude::*;
use meshwright::train::{Config, OptimizerEntry, Optimizers};

use super::{caught, stream, train};

#[test]
fn a_scale_of_the_first_block_differs() {
    static SCALE: OnceLock<f32> = OnceLock::new();
    caught("a scale of the first block", &["dp=2"], &["in step 1", "loss"], |rank| {
        train(rank, |net, _| {
            let inner = net.up.forward(&stream(rank)).silu();
            let block = inner.to_local_vec();
            let squares = block.iter().map(|x| x * x).sum::<f32>();
            let scale = *SCALE.get_or_init(|| (squares / block.len() as f32).sqrt());
            let y = net.down.forward(&inner) * (1.0 / scale);
            Loss::mean_of(&(&y * &y))
        })
    });
}

/// AdamW, at a rate that follows from the number of ranks in the first run of the process.
#[derive(Debug)]
struct OfFirstRun(AdamWOptions);

impl UpdateRule for OfFirstRun {
    fn name(&self) -> &str {
        "of-first-run"
    }

    fn state_kinds(&self, group: Group) -> &'static [&'static str] {
        self.0.state_kinds(group)
    }

    fn update(&self, slice: FlatSlice<'_>) -> Updated {
        static RANKS: OnceLock<usize> = OnceLock::new();
        let ranks = *RANKS.get_or_init(|| slice.step().rank().degree_of(AxisSet::ALL));
        let weight_decay = self.0.weight_decay * ranks as f64;
        AdamWOptions { weight_decay, ..self.0 }.update(slice)
    }
}

#[test]
fn a_rule_of_the_first_run_differs_in_the_trainer() {
    let entry = OptimizerEntry::new("of-first-run", |_| OfFirstRun(AdamWOptions::default()));
    let line = "train --hidden 16 --layers 1 --heads 4 --ffn 24 --seq 16 --batch 4 --threads 1 \
                --optimizer of-first-run --lr 1e-2 --warmup 0 --preflight 2 --mesh dp=2";
    let config = Config::parse_with(line.split_whitespace(), &Optimizers::default().with(entry));
    let trainer = Trainer::<Llama>::new(config.unwrap()).unwrap();
    let message = trainer.preflight().unwrap_err().to_string();
    assert!(message.contains("dp=2 differs from one rank in step 1, along dp"), "{message}");
    assert!(message.contains("after the update"), "{message}");
}
