//! Documents that are passed from block to block, although attention finds them.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Hidden, Heads, HeadDim, Vocab }

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;
type Flow = (Stream, Documents<(Batch, Seq)>);

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
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    blocks: Stack<Block>,
}

#[forward]
impl Lm {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream {
        self.blocks.forward(&(self.embed.forward(tokens), tokens.documents())).0
    }
}

fn main() {}
