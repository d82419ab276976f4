//! The dry run is the program: its log has the events of a step that has run, one by one.

use std::collections::BTreeMap;
use std::sync::Arc;

use meshwright::backend::{Category, Kernel, KernelOp};
use meshwright::models::gpt2::Gpt2;
use meshwright::models::llama::Llama;
use meshwright::models::mixtral::Mixtral;
use meshwright::sim::{CommCall, CommOpKind, Context, EventKind, StepLog};
use meshwright::train::{Config, LanguageModel, Trainer};

/// An event as it is compared.
#[derive(Debug, PartialEq)]
struct Compared<'a> {
    context: &'a Context,
    field: &'a str,
    kind: EventKind,
}

/// Returns the events of a log without those whose time depends on other ranks: the buffer of an asynchronous call is
/// freed when the call is over, and waits for sends end then too.
fn events(log: &StepLog) -> Vec<Compared<'_>> {
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

/// Returns the logs of the last of three steps, and of the dry run.
fn logs<M: LanguageModel>(flags: &str) -> (Vec<StepLog>, Vec<Arc<StepLog>>) {
    let sizes = "--layers 4 --hidden 32 --heads 4 --seq 16 --batch 16 --steps 3 --sample-tokens 0";
    let line = format!("train {sizes} {flags}");
    let config = || Config::parse(line.split(' ')).unwrap();
    let dry = Trainer::<M>::new(config()).unwrap().step_logs().unwrap();
    let real = Trainer::<M>::new(config()).unwrap().record_steps().unwrap();
    assert_eq!(real.len(), dry.len());
    (real, dry)
}

#[track_caller]
fn check<M: LanguageModel>(flags: &str) {
    let (real, dry) = logs::<M>(flags);
    for (position, (real, dry)) in real.iter().zip(&dry).enumerate() {
        let (real_events, dry_events) = (events(real), events(dry));
        let pairs = real_events.iter().zip(&dry_events);
        for (index, (real, dry)) in pairs.enumerate() {
            let before = &dry_events[index.saturating_sub(3)..index];
            assert_eq!(
                real, dry,
                "{flags}: event {index} at position {position}, after {before:#?}"
            );
        }
        assert_eq!(real_events.len(), dry_events.len(), "{flags}");
        assert_eq!(real.live_at_start, dry.live_at_start, "{flags}");
        assert_eq!(freed(real), freed(dry), "{flags}");
        let flops = [real, dry].map(|log| log.flops(|_| true));
        assert_eq!(flops[0], flops[1], "{flags}");
        assert!(real_events.len() > 200, "{flags}");
    }
}

#[test]
fn llama() {
    for mesh in ["1", "tp=2", "dp=2,tp=2", "fsdp=4", "cp=2", "fsdp=2,cp=2"] {
        check::<Llama>(&format!("--mesh {mesh} --micro-batches 2"));
    }
}

#[test]
fn zero_stages_and_recomputation() {
    for zero in 0..=3 {
        for recompute in ["none", "full", "attn", "every=2"] {
            let flags = format!("--mesh fsdp=2,tp=2 --zero {zero} --recompute {recompute}");
            check::<Llama>(&format!("{flags} --micro-batches 2"));
        }
    }
}

#[test]
fn pipelines() {
    for schedule in ["gpipe", "1f1b", "interleaved --virtual-stages 2", "zb-h1", "zb-v"] {
        for mesh in ["pp=2", "pp=2,fsdp=2"] {
            let flags = format!("--mesh {mesh} --schedule {schedule} --micro-batches 4");
            check::<Llama>(&flags);
            if mesh.contains("fsdp") {
                check::<Llama>(&format!("{flags} --zero 3 --recompute full"));
            }
        }
    }
}

#[test]
fn gpt2() {
    for mesh in ["1", "dp=2,tp=2", "fsdp=2,cp=2", "pp=2,tp=2"] {
        check::<Gpt2>(&format!("--mesh {mesh} --micro-batches 2"));
    }
}

/// Each rank has all experts, whose rows differ in number but not in sum.
#[test]
fn mixtral() {
    for mesh in ["1", "fsdp=2"] {
        check::<Mixtral>(&format!("--mesh {mesh} --micro-batches 2"));
    }
}

/// Experts that are split over ranks have other numbers of rows than the dry run assumes, in the same operations.
#[test]
fn split_experts() {
    for mesh in ["tp=2", "ep=2", "fsdp=2,ep=2", "pp=2,ep=2"] {
        let operations = |log: &StepLog| -> Vec<(Context, String, String)> {
            let of = |event: Compared<'_>| {
                let operation = match event.kind {
                    EventKind::Kernel(kernel) => kernel.op.name().to_owned(),
                    EventKind::Call(call) => format!("{} over {}", call.op.name(), call.group),
                    EventKind::Alloc { category, .. } => format!("allocate {}", category.name()),
                    other => format!("{other:?}"),
                };
                (event.context.clone(), event.field.to_owned(), operation)
            };
            events(log).into_iter().map(of).collect()
        };
        let (real, dry) = logs::<Mixtral>(&format!("--mesh {mesh} --micro-batches 2"));
        for (real, dry) in real.iter().zip(&dry) {
            let (real, dry) = (operations(real), operations(dry));
            for (index, (real, dry)) in real.iter().zip(&dry).enumerate() {
                assert_eq!(real, dry, "{mesh}: event {index}");
            }
            assert_eq!(real.len(), dry.len(), "{mesh}");
        }
    }
}
