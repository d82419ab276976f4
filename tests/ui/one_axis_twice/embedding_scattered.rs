//! An embedding whose result is scattered along a dim that its axis cannot split any more.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Vocab, Hidden }

type Ids = Tokens<(Split<Batch, Tp>, Seq)>;

#[model]
struct Lm {
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
}

fn streams(lm: &Lm, batches: &[Ids]) -> usize {
    batches.iter().map(|ids| lm.embed.forward(ids).sizes()[0]).sum()
}

fn main() {}
