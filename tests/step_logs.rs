//! The comparison of the log of a dry run with that of a step that has run.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use meshwright::backend::{Category, Kernel, KernelOp};
use meshwright::sim::{CommCall, CommOpKind, Context, EventKind, StepLog};

/// Checks that the logs of a step that has run and of its dry run have the same events, at each position along `pp`.
#[track_caller]
pub fn assert_same_steps(what: &str, real: &[StepLog], dry: &[impl Borrow<StepLog>]) {
    assert_eq!(real.len(), dry.len(), "{what}");
    for (position, (real, dry)) in real.iter().zip(dry).enumerate() {
        let dry = dry.borrow();
        let (real_events, dry_events) = (events(real), events(dry));
        let pairs = real_events.iter().zip(&dry_events);
        for (index, (real, dry)) in pairs.enumerate() {
            let before = &dry_events[index.saturating_sub(3)..index];
            assert_eq!(
                real, dry,
                "{what}: event {index} at position {position}, after {before:#?}"
            );
        }
        assert_eq!(real_events.len(), dry_events.len(), "{what}");
        assert_eq!(real.live_at_start, dry.live_at_start, "{what}");
        assert_eq!(freed(real), freed(dry), "{what}");
        let flops = [real, dry].map(|log| log.flops(|_| true));
        assert_eq!(flops[0], flops[1], "{what}");
        assert!(real_events.len() > 200, "{what}");
    }
}

/// An event as it is compared.
#[derive(Debug, PartialEq)]
pub struct Compared<'a> {
    /// The computation that it belongs to.
    pub context: &'a Context,
    /// The field of a call; empty for others.
    pub field: &'a str,
    /// The event without what may differ.
    pub kind: EventKind,
}

/// Returns the events of a log without those whose time depends on other ranks: the buffer of an asynchronous call is
/// freed when the call is over, and waits for sends end then too.
pub fn events(log: &StepLog) -> Vec<Compared<'_>> {
    let sends: Vec<u32> = log.events.iter().filter_map(|event| sent(&event.kind)).collect();
    let is_compared = |kind: &EventKind| match kind {
        EventKind::Await { number, of_previous_step } => {
            *of_previous_step || !sends.contains(number)
        }
        EventKind::Free { .. } => false,
        _ => true,
    };
    let events = log.events.iter().filter(|event| is_compared(&event.kind));
    let compared = events.map(|event| {
        let field = match event.kind {
            EventKind::Call(call) => &*log.sites[call.site as usize].field,
            _ => "",
        };
        Compared { context: log.context(&event), field, kind: comparable(event.kind) }
    });
    let mut compared: Vec<_> = compared.collect();
    // Experts without a row have no GEMM.
    compared.dedup_by(|next, event| is_grouped(&event.kind) && is_grouped(&next.kind));
    compared
}

fn is_grouped(kind: &EventKind) -> bool {
    matches!(kind, EventKind::Kernel(Kernel { op: KernelOp::GroupedGemm, .. }))
}

/// Returns the bytes that are freed, by category.
fn freed(log: &StepLog) -> BTreeMap<Category, u64> {
    let mut freed = BTreeMap::new();
    for event in log.events.iter() {
        if let EventKind::Free { bytes, category, .. } = event.kind {
            *freed.entry(category).or_default() += bytes;
        }
    }
    freed
}

fn sent(kind: &EventKind) -> Option<u32> {
    match kind {
        EventKind::Call(CommCall { op: CommOpKind::Send, number, .. }) => Some(*number),
        _ => None,
    }
}

/// Removes the index of the site, which is compared by its field, the number of a buffer, and the rows of each expert:
/// the dry run assumes even choices.
fn comparable(kind: EventKind) -> EventKind {
    match kind {
        EventKind::Call(call) => EventKind::Call(CommCall { site: 0, ..call }),
        EventKind::Kernel(Kernel { op: KernelOp::GroupedGemm, dtype, .. }) => {
            let (op, dims) = (KernelOp::GroupedGemm, [0; 4]);
            EventKind::Kernel(Kernel { op, dims, dtype, flops: 0, read: 0, written: 0 })
        }
        EventKind::Alloc { bytes, category, .. } => EventKind::Alloc { buffer: 0, bytes, category },
        other => other,
    }
}
