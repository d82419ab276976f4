//! Losses that are joined in one mean have no weights, no factor, and no value together.

use meshwright::prelude::*;
use meshwright::tensor::{Objective, OfStep, Pooled};

dims! { Batch @ data, Seq, Hidden }

fn added_to_weighted(pooled: Objective<Pooled>, samples: Loss<(Batch,)>) {
    let _ = (samples.weighted(0.1) + pooled).backward().reduce();
}

fn weighted_added(pooled: Objective<Pooled>, samples: Loss<(Batch,)>) {
    let _ = (pooled + samples.weighted(0.1)).backward().reduce();
}

fn scaled(pooled: Objective<Pooled>) {
    let _ = (pooled * 0.5).backward().reduce();
}

fn value(pooled: &Objective<Pooled>) -> f64 {
    pooled.reduce().value()
}

fn weighted_after(pooled: Objective<Pooled>, weighted: Objective<OfStep>) {
    let _ = pooled.accumulate().backward(weighted).reduce();
}

fn joined_after(weighted: Objective<OfStep>, pooled: Objective<Pooled>) {
    let _ = weighted.accumulate().backward(pooled).reduce();
}

fn main() {}
