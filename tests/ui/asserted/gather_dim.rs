//! Hand-written impls that assert a whole dim to be split, and a split one to be whole.

use meshwright::layout::{GatherDim, Here, SumOver};
use meshwright::prelude::*;

dims! { Batch @ data, Hidden }

impl<P> GatherDim<(Batch, Hidden), P> for Hidden {
    type Out = (Batch, Hidden);
    type Axis = Tp;
    const DIM: usize = 1;
}

impl<P> SumOver<Hidden, P> for (Batch, Split<Hidden, Tp>) {
    type Left = (Batch,);
    type PartialOver = Here;
    const DIM: usize = 1;
}

fn main() {}
