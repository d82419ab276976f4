//! Pipelines with one stage that cannot be captured as a CUDA graph: the steps of all stages are eager then.

use meshwright::checkpoint::hf::Gpt2Config;
use meshwright::prelude::*;
use meshwright_cuda::CallKind;
use meshwright_gpu_sim::not_checked_on_gpu;
use meshwright_tests::models::gpt::{Batch, Block, Gpt, Hidden, Seq, Stream, Vocab};
use meshwright_tests::models::staged::Front;

use super::graphs::{Left, run_of_size};
use super::nccl::Cluster;

const SIZES: &str = "--batch 8 --seq 4 --hidden 16 --layers 2";
const WORDS: &str = "--mesh pp=2 --steps 5 --micro-batches 4 --schedule 1f1b --dtype f32";

/// A layer without dropout.
#[model]
struct PlainLayer {
    norm: LayerNorm<Hidden>,
}

#[forward]
impl PlainLayer {
    fn forward(&self, x: &Stream) -> Stream {
        x + self.norm.forward(x)
    }
}

/// A model that depends on the number of the step on its first stage only, by dropout.
#[model]
struct DropsInFront {
    #[pipeline_stage]
    front: Front,
    #[pipeline_stage]
    layers: Stack<PlainLayer>,
    #[pipeline_stage(last)]
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl DropsInFront {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream;
}

impl LanguageModel for DropsInFront {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = Gpt2Config;

    const HF_NAMES: &'static [HfName] = &[];

    fn sizes(config: &Gpt2Config) -> Sizes {
        let mut sizes = Gpt::sizes(config);
        sizes.dropout = 0.25;
        sizes
    }

    fn loss_of_output(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x).gather(Vocab)
    }
}

/// A model whose loss reads a number on the host, on its last stage only.
#[model]
struct ReadsLoss {
    #[pipeline_stage]
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    #[pipeline_stage]
    layers: Stack<Block>,
    #[pipeline_stage(last)]
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl ReadsLoss {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream;
}

impl LanguageModel for ReadsLoss {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = Gpt2Config;

    const HF_NAMES: &'static [HfName] = &[];

    fn sizes(config: &Gpt2Config) -> Sizes {
        Gpt::sizes(config)
    }

    fn loss_of_output(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        let loss = self.head.loss(x, targets);
        assert!(loss.reduce().value().is_finite());
        loss
    }

    fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x).gather(Vocab)
    }
}

/// Checks that no rank captures a step, and that the results equal a run without graphs.
#[track_caller]
fn check_eager<M: LanguageModel>(what: &str) {
    let cluster = || Cluster::new(2).grouped();
    let expected: Left =
        run_of_size::<M>(SIZES, &format!("{WORDS} --no-graphs"), Box::new(cluster()));
    let machine = cluster();
    let drivers = machine.drivers.clone();
    let got = run_of_size::<M>(SIZES, WORDS, Box::new(machine));
    assert_eq!(got.summary.losses, expected.summary.losses, "{what}");
    assert_eq!(got.summary.grad_norms, expected.summary.grad_norms, "{what}");
    assert!(got.saved == expected.saved, "{what}: parameters and optimizer state");
    for (rank, driver) in drivers.iter().enumerate() {
        let log = driver.device().log();
        let captures = log.iter().filter(|entry| entry.kind == CallKind::BeginCapture);
        assert_eq!(captures.count(), 0, "{what}: rank {rank}");
    }
}

#[test]
fn dropout_on_the_first_stage_keeps_all_eager() {
    if not_checked_on_gpu() {
        return;
    }
    check_eager::<DropsInFront>("dropout");
}

#[test]
fn a_loss_read_by_the_host_keeps_all_eager() {
    if not_checked_on_gpu() {
        return;
    }
    check_eager::<ReadsLoss>("a loss that the host reads");
}
