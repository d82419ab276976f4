//! Sinks before a bias, two biases, and padding after both.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Memory, Hidden, Heads, KvHeads, HeadDim, ValueDim, Buckets }

type OnAll<H> = Tensor<(Batch, Seq, H, HeadDim)>;

#[model]
struct Core {
    core: Attention<Heads, Heads, HeadDim, Bidirectional>,
    alibi: Alibi<Heads>,
    bias: RelativeBias<Buckets, Heads>,
    sinks: AttentionSinks<Heads>,
}

impl Core {
    fn swapped(&self, x: OnAll<Heads>) -> OnAll<Heads> {
        self.core.forward(&(x.clone(), x.clone(), x, (&self.sinks, &self.bias)))
    }

    fn twice(&self, x: OnAll<Heads>) -> OnAll<Heads> {
        self.core.forward(&(x.clone(), x.clone(), x, (&self.alibi, &self.bias)))
    }

    fn last(&self, x: OnAll<Heads>, padding: &Padding<(Batch, Seq)>) -> OnAll<Heads> {
        self.core.forward(&(x.clone(), x.clone(), x, (&self.bias, &self.sinks, padding)))
    }
}

fn main() {}
