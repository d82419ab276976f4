//! A model with every optional operand of attention, over a distributed sequence, compared with the CPU: on a simulated
//! GPU for each rank, or on a GPU that ranks share.

use meshwright::backend::DType;
use meshwright::nn::ContextStyle;
use meshwright::prelude::*;
use meshwright::tensor::Settings;
use meshwright_tests::compare::Report;
use meshwright_tests::data::{Batches, PackedData, TokenData, Turn};
use meshwright_tests::run::{Setup, train};

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

/// Causal attention within documents, and bidirectional attention over valid positions, each with a bias and sinks.
#[model]
struct Extras {
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
    alibi: Alibi<Heads>,
    #[sharded(tp = "col")]
    sinks: AttentionSinks<Heads>,
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

impl Extras {
    fn loss(
        &self,
        tokens: &Tokens<(Batch, Seq)>,
        targets: &Targets<(Batch, Seq)>,
        padding: &Padding<(Batch, Seq)>,
    ) -> Loss<(Batch, Seq)> {
        let x: Stream = self.embed.forward(tokens);
        let (q, k, v) = (self.q.forward(&x), self.k.forward(&x), self.v.forward(&x));
        let extras = (&self.bias, &self.sinks);
        let packed = self.packed.forward(&(q.clone(), k.clone(), v.clone(), extras));
        let extras = (padding, &self.alibi, &self.sinks);
        let padded = self.padded.ignoring_documents().forward(&(q, k, v, extras));
        let y = self.o.forward(&(packed + padded));
        self.head.loss(&self.norm.forward(&(&x + y)), targets)
    }
}

pub const DATA: PackedData = PackedData(TokenData { batch: 4, seq: 24, vocab: 13, masked: true });

/// Valid positions of the samples, in any chunk of `cp`.
const VALID: [std::ops::Range<usize>; 4] = [0..24, 0..7, 3..20, 13..14];

fn loss(model: &Extras, rank: &Rank, turn: Turn) -> Loss<(Batch, Seq)> {
    let (tokens, targets) = DATA.block(rank, turn);
    let padding = Padding::from_block(rank, VALID.len(), &VALID);
    model.loss(&tokens, &targets, &padding)
}

fn setup(compute: DType) -> Setup {
    let mut sizes = Sizes::new()
        .with(Hidden, 16)
        .with(Heads, 4)
        .with(KvHeads, 2)
        .with(HeadDim, 8)
        .with(Buckets, 8)
        .with(Vocab, DATA.0.vocab);
    sizes.init_std = 0.3;
    // Some pairs are farther apart than the last distance of the table.
    sizes.attention = AttentionOptions { max_distance: 9, ..AttentionOptions::default() };
    let settings = Settings { compute, ..Settings::new(7) };
    Setup { steps: 2, settings, ..Setup::new(sizes) }
}

#[test]
fn optional_operands_over_cp_match_the_cpu() {
    let mut report = Report::default();
    for (mesh, style, dtype, tolerance) in [
        ("cp=2", ContextStyle::Ring, DType::F32, F32),
        ("cp=2", ContextStyle::Gather, DType::Bf16, BF16),
        ("cp=2,tp=2", ContextStyle::Ulysses, DType::F32, F32),
    ] {
        let mut setup = setup(dtype);
        setup.sizes.context = Some(style);
        let expected = train("1", &setup, loss);
        let got = train(mesh, &Setup { machine: Some(machine_of(mesh)), ..setup }, loss);
        let place = format!("{style} on {mesh} in {dtype}");
        for param in ["sinks.weight", "bias.weight"] {
            let gradient = &got.gradients[param];
            assert!(gradient.iter().any(|x| *x != 0.0), "{place}: {param} has a gradient");
        }
        compare(&mut report, &place, &got, &expected, tolerance);
    }
    report.print();
}
