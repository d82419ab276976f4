//! Numbers that are not finite on one pipeline stage: all ranks stop, and the message names the rank of the stage.

use meshwright::checkpoint::hf::Gpt2Config;
use meshwright::prelude::*;
use meshwright::train::Config;
use meshwright_tests::models::gpt::{Batch, Block, Gpt, Hidden, Seq, Stream, Vocab};

use super::{assert_contains, in_time};

/// Embedding whose output is finite, and whose gradient overflows.
#[model]
struct OverflowingFront {
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
}

#[forward]
impl OverflowingFront {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream {
        let x = self.embed.forward(tokens) * 1e-20 * 1e-20;
        x * 1e20 * 1e20
    }
}

#[model]
struct Overflowing {
    #[pipeline_stage]
    front: OverflowingFront,
    #[pipeline_stage]
    blocks: Stack<Block>,
    #[pipeline_stage(last)]
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl Overflowing {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream;
}

impl LanguageModel for Overflowing {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = Gpt2Config;

    const HF_NAMES: &'static [HfName] = &[];

    fn sizes(config: &Gpt2Config) -> Sizes {
        Gpt::sizes(config)
    }

    fn loss_of_output(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x).gather(Vocab)
    }
}

#[test]
fn an_infinite_gradient_of_the_first_stage_stops_all() {
    let train = |flags: &str| {
        let words = format!(
            "train --hidden 32 --heads 4 --layers 4 --batch 4 --seq 8 --steps 2 --threads 1 --sample-tokens 0 {flags}"
        );
        let config = Config::parse(words.split(' ')).unwrap();
        let refused = move || {
            Trainer::<Overflowing>::new(config).and_then(Trainer::train).unwrap_err().to_string()
        };
        in_time(refused)
    };
    for (flags, rank) in [
        ("--mesh pp=2 --micro-batches 2", "on rank 0;"),
        ("--mesh pp=2 --micro-batches 4 --schedule zb-v", "on rank 0;"),
        ("--mesh dp=2,pp=2 --micro-batches 2", "on ranks 0, 1;"),
    ] {
        assert_contains(&train(flags), &["step 1: the gradient norm is ", rank]);
    }
}
