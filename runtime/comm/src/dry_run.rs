//! An engine for dry runs of one rank, without the others.

use std::sync::Arc;

use meshwright_backend::__internal::DRY_RUN_BLOCK;

use super::{Call, Completion, Engine, GroupMember, Operands, ProcessGroup, RankExit};

/// Engine of dry runs: every call completes immediately, as if all members had passed the values of this rank;
/// reductions keep these values.
#[derive(Clone, Default)]
pub(super) struct DryRunEngine {
    /// True to [group messages](ProcessGroup::groups_messages), as NCCL does.
    pub groups_messages: bool,
}

impl Engine for DryRunEngine {
    fn process_group(&self, _: &Arc<GroupMember>) -> Arc<dyn ProcessGroup> {
        Arc::new(self.clone())
    }

    fn leave(&self, _: &RankExit) {}
}

impl ProcessGroup for DryRunEngine {
    fn issue(&self, call: &Arc<Call>, mut operands: Operands<'_>) -> Completion {
        // Larger ones keep their values: the buffers of a dry run have no memory.
        if let (false, (Some(src), Some(mut dst))) = (call.on_device, operands.views_mut())
            && (1..=DRY_RUN_BLOCK).contains(&src.byte_len())
            && dst.byte_len() <= DRY_RUN_BLOCK
            && src.has_host_memory()
            && dst.as_view().has_host_memory()
        {
            for part in dst.bytes_mut().chunks_mut(src.byte_len()) {
                part.copy_from_slice(&src.bytes()[..part.len()]);
            }
        }
        let (_, dst) = operands.into_buffers();
        Completion::completed(Ok(dst))
    }

    fn groups_messages(&self) -> bool {
        self.groups_messages
    }

    fn is_dry_run(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use crate::{Blocks, RankComms, Site};
    use meshwright_backend::{CachingAllocator, Category, ReduceOp, ViewMut};

    #[test]
    fn the_other_ranks_pass_the_same_values() {
        let comms = RankComms::unattended("dp=4".parse().unwrap());
        assert_eq!(comms.rank(), 3);
        let (world, site) = (comms.world(), Site::here("x"));
        let mut sum = [5f32, 6.0];
        world.all_reduce(&site, ReduceOp::Sum, ViewMut::from(&mut sum[..])).unwrap();
        assert_eq!(sum, [5.0, 6.0]);
        let mut all = [0f32; 8];
        let (src, dst) = ((&sum[..]).into(), ViewMut::from(&mut all[..]));
        world.all_gather(&site, src, dst, &Blocks::even(1, 2, 4)).unwrap();
        assert_eq!(all, [5.0, 6.0, 5.0, 6.0, 5.0, 6.0, 5.0, 6.0]);
    }

    #[test]
    fn messages_are_complete_immediately() {
        let comms = RankComms::unattended("pp=2".parse().unwrap());
        let (world, site, allocator) = (comms.world(), Site::here("x"), CachingAllocator::new());
        let buffer = || allocator.copy_of(&[1f32; 4], Category::Communication);
        world.start_send(&site, 0, buffer().into()).wait().unwrap();
        let received = world.start_recv(&site, 0, buffer()).wait().unwrap();
        assert_eq!(received.typed::<f32>().len(), 4);
    }
}
