//! A language model with padding, linear and learned biases and sinks over a distributed sequence: losses and every
//! parameter's gradient equal one rank's.

use super::{
    BATCH, Batch, HeadDim, Heads, Hidden, KvHeads, Results, SEQ, STYLES, Seq, Stream, Vocab,
};
use super::{assert_near, sizes, with_style};
use crate::nn::{
    Alibi, Attention, AttentionOptions, AttentionSinks, ContextStyle, Embedding, Layer, Linear,
    LmHead, Padding, RelativeBias, RmsNorm, Sizes, Stack, build,
};
use crate::tensor::{Rank, Targets, Tokens};
use meshwright_comm::{CommError, launch};
use meshwright_cpu::CpuBackend;
use meshwright_macros::{dims, forward, model};
use meshwright_mesh::MeshShape;

dims! { crate = crate; Buckets }

type Flow = (Stream, Padding<(Batch, Seq)>);

#[model(crate = crate)]
struct Block {
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (KvHeads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Linear<Hidden, (KvHeads, HeadDim)>,
    alibi: Alibi<Heads>,
    #[sharded(tp = "col")]
    bias: RelativeBias<Buckets, Heads>,
    /// Sinks of both attentions.
    #[sharded(tp = "col")]
    sinks: AttentionSinks<Heads>,
    #[sharded(cp = "ring")]
    with_alibi: Attention<Heads, KvHeads, HeadDim>,
    #[sharded(cp = "gather")]
    with_bias: Attention<Heads, KvHeads, HeadDim>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Linear<(Heads, HeadDim), Hidden>,
}

#[forward(crate = crate)]
impl Block {
    fn forward(&self, (x, padding): &Flow) -> Flow {
        let y = self.norm.forward(x);
        let (q, k, v) = (self.q.forward(&y), self.k.forward(&y), self.v.forward(&y));
        let extras = (padding, &self.alibi, &self.sinks);
        let near = self.with_alibi.forward(&(q.clone(), k.clone(), v.clone(), extras));
        let extras = (padding, &self.bias, &self.sinks);
        let y = self.o.forward(&(near + self.with_bias.forward(&(q, k, v, extras))));
        (x + y, padding.clone())
    }
}

#[model(crate = crate)]
struct Lm {
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    blocks: Stack<Block>,
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
}

/// Valid positions of all samples, in any chunk.
const VALID: [std::ops::Range<usize>; BATCH] = [0..24, 0..7, 3..20, 13..14];

fn on(mesh: &str, sizes: &Sizes) -> Results {
    let shape: MeshShape = mesh.parse().unwrap();
    let mut results = launch(&shape, |comms| {
        let backend = Box::new(CpuBackend::new(1).unwrap());
        Ok::<_, CommError>(on_rank(&Rank::new(comms, backend, 7), sizes))
    })
    .unwrap_or_else(|error| panic!("{mesh}: {error}"));
    results.swap_remove(0)
}

fn on_rank(rank: &Rank, sizes: &Sizes) -> Results {
    let built = build::<Lm>(rank, sizes).unwrap();
    let data_ranks = rank.degree_of(crate::layout::AxisSet::DATA);
    let local = BATCH / data_ranks;
    let first = rank.position(crate::layout::AxisSet::DATA) * local;
    let cells = || (first..first + local).flat_map(|row| (0..SEQ).map(move |at| (row, at)));
    let ids: Vec<u32> = cells().map(|(row, at)| (row * 7 + at * at + 3) as u32 % 11).collect();
    let ignored = Targets::<(Batch, Seq)>::IGNORED;
    let targets: Vec<u32> = cells()
        .map(
            |(row, at)| if VALID[row].contains(&at) { (row + at * 5) as u32 % 11 } else { ignored },
        )
        .collect();
    let tokens = |ids: &[u32]| Tokens::<(Batch, Seq)>::from_whole_rows(rank, &[BATCH, SEQ], 0, ids);
    let padding = Padding::from_block(rank, BATCH, &VALID[first..first + local]);
    let model = &built.model;
    let (x, _) = model.blocks.forward(&(model.embed.forward(&tokens(&ids)), padding));
    let loss = model.head.loss(&model.norm.forward(&x), &tokens(&targets));
    let value = loss.reduce().value();
    let gradients = loss.backward().reduce();
    let of = |param: &crate::tensor::ParamRef| (param.path().to_owned(), gradients.gather(param));
    let all: Vec<(String, Vec<f32>)> = built.params().iter().map(of).collect();
    for param in ["sinks.weight", "bias.weight"] {
        assert!(all.iter().any(|(path, _)| path.ends_with(param)), "{param} is a parameter");
    }
    (value, all)
}

#[test]
fn extras_have_the_gradients_of_one_rank() {
    // Some pairs are farther apart than the last distance of the table.
    let attention = AttentionOptions { max_distance: 9, ..Default::default() };
    let windowed = AttentionOptions { windows: vec![Some(5), None], ..attention.clone() };
    for attention in [attention, windowed] {
        let mut sizes = sizes().with(Buckets, 8);
        sizes.attention = attention;
        let expected = on("dp=1", &sizes);
        let meshes = ["cp=2", "cp=3", "cp=4", "dp=2,cp=2", "cp=2,tp=2", "fsdp=2,cp=2,tp=2"];
        for (mesh, style) in meshes.into_iter().flat_map(|mesh| STYLES.map(|style| (mesh, style))) {
            if mesh == "cp=3" && style == ContextStyle::Ulysses {
                continue;
            }
            let actual = on(mesh, &with_style(style, sizes.clone()));
            assert_near(&format!("{mesh} {style}"), &actual, &expected);
        }
    }
}
