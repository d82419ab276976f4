//! The trace of a training run: valid for Perfetto, with the documented lanes and spans.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use meshwright::models::llama::Llama;
use meshwright::schedule::{Action, Message, MessageKind, ScheduleKind, verify};
use meshwright::train::Summary;
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
        for name in ["compute", "comm tp", "comm tp (async)", "comm the world", "comm fsdp (async)"]
        {
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
                    let context = format!("rank {rank}, {lane}");
                    assert!(span.end <= outer.end, "{context}: {span:?} leaves {outer:?}");
                    let is_compute = lane == "compute";
                    assert!(is_compute, "{context}: {span:?} during {outer:?}");
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

/// The transfer of the keys and values of the next hop overlaps the attention to the present ones, in forward and in
/// backward.
#[test]
fn hops_of_a_ring_are_hidden_by_attention() {
    const CP: usize = 4;
    const SEQ: usize = 128;
    let run = Run::on(&format!("cp={CP}"), SEQ, "--dtype bf16 --recompute none --kv-heads 2");
    // Keys and values of this rank's 2 sequences of a micro-batch, half as wide as the stream.
    let kv_bytes = (8 / MICRO_BATCHES * SEQ / CP * 2 * 12 * 2) as u64;
    let lanes = lanes(&run.trace);
    let number = |span: &Span| span.args["hop"].as_u64().unwrap() as usize;
    let is_inside =
        |inner: &Span, outer: &Span| outer.start <= inner.start && inner.end <= outer.end;
    for rank in 0..CP {
        let spans = |lane: &str| &lanes[&(rank, lane.to_owned())];
        for layer in 0..LAYERS {
            let field = format!("blocks.{layer}.attn.core");
            let named = |label: &str| -> Vec<&Span> {
                let name = format!("{label} {field}");
                spans("compute").iter().filter(|span| span.name == name).collect()
            };
            let is_hop = |span: &&Span| {
                span.args["field"] == field.as_str() && span.args["bytes"] == kv_bytes
            };
            let transfers: Vec<&Span> = spans("comm cp (async)").iter().filter(is_hop).collect();
            let (hops, passes) = (named("hop"), STEPS * MICRO_BATCHES);
            assert_eq!(transfers.len(), 2 * passes * (CP - 1), "of forward and of backward");
            assert_eq!(hops.len(), transfers.len());
            let forward = named("attention");
            let backward = named("attention backward");
            for attention in [&forward, &backward] {
                let numbers: Vec<usize> = attention.iter().map(|span| number(span)).collect();
                assert_eq!(numbers, (0..CP).collect::<Vec<_>>().repeat(passes), "{field}");
            }
            for hop in hops {
                let attention = forward.iter().chain(&backward);
                let hidden_by: Vec<usize> = attention
                    .filter(|span| is_inside(span, hop))
                    .map(|span| number(span))
                    .collect();
                assert_eq!(hidden_by, [number(hop) - 1], "rank {rank}: {hop:?}");
                let of_hop = transfers.iter().filter(|transfer| is_inside(transfer, hop));
                assert_eq!(of_hop.count(), 1, "rank {rank}: {hop:?}");
            }
        }
    }
    let used = run.summary.report.communication.iter().find(|used| used.axes == "cp");
    assert!(used.is_some_and(|used| !used.overlapped.is_zero()), "{used:?}");
}

/// Each computation of a stage on a micro-batch has a span, and each message one on its sender and one on its receiver.
#[test]
fn pipelines_show_stages_and_messages() {
    const PP: usize = 2;
    const CHUNKS: usize = 2;
    let more = "--schedule interleaved --clip 0";
    let run = Run::of_layers(PP * CHUNKS, &format!("pp={PP}"), 13, more);
    let schedule = ScheduleKind::Interleaved.generate(PP, CHUNKS, MICRO_BATCHES).unwrap();
    let verified = verify(&schedule).unwrap();
    let lanes = lanes(&run.trace);
    let mut stages = BTreeSet::new();
    for (rank, actions) in verified.lowered().ranks.iter().enumerate() {
        let spans = |lane: &str| &lanes[&(rank, lane.to_owned())];
        let computes: Vec<String> = actions
            .iter()
            .flat_map(|action| action.computes())
            .map(|next| format!("{} {}.{}", next.work.letter(), next.stage, next.micro_batch))
            .collect();
        stages.extend(computes.iter().map(|name| name[..3].to_owned()));
        let is_compute = |span: &&Span| matches!(span.name.split(' ').next(), Some("F" | "B"));
        let found = spans("compute").iter().filter(is_compute).map(|span| span.name.clone());
        assert_eq!(found.collect::<Vec<_>>(), vec![computes; STEPS].concat(), "rank {rank}");

        for is_send in [true, false] {
            let expected: Vec<String> = actions
                .iter()
                .filter_map(|action| match action {
                    Action::Send(message) if is_send => Some(message),
                    Action::Recv(message) if !is_send => Some(message),
                    _ => None,
                })
                .map(described)
                .collect();
            let verb = if is_send { "send " } else { "recv " };
            let mut messages: Vec<&Span> = spans("comm pp (messages)").iter().collect();
            messages.retain(|span| span.name.starts_with(verb));
            let found: Vec<&str> =
                messages.iter().map(|span| span.args["message"].as_str().unwrap()).collect();
            let (mut found, mut expected) = (found, vec![expected; STEPS].concat());
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected, "rank {rank}: {verb}");
            for span in messages {
                let bytes = if is_send { 8 / MICRO_BATCHES * 13 * 24 * 4 } else { 0 };
                assert_eq!(span.args["bytes"], bytes, "{span:?}");
            }
        }
    }
    let names = stages.iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(names, ["B 0", "B 1", "B 2", "B 3", "F 0", "F 1", "F 2", "F 3"]);
}

