//! Documents declared for a part of the sequence, because the stream of the same tuple is split.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Hidden, Heads, HeadDim, Vocab }

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;
type Flow = (Stream, Documents<(Batch, Split<Seq, Tp>)>);

#[model]
struct Block {
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(cp = "ring")]
    core: Attention<Heads, Heads, HeadDim>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Linear<(Heads, HeadDim), Hidden>,
}

#[forward]
impl Block {
    fn forward(&self, (x, documents): &Flow) -> Flow {
        let q = self.q.forward(x);
        let attended = self.core.forward(&(q.clone(), q.clone(), q, documents));
        (x + self.o.forward(&attended), documents.clone())
    }
}

#[model]
struct Lm {
    #[pipeline_stage]
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: WithDocuments<Embedding<Vocab, Hidden>>,
    #[pipeline_stage]
    blocks: Stack<Block>,
}

#[forward]
impl Lm {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Flow;
}

fn main() {}
