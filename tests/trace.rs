//! The trace of a training run: valid for Perfetto, with the documented lanes and spans.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use meshwright_examples::llama::Llama;
use meshwright_tests::lanes::{Span, lanes};
use meshwright_tests::run::train_with_words;
use serde_json::Value;

const STEPS: usize = 3;
const MICRO_BATCHES: usize = 2;
const LAYERS: usize = 2;
const RANKS: usize = 4;

#[test]
fn traces_show_compute_and_communication() {
    let run = Run::new("--recompute none");
    assert_eq!(run.trace["displayTimeUnit"], "ms");
    assert_eq!(run.trace["otherData"]["dropped_spans"], serde_json::json!({}));
    let lanes = lanes(&run.trace);
    let ranks: BTreeSet<usize> = lanes.keys().map(|(rank, _)| *rank).collect();
    assert_eq!(ranks, (0..RANKS).collect());
    for rank in 0..RANKS {
        let names: Vec<&str> = lanes
            .keys()
            .filter(|(owner, _)| *owner == rank)
            .map(|(_, name)| name.as_str())
            .collect();
        for name in ["compute", "comm tp", "comm tp (async)", "comm fsdp", "comm fsdp (async)"] {
            assert!(names.contains(&name), "rank {rank}: no `{name}` in {names:?}");
        }
        let compute = &lanes[&(rank, "compute".to_owned())];
        let count = |name: &str| compute.iter().filter(|span| span.name == name).count();
        assert_eq!(count("optimizer"), STEPS);
        assert_eq!(count("forward Llama"), STEPS * MICRO_BATCHES);
        for layer in ["Block", "SelfAttention", "Mlp"] {
            let forward = format!("forward {layer}");
            assert_eq!(count(&forward), STEPS * MICRO_BATCHES * LAYERS, "{forward}");
            assert!(count(&format!("backward {layer}")) >= STEPS * MICRO_BATCHES, "{layer}");
        }
    }
}

#[test]
fn spans_of_one_lane_nest_or_are_apart() {
    for more in ["--recompute none", "--recompute full"] {
        for ((rank, lane), spans) in lanes(&Run::new(more).trace) {
            let mut open: Vec<&Span> = Vec::new();
            for span in &spans {
                while open.last().is_some_and(|outer| outer.end <= span.start) {
                    open.pop();
                }
                if let Some(outer) = open.last() {
                    let place = format!("rank {rank}, {lane}");
                    assert!(span.end <= outer.end, "{place}: {span:?} leaves {outer:?}");
                    let is_compute = lane == "compute";
                    assert!(is_compute, "{place}: {span:?} during {outer:?}");
                }
                open.push(span);
            }
        }
    }
}

#[test]
fn collectives_have_bytes_and_call_sites() {
    let run = Run::new("--recompute none");
    let lanes = lanes(&run.trace);
    for axis in ["fsdp", "tp"] {
        let spans: Vec<&Span> = lanes
            .iter()
            .filter(|((rank, lane), _)| {
                *rank == 0
                    && (*lane == format!("comm {axis}") || *lane == format!("comm {axis} (async)"))
            })
            .flat_map(|(_, spans)| spans)
            .collect();
        let bytes = |span: &Span| span.args["bytes"].as_u64().expect("every span has its bytes");
        let traced: u64 = spans.iter().map(|span| bytes(span)).sum();
        let counted: u64 =
            run.steps.iter().map(|step| step["comm_bytes"][axis].as_u64().unwrap()).sum();
        assert_eq!(traced, counted, "{axis}");
        for span in spans {
            for key in ["op", "field"] {
                assert!(span.args[key].as_str().is_some_and(|text| !text.is_empty()), "{span:?}");
            }
            assert_eq!(span.category, "comm");
        }
    }
    // An unshard is named by its unit; a collective on activations by its field, with the line in the model.
    let names: Vec<&str> = lanes.values().flatten().map(|span| span.name.as_str()).collect();
    for name in ["all_gather blocks.0 (parameters)", "reduce_scatter blocks.0 (gradient)"] {
        assert!(names.contains(&name), "no `{name}`");
    }
}

struct Run {
    trace: Value,
    steps: Vec<Value>,
}

impl Run {
    fn new(more: &str) -> Run {
        let dir = tempfile::tempdir().unwrap();
        let [data, trace, metrics] =
            ["text", "trace.json", "metrics.jsonl"].map(|name| dir.path().join(name));
        fs::write(&data, "the quick brown fox jumps over the lazy dog. ".repeat(40)).unwrap();
        let words = format!(
            "--mesh fsdp=2,tp=2 --zero 3 --micro-batches {MICRO_BATCHES} --steps {STEPS} --batch 8 --seq 13 \
             --hidden 24 --ffn 40 --layers {LAYERS} --heads 4 --threads 1 {more}"
        );
        let paths = [("--data", &data), ("--trace", &trace), ("--metrics", &metrics)];
        let paths = paths.iter().flat_map(|(flag, path)| [flag.as_ref(), path.as_os_str()]);
        train_with_words::<Llama>(words.split_whitespace().map(AsRef::as_ref).chain(paths))
            .unwrap();
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        let steps =
            read(&metrics).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        Run { trace: serde_json::from_str(&read(&trace)).unwrap(), steps }
    }
}
