//! A hand-written impl, with which context-parallel attention exchanges a sequence that is whole on each rank.

use meshwright::layout::Cp;
use meshwright::nn::DistributedOver;
use meshwright::prelude::*;

dims! { Batch @ data, Seq, Heads, HeadDim }

impl DistributedOver<Cp> for Seq {}

fn main() {}
