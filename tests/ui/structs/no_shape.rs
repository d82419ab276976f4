//! Types of tensors and token ids that are no shapes.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden }

type Rows<D> = Tensor<D>;

fn one_dim(x: &Tensor<Hidden>) -> Vec<f32> {
    x.to_local_vec()
}

fn number(x: &Tensor<(Batch, f32)>) {
    let _ = x;
}

fn grouped(x: &Tensor<(Batch, Seq, (Hidden, Hidden))>) {
    let _ = x;
}

fn ids(tokens: &Tokens<Batch>) {
    let _ = tokens;
}

fn by_alias(x: Rows<Hidden>) {
    let _ = x;
}

fn generic<S>(x: &Tensor<S>) {
    let _ = x;
}

fn main() {}
