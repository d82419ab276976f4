//! The engine of one rank, and the process groups of all ranks of a process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::rank_table::{ExitCause, RankTable};
use crate::{CommError, Engine, GroupMember, ProcessGroup, RankExit};
use meshwright_backend::CachingAllocator;
use meshwright_mesh::AxisSet;

use super::member::LocalMember;
use super::process_group::LocalProcessGroup;
use super::shared_group::SharedGroup;

/// The process groups of all ranks of a process.
pub struct LocalGroups {
    ranks: Arc<RankTable>,
    /// Groups by axes and first member.
    groups: Mutex<HashMap<(AxisSet, usize), Arc<SharedGroup>>>,
}

impl LocalGroups {
    /// Creates an engine without groups, which reports deadlocks of `ranks`.
    pub fn new(ranks: &Arc<RankTable>) -> Arc<LocalGroups> {
        let groups = LocalGroups { ranks: Arc::clone(ranks), groups: Mutex::default() };
        let groups = Arc::new(groups);
        let weak = Arc::downgrade(&groups);
        ranks.deadlock.on_deadlock(move || {
            if let Some(groups) = weak.upgrade() {
                groups.break_deadlock();
            }
        });
        groups
    }

    /// Returns the group of `member`, which its first member creates.
    fn join_group(&self, member: &GroupMember) -> Arc<SharedGroup> {
        let mut groups = self.lock_groups();
        let group = groups.entry((member.axes(), member.world_ranks()[0])).or_insert_with(|| {
            let exits = member.world_ranks().iter().map(|rank| self.ranks.exit_of(*rank));
            Arc::new(SharedGroup::new(member, Arc::clone(&self.ranks), exits.collect()))
        });
        Arc::clone(group)
    }

    /// Returns the groups of `rank`, with its group rank.
    fn groups_of(&self, rank: usize) -> Vec<(Arc<SharedGroup>, usize)> {
        let groups = self.lock_groups();
        let with_group_rank = |group: &Arc<SharedGroup>| {
            let group_rank = group.world_ranks().iter().position(|member| *member == rank)?;
            Some((Arc::clone(group), group_rank))
        };
        groups.values().filter_map(with_group_rank).collect()
    }

    /// Fails all groups with a deadlock error, because every rank waits for another one.
    fn break_deadlock(&self) {
        let waiting = self.ranks.running_ranks();
        // The exit of the last rank is not a deadlock.
        if waiting.is_empty() {
            return;
        }
        let calls =
            waiting.iter().map(|rank| format!("  {}\n", self.ranks.describe_last_call(*rank)));
        let error = CommError::Deadlock { calls: calls.collect() };
        let groups: Vec<_> = self.lock_groups().values().map(Arc::clone).collect();
        // First set all failures, then notify: no rank may end before the others can see why.
        groups.iter().for_each(|group| group.set_failure(&error));
        groups.iter().for_each(|group| group.notify_all());
    }

    fn lock_groups(&self) -> MutexGuard<'_, HashMap<(AxisSet, usize), Arc<SharedGroup>>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The engine `local` for one rank.
pub struct LocalEngine {
    groups: Arc<LocalGroups>,
    rank: usize,
    /// The process groups of the rank's communicators. The rank creates each once.
    joined: Mutex<Vec<Arc<LocalProcessGroup>>>,
}

impl LocalEngine {
    /// Creates the engine of `rank`.
    pub fn new(groups: &Arc<LocalGroups>, rank: usize) -> LocalEngine {
        LocalEngine { groups: Arc::clone(groups), rank, joined: Mutex::default() }
    }

    fn lock_joined(&self) -> MutexGuard<'_, Vec<Arc<LocalProcessGroup>>> {
        self.joined.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine for LocalEngine {
    fn process_group(&self, member: &Arc<GroupMember>) -> Arc<dyn ProcessGroup> {
        let (group, membership) = (self.groups.join_group(member), Arc::clone(member));
        let member = Arc::new(LocalMember { group, membership });
        let process_group = Arc::new(LocalProcessGroup::new(member));
        self.lock_joined().push(Arc::clone(&process_group));
        process_group
    }

    fn leave(&self, exit: &RankExit) {
        let own_exit = || ExitCause { rank: self.rank, exit: exit.clone() };
        let cause = self.groups.ranks.exit_of(self.rank).unwrap_or_else(own_exit);
        let groups = self.groups.groups_of(self.rank);
        for (group, group_rank) in &groups {
            group.leave_blocking(*group_rank, &cause);
            if *exit != RankExit::Returned {
                group.leave_asynchronous(*group_rank, &cause);
            }
        }
        self.lock_joined().drain(..).for_each(|group| group.close());
        for (group, group_rank) in &groups {
            group.leave_asynchronous(*group_rank, &cause);
        }
    }

    fn extend_time_limit(&self, waits_for_files: bool) {
        self.groups.ranks.extend_time_limit(self.rank, waits_for_files);
    }

    /// Returns pools for a rank that is alone: calls of several ranks, which are synchronized on the host, cannot be
    /// captured.
    fn graph_pools(&self) -> Option<Vec<Arc<CachingAllocator>>> {
        (self.groups.ranks.world_size() == 1).then(Vec::new)
    }
}
