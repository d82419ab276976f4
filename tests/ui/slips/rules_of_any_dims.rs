//! Functions of any dims that need dims which fit together.

use meshwright::layout::Whole;
use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Heads, HeadDim }

type Queries<S, D> = Tensor<(Batch, S, Heads, D)>;

fn add<S: Dim, T: Dim>(x: &Tensor<(Batch, S, Hidden)>, y: &Tensor<(Batch, T, Hidden)>) -> Tensor<(Batch, S, Hidden)> {
    x + y
}

fn attend<S: Dim>(core: &Attention<Heads, Heads, HeadDim>, x: &Queries<S, HeadDim>) -> Queries<S, HeadDim> {
    core.forward(&(x.clone(), x.clone(), x.clone()))
}

fn rotate<D: Whole, E: Whole>(rope: &Rope<D>, x: &Queries<Seq, E>) -> Queries<Seq, E> {
    rope.forward(x)
}

fn main() {}
