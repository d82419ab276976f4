//! Positions that are declared over an axis.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Hidden, HeadDim @ dp }

#[model]
struct Embedded {
    positions: LearnedPositions<Seq, Hidden>,
    rope: Rope<HeadDim>,
}

fn main() {}
