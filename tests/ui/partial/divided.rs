//! Quotients with a partial sum on either side, and its square root.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Inner = Tensor<(Batch, Seq, Split<Ffn, Tp>)>;

fn normalized(h: &Inner, x: &Tensor<(Batch, Seq)>) -> Tensor<(Batch, Seq)> {
    x / h.square().sum(Ffn)
}

fn ratio(h: &Inner, x: &Tensor<(Batch, Seq)>) -> Partial<(Batch, Seq), Tp> {
    h.sum(Ffn) / x
}

fn root(h: &Inner) -> Tensor<(Batch, Seq)> {
    h.square().mean(Ffn).sqrt()
}

fn limited(h: &Inner) -> Tensor<(Batch, Seq)> {
    h.mean(Ffn).clamp(-1.0, 1.0)
}

fn main() {}
