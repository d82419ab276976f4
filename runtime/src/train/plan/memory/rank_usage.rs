//! FLOPs and communication of the ranks at a position along `pp`, from those of the rank that is run dry.

use crate::layout::{AxisId, AxisSet};
use crate::tensor::Rank;
use crate::train::report::StepUsage;
use crate::train::step::RankState;

/// Returns the `usage` of this rank with the bytes that the first rank at its position along `pp` sends, and the mean
/// FLOPs of all ranks there: an optimizer may divide its work unevenly.
pub fn usage_of_ranks<M>(rank: &Rank, state: &RankState<M>, mut usage: StepUsage) -> StepUsage {
    let (shape, axes) = (rank.comms().shape(), AxisSet::ALL.difference(AxisSet::of(AxisId::Pp)));
    let ranks = shape.group_of(rank.index(), axes);
    let work = |rank: usize| state.optimizer.inner.work_on(rank).map(|count| count as u64);
    let ([own_flops, own_bytes], [_, first_bytes]) = (work(rank.index()), work(ranks[0]));
    let flops: u64 = ranks.iter().map(|rank| work(*rank)[0]).sum();
    usage.flops[0] += flops.div_ceil(ranks.len() as u64);
    usage.flops[0] -= own_flops;
    if let Some((bytes, _)) = usage.comm.get_mut(&shape.axes_in_use(axes)) {
        *bytes += first_bytes;
        *bytes -= own_bytes;
    }
    usage
}
