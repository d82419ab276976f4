//! The work of a step, by the API of the trainer.

use std::collections::BTreeMap;

use meshwright::backend::Kernel;
use meshwright::models::gpt2::Gpt2;
use meshwright::models::llama::Llama;
use meshwright::models::mixtral::Mixtral;
use meshwright::sim::EventKind;
use meshwright::train::{Config, LanguageModel, Trainer};
use serde_json::Value;

const SIZES: &str = "t --hidden 32 --layers 2 --heads 4 --ffn 48 --seq 16 --batch 4 --threads 1";

fn config(flags: &str) -> Config {
    Config::parse(format!("{SIZES} {flags}").split_whitespace()).unwrap()
}

#[test]
fn trainers_list_collectives_without_the_flag_too() {
    let listed = |flags: &str| Trainer::<Llama>::new(config(flags)).unwrap().explain().unwrap();
    let text = listed("--mesh tp=2");
    assert!(text.starts_with("collectives of a step on rank 1 of tp=2:\n"), "{text}");
    assert_eq!(text, listed("--mesh tp=2 --explain"));
    // A dry run leaves the trainer as it is.
    let trainer = Trainer::<Llama>::new(config("--mesh tp=2 --steps 1 --sample-tokens 0")).unwrap();
    trainer.explain().unwrap();
    assert_eq!(trainer.train().unwrap().losses.len(), 1);
}

/// Tokens count as evenly distributed: 32 rows of a rank, each to two experts; half of the experts are on the other
/// rank.
#[test]
fn experts_exchange_their_share_of_the_tokens() {
    let trainer = Trainer::<Mixtral>::new(config("--mesh ep=2")).unwrap();
    let text = trainer.explain().unwrap();
    let is_exchange = |line: &&str| line.contains("moe.router") && line.contains("all_to_all");
    let row = text.lines().find(is_exchange).unwrap();
    let cells: Vec<&str> = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(cells[..4], ["blocks.0-1.moe.router", "all_to_all", "ep", "2 x 4"]);
    // Rows are sent and come back, in both directions; two layers.
    let bytes = 2.0 * 2.0 * (32.0 * 2.0 / 2.0) * 32.0 * 4.0;
    assert_eq!(cells[4], format!("{:.1} kB", bytes / 1e3));
    assert_eq!(cells[6], cells[4]);
}

/// A Mixtral sends between its stages what a Llama sends, and gathers no auxiliary losses over `tp`.
#[test]
fn auxiliary_losses_have_no_collectives() {
    let messages = |text: String| -> Vec<String> {
        assert!(!text.contains("Tensor::gather"), "{text}");
        let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        lines.filter(|line| line.starts_with("stage ") || line.starts_with("all pp")).collect()
    };
    let flags = "--mesh pp=2,tp=2";
    let balanced = format!("{flags} --balance batch=0.01 --z-loss 0.001");
    let mixtral = Trainer::<Mixtral>::new(config(&balanced)).unwrap().explain().unwrap();
    let llama = Trainer::<Llama>::new(config(flags)).unwrap().explain().unwrap();
    assert_eq!(messages(mixtral), messages(llama));
}

#[test]
fn a_trainer_that_lists_collectives_does_not_train() {
    let trainer = Trainer::<Llama>::new(config("--mesh dp=2 --explain")).unwrap();
    let text = trainer.train().map(drop).unwrap_err().to_string();
    assert!(text.contains("--explain: lists collectives instead of training"), "{text}");
}

/// Returns the document of `--explain json`.
fn document<M: LanguageModel>(flags: &str) -> Value {
    let flags = format!("{flags} --sample-tokens 0 --explain json");
    serde_json::from_str(&Trainer::<M>::new(config(&flags)).unwrap().explain().unwrap()).unwrap()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("no list `{key}` in {value}"))
}

fn sum_of(numbers: &Value) -> u64 {
    numbers.as_object().unwrap().values().map(|number| number.as_u64().unwrap()).sum()
}

/// The largest peak of all positions is that of the memory plan, in each category and in total. Only the workspace of
/// the initialization, which is part of the plan, may be larger than that of a step.
#[track_caller]
fn check_peaks<M: LanguageModel>(flags: &str) {
    let document = document::<M>(flags);
    let mut largest: BTreeMap<String, u64> = BTreeMap::new();
    for position in list(&document, "positions") {
        let peak = &position["memory_peak"];
        let buffers = list(peak, "buffers").iter();
        let bytes: u64 = buffers.map(|group| group["bytes"].as_u64().unwrap()).sum();
        assert_eq!(peak["bytes"], bytes, "{flags}: {peak}");
        let categories = peak["categories"].as_object().unwrap();
        let total = [("total", &peak["bytes"])].into_iter();
        for (name, bytes) in categories.iter().map(|(name, bytes)| (&**name, bytes)).chain(total) {
            let known = largest.entry(name.to_owned()).or_default();
            *known = (*known).max(bytes.as_u64().unwrap());
        }
    }
    let plan = &document["memory_plan"];
    assert_eq!(plan["total"], largest.remove("total").unwrap(), "{flags}");
    let workspace = plan["categories"]["workspace"].as_u64().unwrap();
    assert!(largest.insert("workspace".to_owned(), workspace) <= Some(workspace), "{flags}");
    assert_eq!(plan["categories"], serde_json::json!(largest), "{flags}");
}

