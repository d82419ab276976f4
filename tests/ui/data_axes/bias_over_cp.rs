//! The bias of a layer over `cp`.

use meshwright::nn::Col;
use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn }

#[model]
struct Mlp {
    bias: Bias<Ffn, Col<Cp>>,
    gain: <Param<(Ffn,)> as Shard<Col<Dp>>>::Sharded,
}

fn main() {}
