//! A partial sum scattered along a dim over an axis that distributes another dim.

use meshwright::prelude::*;

dims! { Batch, Seq @ dp, Ffn, Hidden }

fn scatter(x: &Tensor<(Batch, Split<Ffn, Tp>, Hidden)>) -> Tensor<(Split<Batch, Tp>, Split<Hidden, Tp>)> {
    x.sum(Ffn).reduce_scatter(Batch).slice(Hidden, Tp)
}

fn main() {}