/// The description of a message in the trace.
fn described(message: &Message) -> String {
    let kind = match message.kind() {
        MessageKind::Activation => "activation",
        MessageKind::Gradient => "gradient",
    };
    let (from, to) = (message.from_stage(), message.to_stage());
    format!(
        "{kind} of micro-batch {} from stage {from} to stage {to}, part 0",
        message.micro_batch()
    )
}

struct Run {
    trace: Value,
    steps: Vec<Value>,
    summary: Summary,
}

impl Run {
    fn new(more: &str) -> Run {
        Run::on("fsdp=2,tp=2", 13, &format!("--zero 3 {more}"))
    }

    fn on(mesh: &str, seq: usize, more: &str) -> Run {
        Run::of_layers(LAYERS, mesh, seq, more)
    }

    fn of_layers(layers: usize, mesh: &str, seq: usize, more: &str) -> Run {
        let dir = tempfile::tempdir().unwrap();
        let [data, trace, metrics] =
            ["text", "trace.json", "metrics.jsonl"].map(|name| dir.path().join(name));
        fs::write(&data, "the quick brown fox jumps over the lazy dog. ".repeat(40)).unwrap();
        let words = format!(
            "--mesh {mesh} --micro-batches {MICRO_BATCHES} --steps {STEPS} --batch 8 --seq {seq} \
             --hidden 24 --ffn 40 --layers {layers} --heads 4 --threads 1 {more}"
        );
        let paths = [("--data", &data), ("--trace", &trace), ("--metrics", &metrics)];
        let paths = paths.iter().flat_map(|(flag, path)| [flag.as_ref(), path.as_os_str()]);
        let words = words.split_whitespace().map(AsRef::as_ref).chain(paths);
        let summary = train_with_words::<Llama>(words).unwrap();
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        let steps =
            read(&metrics).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        Run { trace: serde_json::from_str(&read(&trace)).unwrap(), steps, summary }
    }
}
