//! The mean over a distributed sequence, subtracted in a closure by ranks that have a part of the sequence.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Hidden }

type Stream = Tensor<(Batch, Seq, Hidden)>;

fn center(layers: &[Stream]) {
    layers.iter().for_each(|x| drop(x - x.mean(Seq)));
}

fn main() {}
