//! A hand-written impl by which context-parallel attention exchanges a sequence that each rank has all of.

use meshwright::layout::Cp;
use meshwright::nn::DistributedOver;
use meshwright::prelude::*;

dims! { Batch @ data, Seq, Heads, HeadDim }

impl DistributedOver<Cp> for Seq {}

fn main() {}
