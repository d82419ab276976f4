//! The dry run is the program: its log has the events of a step that has run, one by one.

use std::sync::Arc;

use meshwright::models::gpt2::Gpt2;
use meshwright::models::llama::Llama;
use meshwright::models::mixtral::Mixtral;
use meshwright::models::{Deepseek, MoeDecoder};
use meshwright::sim::{Context, EventKind, StepLog};
use meshwright::train::{Config, LanguageModel, Trainer};
use meshwright_tests::step_logs::{Compared, assert_same_steps, events};

/// Returns the logs of the last of three steps, and of the dry run.
fn logs<M: LanguageModel>(flags: &str) -> (Vec<StepLog>, Vec<Arc<StepLog>>) {
    let sizes = "--layers 4 --hidden 32 --heads 4 --seq 16 --batch 16 --steps 3 --sample-tokens 0";
    let line = format!("train {sizes} {flags}");
    let config = || Config::parse(line.split(' ')).unwrap();
    let dry = Trainer::<M>::new(config()).unwrap().step_logs().unwrap();
    let real = Trainer::<M>::new(config()).unwrap().record_steps().unwrap();
    (real, dry)
}

#[track_caller]
fn check<M: LanguageModel>(flags: &str) {
    let (real, dry) = logs::<M>(flags);
    assert_same_steps(flags, &real, &dry);
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

/// Biases of the choice of experts change after a step of a dry run, too.
#[test]
fn other_families_with_experts() {
    for mesh in ["1", "fsdp=2"] {
        check::<Deepseek>(&format!("--mesh {mesh} --micro-batches 2 --dtype bf16"));
    }
    check::<MoeDecoder>("--mesh fsdp=2");
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
