//! Planned memory against the measured peak of training.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use meshwright::train::MemoryUse;
use meshwright_examples::llama::Llama;
use meshwright_tests::run::train_with_words;

/// A Llama of which only the heads divide evenly.
const SIZES: &str = "--hidden 72 --ffn 116 --layers 5 --heads 4 --kv-heads 2 --vocab 261 --batch 8 --seq 29 --steps 2 \
                     --threads 1";

/// Returns planned and measured bytes by category.
fn used(flags: &str) -> BTreeMap<&'static str, (u64, u64)> {
    let line = format!("{SIZES} {flags}");
    let summary = train_with_words::<Llama>(line.split_whitespace().map(OsStr::new)).unwrap();
    let of = |used: &MemoryUse| (used.category, (used.planned, used.peak));
    summary.report.memory.iter().map(of).collect()
}

/// Asserts that plan and run agree within tolerance for each of the settings.
#[track_caller]
fn check(settings: impl IntoIterator<Item = String>) {
    let mut problems = Vec::new();
    for flags in settings {
        for (category, (planned, peak)) in used(&flags) {
            let fits = match category {
                "parameters" | "gradients" | "optimizer" => planned == peak && planned > 0,
                "total" => planned <= peak && planned as f64 > 0.7 * peak as f64,
                _ => planned <= peak,
            };
            if !fits {
                problems.push(format!("{flags}: {category} planned {planned}, was {peak}"));
            }
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn every_stage_uses_the_planned_memory() {
    let meshes = ["fsdp=2", "fsdp=4", "dp=2,fsdp=2", "fsdp=2,tp=2"];
    let levels = meshes
        .iter()
        .flat_map(|mesh| (0..4).map(move |level| format!("--mesh {mesh} --zero {level}")));
    let others = ["1", "dp=2", "tp=2", "dp=2,tp=2", "fsdp=2 --tied"];
    check(levels.chain(others.map(|mesh| format!("--mesh {mesh}"))));
}

/// The state of an optimizer from outside of the library is in the plan.
#[test]
fn a_registered_optimizer_takes_what_was_planned() {
    let places = ["1", "tp=2", "fsdp=4 --zero 1", "dp=2,fsdp=2 --zero 3 --dtype bf16 --ema 0.9"];
    check(places.map(|place| format!("--optimizer lion --mesh {place}")));
    let bytes = |optimizer: &str| used(&format!("--mesh 1 --optimizer {optimizer}"))["optimizer"].0;
    assert_eq!(2 * bytes("lion"), bytes("adamw"));
}

#[test]
fn every_precision_uses_the_planned_memory() {
    let meshes =
        ["1", "dp=2", "fsdp=2 --zero 0", "fsdp=2 --zero 1", "dp=2,fsdp=2 --zero 2", "fsdp=2"];
    check(meshes.iter().flat_map(|mesh| {
        ["f32", "bf16"].map(|reduce| format!("--mesh {mesh} --dtype bf16 --reduce-dtype {reduce}"))
    }));
}

#[test]
fn recomputation_uses_at_least_the_planned_memory() {
    let ways = ["none", "full", "every=2", "every=3", "sqrt", "attn"];
    check(ways.iter().flat_map(|way| {
        ["1", "fsdp=2", "tp=2"].map(|mesh| format!("--mesh {mesh} --recompute {way}"))
    }));
}
