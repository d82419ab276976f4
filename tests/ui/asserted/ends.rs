//! A hand-written impl that gives a shape another last feature.

use meshwright::layout::{Ends, With};
use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn }

impl Ends<Ffn> for (Batch, Split<Ffn, Tp>) {
    type Lead = (Batch,);
}

impl With<Ffn> for (Batch, Hidden) {
    type Out = (Batch, Ffn);
}

fn main() {}
