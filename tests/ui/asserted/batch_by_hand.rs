//! A dim that is said to be one of samples.

use meshwright::layout::BatchDim;
use meshwright::prelude::*;

dims! { Batch @ dp, Seq }

impl BatchDim for Batch {}

fn main() {}
