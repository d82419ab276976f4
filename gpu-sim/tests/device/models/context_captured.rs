//! Captured steps of a model whose attention reads other blocks of keys from some step on.

use std::cell::Cell;

use meshwright::checkpoint::hf::LlamaConfig;
use meshwright::nn::{Build, Builder};
use meshwright::prelude::*;
use meshwright_cuda::CallKind;
use meshwright_gpu_sim::{Entry, not_checked_on_gpu};

use super::graphs::{Left, run_of_size};
use super::nccl::Cluster;

dims! {
    Batch @ data,
    Seq @ cp,
    Hidden,
    Heads,
    KvHeads,
    HeadDim,
    Vocab,
}

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

/// Number of forward passes of a model, on the host.
struct Passes(Cell<usize>);

impl Build for Passes {
    fn build(_: &mut Builder<'_>) -> Self {
        Passes(Cell::new(0))
    }
}

/// A model with a window from its third pass on.
#[model]
struct Narrowing {
    passes: Passes,
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (KvHeads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Linear<Hidden, (KvHeads, HeadDim)>,
    #[sharded(cp = "ring")]
    wide: Attention<Heads, KvHeads, HeadDim>,
    #[sharded(cp = "ring")]
    near: Attention<Heads, KvHeads, HeadDim>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Linear<(Heads, HeadDim), Hidden>,
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl Narrowing {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream {
        let x: Stream = self.embed.forward(tokens);
        let (q, k, v) = (self.q.forward(&x), self.k.forward(&x), self.v.forward(&x));
        let Passes(passes) = &self.passes;
        let core = if passes.replace(passes.get() + 1) < 2 { &self.wide } else { &self.near };
        let y = self.o.forward(&core.forward(&(q, k, v)));
        self.norm.forward(&(&x + y))
    }
}

impl LanguageModel for Narrowing {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = LlamaConfig;

    const HF_NAMES: &'static [HfName] = &[];

    fn sizes(config: &LlamaConfig) -> Sizes {
        let options = AttentionOptions { windows: vec![Some(3)], ..AttentionOptions::default() };
        let mut sizes = Sizes::new()
            .with(Hidden, config.hidden)
            .with(Heads, config.heads)
            .with(KvHeads, config.kv_heads)
            .with(HeadDim, config.head_dim)
            .with(Vocab, config.vocab)
            .with_attention("near", options);
        // Documents of other rows change the loss.
        sizes.init_std = 0.3;
        sizes
    }

    fn loss_of_output(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x).gather(Vocab)
    }
}

/// Trains with and without CUDA graphs, with the same results, and returns the number of captures and of graph launches
/// of each rank.
fn captures_and_launches(micro_batches: usize) -> Vec<[usize; 2]> {
    let run = |words: &str| {
        let cluster = Cluster::new(2);
        let drivers = cluster.drivers.clone();
        let words = format!(
            "--steps 4 --mesh cp=2 --dtype f32 --documents 32 --micro-batches {micro_batches} {words}"
        );
        let sizes = "--batch 2 --seq 8 --hidden 8 --layers 1";
        (run_of_size::<Narrowing>(sizes, &words, Box::new(cluster)), drivers)
    };
    let (expected, _) = run("--no-graphs");
    let (got, drivers) = run("");
    let results = |left: &Left| (left.summary.losses.clone(), left.summary.grad_norms.clone());
    assert_eq!(results(&got), results(&expected), "{micro_batches} micro-batches");
    assert!(got.saved == expected.saved, "{micro_batches} micro-batches: parameters");
    let of_rank = |log: Vec<Entry>| {
        let count = |kind| log.iter().filter(|entry| entry.kind == kind).count();
        [count(CallKind::BeginCapture), count(CallKind::LaunchGraph)]
    };
    drivers.iter().map(|driver| of_rank(driver.device().log())).collect()
}

/// The key ranges of a block that was not read before are not inputs of the graph: in every replay they would be the
/// ranges of the captured documents.
#[test]
fn a_capture_with_an_unprepared_key_block_is_refused() {
    if not_checked_on_gpu() {
        return;
    }
    // The window begins in the pass that is captured.
    assert_eq!(captures_and_launches(1), [[1, 0]; 2]);
    // It begins in the second step of two micro-batches, before the capture of each of them.
    assert_eq!(captures_and_launches(2), [[2, 4]; 2]);
}
