//! Dims declared over an axis, where a whole dim is needed.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Hidden }

type Stream = Tensor<(Batch, Seq, Hidden)>;

fn sequence(x: &Stream) -> Stream {
    x.gather(Seq)
}

fn in_flight(x: &Stream) -> Stream {
    x.start_gather(Seq).wait()
}

fn over_samples(logits: &Tensor<(Hidden, Batch)>) -> Tensor<(Hidden, Batch)> {
    logits.softmax()
}

fn generic<D: Local>(x: &Tensor<(D, Batch)>) -> Tensor<(D, Batch)> {
    x.gather(Batch)
}

fn main() {
    let split = |x: &Stream| x.slice(Batch, Dp);
    let _ = split;
}
