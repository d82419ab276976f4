//! An engine over another one that passes every message through a function.

use std::sync::Arc;

use meshwright_comm::{
    Call, Completion, Engine, GroupMember, Operands, ProcessGroup, RankComms, RankExit,
};

/// Issues a message to the engine below, or does something else.
pub type Hook =
    Arc<dyn Fn(&dyn ProcessGroup, &Arc<Call>, Operands<'_>) -> Completion + Send + Sync>;

struct HookedEngine {
    inner: Arc<dyn Engine>,
    hook: Hook,
    groups_messages: bool,
}

struct HookedGroup {
    inner: Arc<dyn ProcessGroup>,
    hook: Hook,
    groups_messages: bool,
}

/// Puts `hook` between a rank and its engine.
pub fn hook_messages(comms: RankComms, hook: Hook) -> RankComms {
    let inner = Arc::clone(comms.engine());
    comms.over(Arc::new(HookedEngine { inner, hook, groups_messages: false }))
}

/// Puts `hook` between a rank and its engine, and lets the executor exchange messages in rounds.
pub fn hook_rounds(comms: RankComms, hook: Hook) -> RankComms {
    let inner = Arc::clone(comms.engine());
    comms.over(Arc::new(HookedEngine { inner, hook, groups_messages: true }))
}

impl Engine for HookedEngine {
    fn process_group(&self, member: &Arc<GroupMember>) -> Arc<dyn ProcessGroup> {
        let (inner, hook) = (self.inner.process_group(member), Arc::clone(&self.hook));
        Arc::new(HookedGroup { inner, hook, groups_messages: self.groups_messages })
    }

    fn leave(&self, exit: &RankExit) {
        self.inner.leave(exit);
    }
}

impl ProcessGroup for HookedGroup {
    fn issue(&self, call: &Arc<Call>, operands: Operands<'_>) -> Completion {
        if call.op.is_point_to_point() {
            (self.hook)(&*self.inner, call, operands)
        } else {
            self.inner.issue(call, operands)
        }
    }

    fn groups_messages(&self) -> bool {
        self.groups_messages
    }
}
