//! A hand-written impl that makes a dim one of samples.

use meshwright::layout::BatchDim;
use meshwright::prelude::*;

dims! { Batch @ dp, Seq }

impl BatchDim for Batch {}

fn main() {}
