//! A result in flight that is converted to a tensor, instead of waited for.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

type Stream = Tensor<(Batch, Seq, Hidden)>;

fn whole(x: &Tensor<(Batch, Split<Seq, Tp>, Hidden)>) -> Stream {
    Stream::from(x.start_gather(Seq))
}

fn main() {
    let _ = whole;
}