#[test]
fn peaks_of_logs_are_those_of_the_plan() {
    for device in ["cpu", "cuda --dtype bf16"] {
        for mesh in
            ["1", "tp=2", "fsdp=2 --zero 3", "dp=2 --zero 0", "cp=2", "pp=2,fsdp=2 --zero 1"]
        {
            for flags in ["", "--micro-batches 2", "--micro-batches 2 --recompute full"] {
                check_peaks::<Llama>(&format!("--mesh {mesh} {flags} --device {device}"));
            }
        }
        check_peaks::<Gpt2>(&format!("--mesh fsdp=2,tp=2 --device {device}"));
        check_peaks::<Mixtral>(&format!("--mesh fsdp=2,ep=2 --device {device}"));
    }
}

/// Without recomputation, matmuls take six FLOPs for each of their parameters and each token (Kaplan et al., "Scaling
/// laws for neural language models", 2020, table 1), and causal attention `4 h d` forward and `10 h d` backward for
/// each visible pair of tokens.
#[test]
fn flops_of_a_step_are_those_of_closed_forms() {
    let (layers, hidden, ffn, vocab, batch, seq) = (2, 32, 48, 256, 4, 16);
    let parameters = layers * (4 * hidden * hidden + 3 * hidden * ffn) + vocab * hidden;
    let pairs = layers * batch * seq * (seq + 1) / 2;
    for (mesh, ranks_each) in [("1", 1), ("tp=2", 2), ("fsdp=2,tp=2", 4), ("pp=2,dp=2", 2)] {
        let flags = format!("--mesh {mesh} --micro-batches 2 --explain");
        let logs = Trainer::<Llama>::new(config(&flags)).unwrap().step_logs().unwrap();
        let kernels =
            logs.iter().flat_map(|log| log.events.iter()).filter_map(|event| match event.kind {
                EventKind::Kernel(kernel) => Some(kernel),
                _ => None,
            });
        let kernels: Vec<Kernel> = kernels.collect();
        let flops_of = |counts: fn(&Kernel) -> bool| -> u64 {
            let flops = kernels.iter().filter(|kernel| counts(kernel)).map(|kernel| kernel.flops);
            ranks_each * flops.sum::<u64>()
        };
        let matmuls = flops_of(|kernel| kernel.op.is_matmul());
        assert_eq!(matmuls, 6 * parameters * batch * seq, "{mesh}");
        let attention = flops_of(|kernel| kernel.op.is_attention());
        assert_eq!(attention, 14 * pairs * hidden, "{mesh}");
        let flops = &document::<Llama>(&flags.replace(" --explain", ""))["flops"];
        assert_eq!(flops["all_ranks"].as_f64(), Some((matmuls + attention) as f64), "{mesh}");
        assert_eq!(flops["recomputed"].as_f64(), Some(0.0), "{mesh}");
    }
}

/// A feed-forward keeps its gate, its up-projection and their product, unless it is recomputed.
#[test]
fn kept_bytes_are_those_of_a_micro_batch() {
    let row = |flags: &str| -> Value {
        let document = document::<Llama>(&format!("--mesh tp=2 {flags}"));
        let rows = list(&document["positions"][0], "computation").iter();
        let mut rows = rows.filter(|row| row["function"] == "Mlp::forward").cloned();
        let row = rows.next().unwrap();
        assert_eq!(rows.next(), None, "the layers are alike");
        row
    };
    // Four sequences of 16 tokens, half of a width of 48, in f32.
    let kept = 2 * 3 * (4 * 16) * (48 / 2) * 4;
    let whole = row("");
    assert_eq!(whole["field"], "blocks.0-1");
    assert_eq!(whole["layers"], 2);
    assert_eq!(whole["kept_bytes"], kept);
    assert_eq!(row("--micro-batches 2")["kept_bytes"], kept / 2);
    let recomputed = row("--recompute full");
    assert_eq!(recomputed["kept_bytes"], 0);
    for numbers in ["flops", "bytes"] {
        let [whole, recomputed] = [&whole[numbers], &recomputed[numbers]];
        assert_eq!(whole["recomputed"], 0);
        assert_eq!(recomputed["recomputed"], recomputed["forward"]);
        assert_eq!(recomputed["forward"], whole["forward"]);
        assert!(sum_of(recomputed) > sum_of(whole));
    }
}

/// The largest moment of a step is in the backward of a layer, with the activations of all layers.
#[test]
fn the_moment_of_the_peak_is_named() {
    let document = document::<Llama>("--mesh pp=2 --micro-batches 4");
    let peak = &list(&document, "positions")[0]["memory_peak"];
    let moment = &peak["moment"];
    assert_eq!(moment["pass"], "backward", "{peak}");
    assert_eq!(moment["layer"], "blocks.0", "{peak}");
    assert_eq!(moment["action"]["work"], "B", "{peak}");
    assert_eq!(moment["action"]["stage"], 0, "{peak}");
    let is_kept =
        |group: &&Value| group["category"] == "activations" && group["function"] == "Mlp::forward";
    let kept: Vec<&Value> = list(peak, "buffers").iter().filter(is_kept).collect();
    assert_eq!(kept.len(), 1, "{peak}");
    assert_eq!(kept[0]["field"], "blocks.0", "{peak}");
}
