//! The mean over a distributed sequence, subtracted by a rank that has a part of it, in a closure.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Hidden }

type Stream = Tensor<(Batch, Seq, Hidden)>;

fn centered(layers: &[Stream]) -> Vec<Stream> {
    let center = |x: &Stream| x - x.mean(Seq);
    layers.iter().map(center).collect()
}

fn main() {}
