//! Losses are added before their gradients are limited to units.

use meshwright::nn::Built;
use meshwright::prelude::*;
use meshwright::tensor::{Objective, OnlyUnits, Pooled};

dims! { Batch @ data, Seq }

fn added<M>(built: &Built<M>, first: Loss<(Batch,)>, second: Loss<(Batch,)>) {
    let units = built.units_of("head");
    let _ = (first.only(&units) + second.only(&units)).backward().reduce();
}

fn loss_added<M>(built: &Built<M>, first: Loss<(Batch,)>, second: Loss<(Batch, Seq)>) {
    let units = built.units_of("head");
    let _ = (first.only(&units) + second).backward().reduce();
}

fn scaled(limited: OnlyUnits<'_, Pooled>) {
    let _ = (limited * 0.5).backward().reduce();
}

fn added_to_objective(pooled: Objective<Pooled>, limited: OnlyUnits<'_, Pooled>) {
    let _ = (pooled + limited).backward().reduce();
}

fn main() {}
