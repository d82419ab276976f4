//! A model with a written `forward`, run by a generic function for models with stages.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn, Vocab }

type Ids = Tokens<(Batch, Seq)>;
type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

#[model]
struct Block {
    norm: RmsNorm<Hidden>,
}

#[forward]
impl Block {
    fn forward(&self, x: &Stream) -> Stream {
        x + self.norm.forward(x)
    }
}

#[model]
struct Net {
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    blocks: Stack<Block>,
}

#[forward]
impl Net {
    fn forward(&self, x: &Ids) -> Stream {
        self.blocks.forward(&self.embed.forward(x))
    }
}

fn run<M: meshwright::nn::StagedForward>(model: &M, x: &M::In) -> M::Out {
    meshwright::nn::forward_stages(model, x)
}

fn run_net(net: &Net, x: &Ids) -> Stream {
    run(net, x)
}

fn main() {}
