//! An engine whose calls are observed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use meshwright_backend::CachingAllocator;

use super::call_observer::CallObserver;
use super::{Call, CommError, Completion, Engine, GroupMember, Operands, ProcessGroup, RankExit};

/// Passes each call to an observer, and then to another engine.
#[derive(Clone)]
pub(super) struct ObservedEngine {
    engine: Arc<dyn Engine>,
    observer: Arc<dyn CallObserver>,
    /// Number of exchanges so far.
    rounds: Arc<AtomicU32>,
}

impl ObservedEngine {
    /// Observes the calls of `engine`.
    pub fn new(engine: Arc<dyn Engine>, observer: Arc<dyn CallObserver>) -> ObservedEngine {
        ObservedEngine { engine, observer, rounds: Arc::default() }
    }
}

impl Engine for ObservedEngine {
    fn process_group(&self, member: &Arc<GroupMember>) -> Arc<dyn ProcessGroup> {
        let group = self.engine.process_group(member);
        Arc::new(ObservedGroup { group, engine: self.clone() })
    }

    fn leave(&self, exit: &RankExit) {
        self.engine.leave(exit);
    }

    fn use_allocator(&self, allocator: &Arc<CachingAllocator>) {
        self.engine.use_allocator(allocator);
    }

    fn extend_time_limit(&self, waits_for_files: bool) {
        self.engine.extend_time_limit(waits_for_files);
    }

    fn graph_pools(&self) -> Option<Vec<Arc<CachingAllocator>>> {
        self.engine.graph_pools()
    }

    fn replay(&self, calls: Option<String>, submit: &mut dyn FnMut()) -> Result<(), CommError> {
        self.engine.replay(calls, submit)
    }
}

struct ObservedGroup {
    group: Arc<dyn ProcessGroup>,
    engine: ObservedEngine,
}

impl ObservedGroup {
    /// Observes the wait for a call, if it is asynchronous.
    fn observe_wait(&self, call: &Call, number: usize, completion: Completion) -> Completion {
        if !call.asynchronous {
            return completion;
        }
        let observer = Arc::clone(&self.engine.observer);
        completion.and_at_wait(move |_| observer.call_awaited(number))
    }
}

impl ProcessGroup for ObservedGroup {
    fn issue(&self, call: &Arc<Call>, operands: Operands<'_>) -> Completion {
        let number = self.engine.observer.call_issued(call, None);
        let completion = self.group.issue(call, operands);
        if call.asynchronous {
            return self.observe_wait(call, number, completion);
        }
        let outcome = completion.wait();
        self.engine.observer.call_returned();
        Completion::awaited(outcome)
    }

    fn issue_exchange(&self, calls: Vec<(Arc<Call>, Operands<'_>)>) -> Vec<Completion> {
        let round =
            self.groups_messages().then(|| self.engine.rounds.fetch_add(1, Ordering::Relaxed));
        let issued: Vec<(Arc<Call>, usize)> = calls
            .iter()
            .map(|(call, _)| (Arc::clone(call), self.engine.observer.call_issued(call, round)))
            .collect();
        let completions = self.group.issue_exchange(calls).into_iter().zip(issued);
        completions
            .map(|(completion, (call, number))| self.observe_wait(&call, number, completion))
            .collect()
    }

    fn groups_messages(&self) -> bool {
        self.group.groups_messages()
    }

    fn is_dry_run(&self) -> bool {
        self.group.is_dry_run()
    }
}
