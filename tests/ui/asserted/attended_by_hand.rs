//! A hand-written impl, with which attention without context parallelism reads along a distributed sequence.

use meshwright::nn::Attended;
use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Heads, HeadDim }

impl Attended for Seq {}

type Queries = Tensor<(Batch, Seq, Heads, HeadDim)>;

fn attend(attention: &Attention<Heads, Heads, HeadDim>, q: &Queries) -> Queries {
    attention.forward(&(q.clone(), q.clone(), q.clone()))
}

fn main() {}
