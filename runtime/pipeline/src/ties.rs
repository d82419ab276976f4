//! Gradients of parameters that are tied across pipeline stages.

use std::rc::Rc;
use std::sync::Arc;

use meshwright_backend::{Buffer, Category, DType};
use meshwright_comm::Site;
use meshwright_core::__internal::fail;
use meshwright_core::__internal::{Pass, begin_pass};
use meshwright_core::layout::{AxisId, AxisSet};
use meshwright_core::tensor::{Gradients, Pending, Rank, Unit};

/// Sums the gradients of units with several owning stages over their owners, after the sums over data ranks: each owner
/// sends the others its shard, in f32, and adds all shards in the order of owners. So the sum is the same to the bit on
/// all of them. Every rank calls it, once per step and before [`reduce`](Gradients::reduce).
///
/// Does nothing if no parameters are tied across ranks.
///
/// # Panics
/// If the gradients are already summed.
#[track_caller]
pub fn sum_tied_gradients(gradients: Gradients<Pending>) -> Gradients<Pending> {
    let _pass = begin_pass(Pass::Update);
    gradients.finish_sums();
    for unit in gradients.units() {
        let is_tied = unit.owners().is_some_and(|owners| owners.ranks().len() > 1);
        if is_tied {
            sum_over_owners(gradients.rank(), &unit);
        }
    }
    gradients
}

/// Sums the gradient of one unit over its owners.
#[track_caller]
fn sum_over_owners(rank: &Rank, unit: &Rc<Unit>) {
    let Some(owners) = unit.owners() else { return };
    let group = rank.process_group(AxisSet::of(AxisId::Pp));
    let site = Site::here(format!("{} (gradient of tied parameters)", unit.name()));
    let own = Arc::new(copy_gradient(rank, unit));
    let is_other = |owner: &&usize| **owner != group.rank();
    let others = owners.ranks().iter().filter(is_other);
    let sends = others.clone().map(|owner| (site.clone(), *owner, Arc::clone(&own))).collect();
    let allocate = || rank.allocator().alloc(DType::F32, own.len(), Category::Communication);
    let receives = others.map(|owner| (site.clone(), *owner, allocate())).collect();
    // Ranks go through the units in one order, so each round has both ends of its messages.
    let (sent, arriving) = group.exchange(sends, receives);
    let received: Vec<Buffer> = arriving
        .into_iter()
        .map(|arriving| arriving.wait().unwrap_or_else(|error| fail(error)))
        .collect();
    sent.into_iter().for_each(|sent| sent.wait().unwrap_or_else(|error| fail(error)));

    let mut received = received.iter();
    let mut shards: Vec<&Buffer> = Vec::with_capacity(owners.ranks().len());
    for owner in owners.ranks() {
        let is_own = *owner == group.rank();
        let shard = if is_own { Some(&*own) } else { received.next() };
        shards.push(shard.expect("one shard of each other owner"));
    }
    unit.sum_over_owners(|mut gradient| {
        let backend = rank.backend();
        backend.cast(shards[0].view(), gradient.reborrow());
        for shard in &shards[1..] {
            backend.add_assign(gradient.reborrow(), shard.view());
        }
    });
}

/// Copies the reduced gradient of this rank's shard.
fn copy_gradient(rank: &Rank, unit: &Unit) -> Buffer {
    let gradient = unit.reduced_gradient();
    let len = gradient.view().len();
    let mut copy = rank.allocator().alloc(DType::F32, len, Category::Communication);
    rank.backend().cast(gradient.view(), copy.view_mut());
    copy
}
