//! Windows with documents, padding and biases over a distributed sequence, compared with the CPU: on a simulated GPU
//! for each rank, or on a GPU that ranks share.

use meshwright::backend::DType;
use meshwright::nn::ContextStyle;
use meshwright::prelude::*;
use meshwright::tensor::Settings;
use meshwright_tests::compare::Report;
use meshwright_tests::data::{Batches, Turn};
use meshwright_tests::run::{Setup, train};

use super::context::DATA;
use super::{BF16, F32, compare, machine_of};

dims! {
    Batch @ data,
    Seq @ cp,
    Hidden,
    Heads,
    KvHeads,
    HeadDim,
    Buckets,
    Vocab,
}

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

/// One attention for each method of finding the keys of a window: by blocks of positions, by consecutive positions
/// whose distances have biases, and by the key ranges of documents and of padding.
#[model]
struct Windowed {
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (KvHeads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Linear<Hidden, (KvHeads, HeadDim)>,
    #[sharded(tp = "col")]
    bias: RelativeBias<Buckets, Heads>,
    #[sharded(cp = "ring")]
    plain: Attention<Heads, KvHeads, HeadDim>,
    #[sharded(cp = "ring")]
    biased: Attention<Heads, KvHeads, HeadDim, Bidirectional>,
    #[sharded(cp = "ring")]
    packed: Attention<Heads, KvHeads, HeadDim>,
    #[sharded(cp = "ring")]
    padded: Attention<Heads, KvHeads, HeadDim, Bidirectional>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Linear<(Heads, HeadDim), Hidden>,
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
}

impl Windowed {
    fn loss(
        &self,
        tokens: &Tokens<(Batch, Seq)>,
        targets: &Targets<(Batch, Seq)>,
        padding: &Padding<(Batch, Seq)>,
    ) -> Loss<(Batch, Seq)> {
        let x: Stream = self.embed.forward(tokens);
        let (q, k, v) = (self.q.forward(&x), self.k.forward(&x), self.v.forward(&x));
        let operands = || (q.clone(), k.clone(), v.clone());
        let plain = self.plain.ignoring_documents().forward(&operands());
        let (q, k, v) = operands();
        let biased = self.biased.ignoring_documents().forward(&(q, k, v, &self.bias));
        let packed = self.packed.forward(&operands());
        let (q, k, v) = operands();
        let padded = self.padded.ignoring_documents().forward(&(q, k, v, (padding, &self.bias)));
        let y = self.o.forward(&(plain + biased + packed + padded));
        self.head.loss(&self.norm.forward(&(&x + y)), targets)
    }
}

/// Valid positions of the samples: all, none, from and to the middle of chunks, and one.
const VALID: [std::ops::Range<usize>; 4] = [0..24, 0..0, 3..20, 13..14];

fn loss(model: &Windowed, rank: &Rank, turn: Turn) -> Loss<(Batch, Seq)> {
    let (tokens, targets) = DATA.block(rank, turn);
    let padding = Padding::from_block(rank, VALID.len(), &VALID);
    model.loss(&tokens, &targets, &padding)
}

/// Returns the setup with the windows of the four attentions.
fn setup(compute: DType, windows: [usize; 4]) -> Setup {
    let mut sizes = Sizes::new()
        .with(Hidden, 8)
        .with(Heads, 2)
        .with(KvHeads, 1)
        .with(HeadDim, 8)
        .with(Buckets, 4)
        .with(Vocab, DATA.0.vocab);
    sizes.init_std = 0.3;
    for (index, (field, window)) in
        ["plain", "biased", "packed", "padded"].into_iter().zip(windows).enumerate()
    {
        let options = AttentionOptions {
            windows: vec![Some(window)],
            soft_cap: (index % 2 == 1).then_some(2.0),
            // Some pairs of wide windows are farther apart.
            max_distance: 5,
            ..AttentionOptions::default()
        };
        sizes = sizes.with_attention(field, options);
    }
    // The options of a learned bias.
    sizes.attention = AttentionOptions { max_distance: 5, ..AttentionOptions::default() };
    let settings = Settings { compute, ..Settings::new(7) };
    Setup { steps: 1, settings, ..Setup::new(sizes) }
}

/// Compares a run over `cp` with one rank of the CPU.
#[track_caller]
fn check(mesh: &str, style: ContextStyle, dtype: DType, windows: [usize; 4]) {
    let mut setup = setup(dtype, windows);
    let expected = train("1", &setup, loss);
    setup.sizes.context = Some(style);
    let got = train(mesh, &Setup { machine: Some(machine_of(mesh)), ..setup }, loss);
    let place = format!("windows {windows:?} by {style} on {mesh} in {dtype}");
    assert!(got.gradients["bias.weight"].iter().any(|x| *x != 0.0), "{place}: no bias gradient");
    let mut report = Report::default();
    let tolerance = if dtype == DType::F32 { F32 } else { BF16 };
    compare(&mut report, &place, &got, &expected, tolerance);
    report.print();
}

/// Windows within a chunk, of one position, of several chunks, and longer than the sequence.
const WINDOWS: [[usize; 4]; 2] = [[1, 9, 3, 2], [11, 3, 40, 13]];

#[test]
fn windows_over_a_ring() {
    check("cp=2", ContextStyle::Ring, DType::F32, WINDOWS[0]);
    check("cp=3", ContextStyle::Ring, DType::F32, WINDOWS[1]);
}

#[test]
fn windows_over_a_ring_on_tensor_cores() {
    check("cp=2", ContextStyle::Ring, DType::Bf16, WINDOWS[1]);
}

#[test]
fn windows_over_gathered_keys() {
    check("cp=3", ContextStyle::Gather, DType::F32, WINDOWS[0]);
    check("cp=2", ContextStyle::Gather, DType::Bf16, WINDOWS[1]);
}

#[test]
fn windows_over_exchanged_heads() {
    check("cp=2", ContextStyle::Ulysses, DType::Bf16, WINDOWS[0]);
    check("cp=4", ContextStyle::Hybrid(Some(2)), DType::F32, WINDOWS[1]);
}
