//! Cross attention of a distributed sequence to a memory that is whole on each rank: losses and every parameter's
//! gradient equal one rank's.

use super::{BATCH, Batch, HeadDim, Heads, Hidden, KvHeads, Results, SEQ, STYLES, Seq, Stream};
use super::{Vocab, assert_near, sizes, with_style};
use crate::nn::{
    Attention, AttentionSinks, Bidirectional, ContextStyle, Embedding, Layer, Linear, LmHead,
    Padding, RmsNorm, Sizes, Stack, build,
};
use crate::tensor::{Rank, Targets, Tensor, Tokens};
use meshwright_comm::{CommError, launch};
use meshwright_cpu::CpuBackend;
use meshwright_macros::{dims, forward, model};
use meshwright_mesh::MeshShape;

dims! { crate = crate; Memory }

type Encoded = Tensor<(Batch, Memory, Hidden)>;
/// The stream, the memory, and the padding of the memory.
type Flow = (Stream, Encoded, Padding<(Batch, Memory)>);

/// Cross attention with keys split like the queries, and with whole keys for split queries.
#[model(crate = crate)]
struct Block {
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (KvHeads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Linear<Hidden, (KvHeads, HeadDim)>,
    whole_k: Linear<Hidden, (KvHeads, HeadDim)>,
    whole_v: Linear<Hidden, (KvHeads, HeadDim)>,
    #[sharded(tp = "col")]
    sinks: AttentionSinks<Heads>,
    #[sharded(cp = "ring")]
    cross: Attention<Heads, KvHeads, HeadDim, Bidirectional>,
    #[sharded(cp = "gather")]
    cross_whole: Attention<Heads, KvHeads, HeadDim, Bidirectional>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Linear<(Heads, HeadDim), Hidden>,
}

#[forward(crate = crate)]
impl Block {
    fn forward(&self, (x, memory, padding): &Flow) -> Flow {
        let q = self.q.forward(&self.norm.forward(x));
        let (k, v) = (self.k.forward(memory), self.v.forward(memory));
        let padded = self.cross.forward(&(q.clone(), k, v, (padding, &self.sinks)));
        let (k, v) = (self.whole_k.forward(memory), self.whole_v.forward(memory));
        let y = self.o.forward(&(padded + self.cross_whole.forward(&(q, k, v))));
        (x + y, memory.clone(), padding.clone())
    }
}

#[model(crate = crate)]
struct Decoder {
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    #[sharded(tp = "vocab")]
    encode: Embedding<Vocab, Hidden>,
    encoder_norm: RmsNorm<Hidden>,
    blocks: Stack<Block>,
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
}

/// Positions of the memory, which no number of ranks divides, and the positions of each sample that are no padding.
const MEMORY: usize = 7;
const VALID: [std::ops::Range<usize>; BATCH] = [0..7, 0..3, 2..6, 6..7];

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
    let built = build::<Decoder>(rank, sizes).unwrap();
    let local = BATCH / rank.degree_of(crate::layout::AxisSet::DATA);
    let first = rank.position(crate::layout::AxisSet::DATA) * local;
    let ids = |seq: usize, id: fn(usize, usize) -> usize| -> Vec<u32> {
        let cells = (first..first + local).flat_map(|row| (0..seq).map(move |at| (row, at)));
        cells.map(|(row, at)| id(row, at) as u32 % 11).collect()
    };
    let stream = |ids: &[u32]| -> Tokens<(Batch, Seq)> {
        Tokens::from_whole_rows(rank, &[BATCH, SEQ], 0, ids)
    };
    let tokens = stream(&ids(SEQ, |row, at| row * 7 + at * at + 3));
    let targets: Targets<(Batch, Seq)> = stream(&ids(SEQ, |row, at| row + at * 5));
    let source = ids(MEMORY, |row, at| row * 3 + at * at * 2 + 1);
    let source = Tokens::<(Batch, Memory)>::from_block(rank, &[BATCH, MEMORY], &source);
    let padding = Padding::from_block(rank, BATCH, &VALID[first..first + local]);
    let model = &built.model;
    let memory: Encoded = model.encoder_norm.forward(&model.encode.forward(&source));
    let flow = (model.embed.forward(&tokens), memory, padding);
    let (x, ..) = model.blocks.forward(&flow);
    let loss = model.head.loss(&model.norm.forward(&x), &targets);
    let value = loss.reduce().value();
    let gradients = loss.backward().reduce();
    let of = |param: &crate::tensor::ParamRef| (param.path().to_owned(), gradients.gather(param));
    (value, built.params().iter().map(of).collect())
}

#[test]
fn cross_attention_has_the_gradients_of_one_rank() {
    let expected = on("dp=1", &sizes());
    let meshes = ["cp=2", "cp=3", "cp=4", "dp=2,cp=2", "cp=2,tp=2", "fsdp=2,cp=2,tp=2"];
    for (mesh, style) in meshes.into_iter().flat_map(|mesh| STYLES.map(|style| (mesh, style))) {
        // Styles that exchange heads are checked when the model is declared, though nothing is exchanged.
        if mesh == "cp=3" && style == ContextStyle::Ulysses {
            continue;
        }
        let actual = on(mesh, &with_style(style, sizes()));
        assert_near(&format!("{mesh} {style}"), &actual, &expected);
    }
}
