//! A shape that is said to end in another feature than it does.

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
