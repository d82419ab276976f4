//! The sharded form of a layer over `cp`, as the type of a field.

use meshwright::nn::{Col, Row, Scatter};
use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

#[model]
struct Mlp {
    up: <Linear<Hidden, Ffn> as Shard<Col<Cp>>>::Sharded,
    down: <Linear<Ffn, Hidden> as Shard<Row<Cp, Scatter<Seq>>>>::Sharded,
}

fn main() {}
