//! Planned memory against the measured peak of training.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use meshwright::models::llama::Llama;
use meshwright::train::MemoryUse;
use meshwright_tests::run::train_with_words;

/// A Llama whose heads divide evenly, and no other size.
const SIZES: &str = "--hidden 72 --ffn 116 --layers 5 --heads 4 --kv-heads 2 --vocab 261 --batch 8 --seq 29 --steps 2 \
                     --threads 1";

/// Returns planned and measured bytes by category.
fn used(flags: &str) -> BTreeMap<&'static str, (u64, u64)> {
    used_with(SIZES, flags)
}

fn used_with(sizes: &str, flags: &str) -> BTreeMap<&'static str, (u64, u64)> {
    let line = format!("{sizes} {flags}");
    let summary = train_with_words::<Llama>(line.split_whitespace().map(OsStr::new)).unwrap();
    let of = |used: &MemoryUse| (used.category, (used.planned, used.peak));
    summary.report.memory.iter().map(of).collect()
}

/// Asserts that plan and run agree within tolerance for each of the settings.
#[track_caller]
fn check(settings: impl IntoIterator<Item = String>) {
    check_with(SIZES, settings);
}

#[track_caller]
fn check_with(sizes: &str, settings: impl IntoIterator<Item = String>) {
    let mut problems = Vec::new();
    for flags in settings {
        for (category, (planned, peak)) in used_with(sizes, &flags) {
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

/// Muon keeps less state of matrices than of other parameters, which the shards of ranks have different parts of.
#[test]
fn the_rank_with_most_state_is_planned() {
    let sizes = SIZES.replace("--layers 5", "--layers 2");
    let meshes = ["fsdp=8 --zero 1", "fsdp=8 --zero 3", "dp=2,fsdp=4", "pp=2,fsdp=4 --zero 1"];
    for mesh in meshes {
        let used = used_with(&sizes, &format!("--optimizer muon --mesh {mesh}"));
        let (planned, peak) = used["optimizer"];
        assert_eq!(planned, peak, "{mesh}");
        // The rank with most state may have less of all else.
        let (planned, peak) = used["total"];
        assert!((planned as f64 / peak as f64 - 1.0).abs() < 1e-3, "{mesh}: {planned} and {peak}");
    }
}

/// The state of an optimizer from outside of the library is in the plan.
#[test]
fn a_registered_optimizer_takes_what_was_planned() {
    let meshes = ["1", "tp=2", "fsdp=4 --zero 1", "dp=2,fsdp=2 --zero 3 --dtype bf16 --ema 0.9"];
    check(meshes.map(|mesh| format!("--optimizer lion --mesh {mesh}")));
    let bytes = |optimizer: &str| used(&format!("--mesh 1 --optimizer {optimizer}"))["optimizer"].0;
    assert_eq!(2 * bytes("lion"), bytes("adamw"));
}

/// A forward pass that keeps nothing for backward needs less than a step.
#[test]
fn evaluations_fit_in_the_memory_of_steps() {
    let meshes = [
        "1 --micro-batches 2",
        "fsdp=4 --zero 3",
        "fsdp=2,tp=2 --zero 1 --recompute full",
        "pp=2 --micro-batches 4",
        "pp=2,fsdp=2 --zero 3 --micro-batches 2",
    ];
    let with_evaluations =
        |mesh: &str| format!("--mesh {mesh} --eval-fraction 0.001 --eval-every 1");
    check(meshes.map(with_evaluations));
    for mesh in meshes {
        let planned = |flags: &str| used(flags)["total"].0;
        assert_eq!(planned(&with_evaluations(mesh)), planned(&format!("--mesh {mesh}")), "{mesh}");
    }
}

#[test]
fn every_precision_uses_the_planned_memory() {
    let meshes =
        ["1", "dp=2", "fsdp=2 --zero 0", "fsdp=2 --zero 1", "dp=2,fsdp=2 --zero 2", "fsdp=2"];
    check(meshes.iter().flat_map(|mesh| {
        ["f32", "bf16"].map(|reduce| format!("--mesh {mesh} --dtype bf16 --reduce-dtype {reduce}"))
    }));
    let more = ["pp=2 --micro-batches 4", "fsdp=2,tp=2", "dp=2 --micro-batches 2"];
    let rounded = "--grad-dtype bf16 --state-dtype bf16";
    check(meshes.iter().chain(&more).map(|mesh| format!("--mesh {mesh} {rounded}")));
}

#[test]
fn recomputation_uses_at_least_the_planned_memory() {
    let ways = ["none", "full", "every=2", "every=3", "sqrt", "attn"];
    check(ways.iter().flat_map(|way| {
        ["1", "fsdp=2", "tp=2"].map(|mesh| format!("--mesh {mesh} --recompute {way}"))
    }));
}

/// Also sequences so long that attention needs more than the head.
#[test]
fn every_style_of_cp_uses_at_least_the_planned_memory() {
    let meshes = [
        "cp=2",
        "cp=4",
        "cp=4 --dtype bf16 --recompute full",
        "cp=2,tp=2",
        "fsdp=2,cp=2",
        "cp=2 --recompute attn",
        "pp=2,cp=2 --micro-batches 4",
    ];
    for (seq, meshes) in [(32, &meshes[..]), (128, &meshes[..3])] {
        let sizes = SIZES.replace("--seq 29", &format!("--seq {seq}"));
        let settings = meshes.iter().flat_map(|mesh| {
            // On two ranks a hybrid of two is the same as an exchange.
            let hybrid = mesh.contains("cp=4").then_some("hybrid=2");
            let styles = ["ring", "gather", "ulysses"].into_iter().chain(hybrid);
            styles.map(move |style| format!("--mesh {mesh} --cp {style}"))
        });
        check_with(&sizes, settings);
    }
}

/// The rank that needs most counts: the first one keeps most micro-batches, the last one has the head.
#[test]
fn pipelines_use_at_least_the_planned_memory() {
    let schedules = ["1f1b", "gpipe", "zb-h1", "zb-v", "interleaved", "dualpipev"];
    let named = schedules.map(|name| format!("--mesh pp=2 --micro-batches 4 --schedule {name}"));
    let stages = (0..4).map(|zero| format!("--mesh pp=2,fsdp=2 --micro-batches 4 --zero {zero}"));
    let others = [
        "--mesh pp=4 --micro-batches 8 --tied",
        "--mesh pp=2,tp=2 --micro-batches 2 --dtype bf16 --ema 0.9",
        "--mesh pp=2 --micro-batches 4 --recompute full",
        "--mesh pp=2 --micro-batches 8 --recompute every=2 --stages 4,1",
    ];
    check(named.into_iter().chain(stages).chain(others.map(str::to_owned)));
}

/// 1F1B keeps as many micro-batches as there are stages, GPipe all of them. Gradients are accumulated in one buffer.
#[test]
fn memory_of_1f1b_does_not_grow_with_micro_batches() {
    let peaks = |schedule: &str, micro_batches: usize| {
        let sizes = SIZES.replace("--batch 8", &format!("--batch {micro_batches}"));
        let flags = format!("--mesh pp=2 --schedule {schedule} --micro-batches {micro_batches}");
        let line = format!("{sizes} {flags}");
        let words = line.split_whitespace().map(OsStr::new);
        let memory = train_with_words::<Llama>(words).unwrap().report.memory;
        let of = |name: &str| memory.iter().find(|used| used.category == name).unwrap().peak;
        // Tokens and targets of all micro-batches are read at the start of a step.
        let tokens = (2 * 4 * 29 * micro_batches) as u64;
        (of("activations") - tokens, of("gradients"))
    };
    // Two messages between the stages may be in flight at the peak or not, which depends on timing: activations of a
    // micro-batch in f32. One for each additional micro-batch would be six times as much.
    let in_flight = 2 * 29 * 72 * 4;
    for schedule in ["1f1b", "zb-h1"] {
        let (few, many) = (peaks(schedule, 4), peaks(schedule, 16));
        let most = few.0 + few.0 / 50 + in_flight;
        assert!(many.0 <= most, "{schedule}: {few:?} with 4, {many:?} with 16");
        assert_eq!(few.1, many.1, "{schedule}");
    }
    let (few, many) = (peaks("gpipe", 4), peaks("gpipe", 16));
    assert!(many.0 > 3 * few.0, "{few:?} with 4, {many:?} with 16");
}

/// The copy of the state that is saved while training goes on: values and moments in f32, once for all replicas.
#[test]
fn a_copied_state_is_planned() {
    let sizes = "--hidden 64 --ffn 128 --layers 4 --heads 4 --kv-heads 2 --vocab 256 --batch 8 --seq 16 --steps 3 \
                 --threads 1 --sample-tokens 0";
    let dir = tempfile::tempdir().unwrap();
    for (index, flags) in [
        "--mesh 1",
        "--mesh dp=2 --dtype bf16",
        "--mesh fsdp=2 --zero 3",
        "--mesh tp=2 --ema 0.9",
        "--mesh dp=2,pp=2 --micro-batches 2 --ema 0.9",
    ]
    .into_iter()
    .enumerate()
    {
        let save =
            format!("--save {} --save-every 2", dir.path().join(index.to_string()).display());
        let waits = used_with(sizes, &format!("{flags} {save}"));
        let copies = used_with(sizes, &format!("{flags} {save} --save-async"));
        assert_eq!(waits["offloaded"], (0, 0), "{flags}");
        let (planned, peak) = copies["offloaded"];
        assert_eq!(planned, peak, "{flags}");
        let copied = if flags.contains("--dtype bf16") {
            // The master values are a part of the optimizer state.
            copies["optimizer"].1
        } else {
            copies["parameters"].1 + copies["optimizer"].1
        };
        // Blocks are aligned, and so are the parameters of a unit.
        assert!(peak <= copied && peak as f64 > 0.97 * copied as f64, "{flags}: {peak}, {copied}");
        let (planned, peak) = copies["total"];
        assert!(planned <= peak, "{flags}: {planned}, {peak}");
        assert!(planned > waits["total"].0, "{flags}: {planned}");
    }
}

/// A continuation takes the most memory of a run on tensor-parallel ranks: its logits are gathered, the logits of the
/// loss are not. It has the logits, the stream that they are computed from, the ids, and the cosines and sines of
/// rotary embeddings.
#[test]
fn a_continuation_uses_the_planned_memory() {
    const WIDTH: u64 = 128;
    const VOCAB: u64 = 4096;
    const HIDDEN: u64 = 16;
    const HEADS: u64 = 4;
    let sizes = format!(
        "--hidden {HIDDEN} --ffn 16 --layers 2 --heads {HEADS} --vocab {VOCAB} --batch 4 --seq {WIDTH} --steps 2 \
         --threads 1 --micro-batches 2 --recompute full"
    );
    for (mesh, tp) in [
        ("tp=2", 2),
        ("tp=4", 4),
        ("dp=2,tp=2", 2),
        ("fsdp=2,tp=2", 2),
        ("pp=2,tp=2 --stages 1,1", 2),
        ("tp=4 --ema 0.9", 4),
    ] {
        for (dtype, element) in [("f32", 4), ("bf16", 2)] {
            let flags = format!("--mesh {mesh} --dtype {dtype} --sample-tokens");
            let [without, with] =
                ["0", "100"].map(|tokens| used_with(&sizes, &format!("{flags} {tokens}")));
            let whole_and_shard = |columns: u64| element * WIDTH * columns * (tp + 1) / tp;
            let expected = whole_and_shard(VOCAB + HIDDEN) + 4 * WIDTH * (1 + HIDDEN / HEADS);
            assert_eq!(with["activations"], (expected, expected), "{flags}");
            let (planned, peak) = with["total"];
            assert!(planned <= peak && planned > without["total"].1, "{flags}: {planned}, {peak}");
        }
    }
}

/// Bytes that the first rank sends over `fsdp` in the last step, the losses, and the planned and measured memory.
fn kept_run(flags: &str) -> (u64, Vec<String>, (u64, u64)) {
    let dir = tempfile::tempdir().unwrap();
    let metrics = dir.path().join("metrics.jsonl");
    let line = format!("{SIZES} {flags} --sample-tokens 0 --metrics {}", metrics.display());
    let summary = train_with_words::<Llama>(line.split_whitespace().map(OsStr::new)).unwrap();
    let text = std::fs::read_to_string(&metrics).unwrap();
    let steps: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let losses = steps.iter().map(|step| format!("{} {}", step["loss"], step["grad_norm"]));
    let bytes = steps.last().unwrap()["comm_bytes"]["fsdp"].as_u64().unwrap();
    let total = summary.report.memory.iter().find(|used| used.category == "total").unwrap();
    (bytes, losses.collect(), (total.planned, total.peak))
}

/// The last layer of each stage stays gathered at ZeRO stage 3 for backward; with a limit that is too low for that, it
/// is gathered again. The numbers are the same.
#[test]
fn the_last_layer_stays_gathered_where_memory_allows() {
    for flags in [
        "--mesh pp=2,fsdp=2 --zero 3 --micro-batches 4",
        "--mesh pp=2,fsdp=2 --zero 3 --micro-batches 4 --schedule interleaved",
    ] {
        let (sent, losses, (planned, peak)) = kept_run(flags);
        assert!(planned <= peak, "{flags}: {planned}, {peak}");
        let limited = kept_run(&format!("{flags} --memory-limit {}", planned - 1));
        let (sent_again, same_losses, (less, peak)) = limited;
        assert!(less < planned && peak < planned, "{flags}: {less}, {peak} for {planned}");
        assert!(sent < sent_again, "{flags}: {sent}, {sent_again}");
        assert_eq!(losses, same_losses, "{flags}");
    }
}
