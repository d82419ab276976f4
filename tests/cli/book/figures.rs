//! The figures that are computed: `BLESS=1` draws them.

use std::path::Path;

use serde_json::Value;

use super::chart::{Axis, Bar, draw_bars, draw_curves};
use super::drawing::Drawing;
use crate::program;

/// Returns the document that a dry run or a simulation prints; `None` if it is refused.
fn document(line: &str) -> Option<Value> {
    let output = program().args(line.split_whitespace()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    output.status.success().then(|| serde_json::from_str(&text).unwrap())
}

#[track_caller]
fn number(document: &Value, place: &str) -> f64 {
    document.pointer(place).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {place}"))
}

/// Path of a figure in the book.
pub fn path_of(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../book/src/drawings/{name}.svg"))
}

/// Compares a figure with the book's.
#[track_caller]
fn check(name: &str, svg: &str) {
    let path = path_of(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, svg).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(known == svg, "BLESS=1 draws {} as it is computed now", path.display());
}

fn ticks<const N: usize>(values: [f64; N], label: impl Fn(f64) -> String) -> Vec<(f64, String)> {
    values.map(|value| (value, label(value))).into()
}

#[test]
fn state_by_zero_stage() {
    let sizes = "--hidden 1024 --layers 24 --heads 16 --vocab 32000 --seq 512 --batch 8";
    let parameters = 369_148_928.0;
    let mut drawing =
        Drawing::new("Bytes per parameter on each of 8 ranks, by ZeRO stage and dtype", [750, 360]);
    drawing.legend([20.0, 28.0], &["parameters", "gradients", "optimizer"]);
    for (dtype, top) in [("f32", 74.0), ("bf16", 222.0)] {
        drawing.text([20.0, top - 12.0], "bold", &format!("--dtype {dtype}"));
        let bars = [0, 1, 2, 3].map(|stage| {
            let line =
                format!("--explain json --mesh fsdp=8 --zero {stage} --dtype {dtype} {sizes}");
            let plan = document(&line).unwrap();
            let parts = ["parameters", "gradients", "optimizer"]
                .map(|part| number(&plan, &format!("/memory_plan/categories/{part}")) / parameters);
            let all: f64 = parts.iter().sum();
            let [a, b, c] = parts;
            let note = format!("{a:.2} + {b:.2} + {c:.2} = {all:.2} B");
            Bar { name: format!("--zero {stage}"), parts: parts.into(), note }
        });
        draw_bars(&mut drawing, &bars, [84.0, 530.0, top], 18.0);
    }
    check("scale_state", &drawing.finish());
}

#[test]
fn recomputation_by_layers() {
    let policies = ["none", "every=4", "sqrt", "full"];
    let sizes = "--simulate h100x1 --mesh 1 --hidden 1024 --heads 16 --seq 4096 --batch 4 --vocab 32000 --out json";
    let layers = [4.0, 16.0, 64.0, 256.0];
    let runs = policies.map(|policy| {
        layers.map(|layers| {
            let run = document(&format!("{sizes} --layers {layers} --recompute {policy}")).unwrap();
            [number(&run, "/memory_by_category/activations"), number(&run, "/step_s")]
        })
    });
    let curve = |of: &dyn Fn(usize, usize) -> f64| -> Vec<Vec<[f64; 2]>> {
        let points = |policy| (0..4).map(|idx| [layers[idx], of(policy, idx)]).collect();
        (0..policies.len()).map(points).collect()
    };
    let across = |pixels| Axis {
        ends: [4.0, 256.0],
        pixels,
        is_log: true,
        ticks: ticks(layers, |n| n.to_string()),
    };
    let mut drawing = Drawing::new(
        "Activations and time of a step by number of layers and recomputation",
        [750, 340],
    );
    drawing.legend(
        [20.0, 28.0],
        &policies.map(|policy| format!("--recompute {policy}")).each_ref().map(|s| &**s),
    );
    let bytes = Axis {
        ends: [0.5e9, 200e9],
        pixels: [290.0, 76.0],
        is_log: true,
        ticks: ticks([1e9, 10e9, 100e9], |bytes| format!("{} GB", bytes / 1e9)),
    };
    let activations = curve(&|policy, idx| runs[policy][idx][0]);
    draw_curves(&mut drawing, "activations", [&across([80.0, 350.0]), &bytes], &activations);
    let time = Axis {
        ends: [0.9, 1.5],
        pixels: [290.0, 76.0],
        is_log: false,
        ticks: ticks([1.0, 1.2, 1.4], |time| format!("{time:.1}")),
    };
    let times = curve(&|policy, idx| runs[policy][idx][1] / runs[0][idx][1]);
    let title = "time of a step, by that without recomputation";
    draw_curves(&mut drawing, title, [&across([440.0, 710.0]), &time], &times);
    drawing.text([375.0, 328.0], "middle", "layers");
    check("scale_recompute", &drawing.finish());
}

#[test]
fn memory_of_four_layers() {
    let sizes = "--explain json --mesh 1 --layers 4 --batch 4";
    let mut drawing =
        Drawing::new("Activations over a step of four layers, kept and recomputed", [750, 300]);
    let policies = ["none", "full"];
    drawing.legend([20.0, 28.0], &["--recompute none", "--recompute full"]);
    let curves = policies.map(|policy| {
        let run = document(&format!("{sizes} --recompute {policy}")).unwrap();
        let values = |place: &str| -> Vec<f64> {
            let values = run.pointer(place).and_then(Value::as_array).unwrap();
            values.iter().map(|value| value.as_f64().unwrap()).collect()
        };
        let (at, bytes) =
            (values("/memory_over_time/at"), values("/memory_over_time/bytes/activations"));
        at.into_iter().zip(bytes).map(|(at, bytes)| [at, bytes]).collect::<Vec<_>>()
    });
    let last = curves.iter().flatten().fold(0.0, |last: f64, [at, _]| last.max(*at));
    let most = curves.iter().flatten().fold(0.0, |most: f64, [_, bytes]| most.max(*bytes));
    let across = Axis {
        ends: [0.0, last],
        pixels: [74.0, 720.0],
        is_log: false,
        ticks: ticks([0.0, 100.0, 200.0], |kernels| kernels.to_string()),
    };
    let up = Axis {
        ends: [0.0, most],
        pixels: [250.0, 70.0],
        is_log: false,
        ticks: ticks([0.0, 5e6, 10e6, 15e6], |bytes| format!("{} MB", bytes / 1e6)),
    };
    draw_curves(&mut drawing, "activations", [&across, &up], &curves);
    drawing.text([397.0, 288.0], "middle", "kernels launched before");
    check("scale_four_layers", &drawing.finish());
}

#[test]
fn bytes_of_context_styles() {
    let styles = ["ring", "ulysses", "gather", "hybrid=4"];
    let sizes =
        "--hidden 1024 --layers 4 --heads 16 --kv-heads 8 --vocab 1024 --seq 8192 --batch 1";
    let ranks = [2.0, 4.0, 8.0, 16.0, 32.0];
    let curves = styles.map(|style| {
        let sent = ranks.iter().filter_map(|ranks| {
            let run = document(&format!("--explain json --mesh cp={ranks} --cp {style} {sizes}"))?;
            let calls = run.pointer("/positions/0/collectives").and_then(Value::as_array).unwrap();
            let inside = calls.iter().filter(|call| call["field"] == "blocks.0-3.attn.core");
            let bytes =
                inside.map(|call| number(call, "/bytes/forward") + number(call, "/bytes/backward"));
            Some([*ranks, bytes.sum::<f64>() / 4.0])
        });
        sent.collect::<Vec<_>>()
    });
    assert_eq!(curves.each_ref().map(Vec::len), [5, 4, 5, 4], "Ulysses needs a head for each rank");
    let mut drawing =
        Drawing::new("Bytes that a rank sends for a layer, by style and ranks", [750, 330]);
    drawing.legend([20.0, 28.0], &styles);
    let across = Axis {
        ends: [2.0, 32.0],
        pixels: [80.0, 720.0],
        is_log: true,
        ticks: ticks(ranks, |n| n.to_string()),
    };
    let up = Axis {
        ends: [0.0, 100e6],
        pixels: [280.0, 76.0],
        is_log: false,
        ticks: ticks([0.0, 25e6, 50e6, 75e6, 100e6], |bytes| format!("{} MB", bytes / 1e6)),
    };
    let title = "sent by a rank for the attention of a layer, forward and backward";
    draw_curves(&mut drawing, title, [&across, &up], &curves);
    drawing.text([400.0, 318.0], "middle", "ranks along cp");
    check("scale_context", &drawing.finish());
}

/// The bars are the lines `time` of the page, which are compared with what the program prints.
#[test]
fn uses_of_the_llama_3_steps() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../book/src/scale/all_together.md");
    let page = std::fs::read_to_string(page).unwrap();
    let kinds: [(&str, &[&str]); 5] = [
        ("matmuls, head", &["matmuls", "head"]),
        ("attention", &["attention"]),
        ("exposed communication", &["exposed"]),
        ("bubble", &["bubble"]),
        ("other", &[]),
    ];
    let lines = page.lines().filter_map(|line| line.strip_prefix("time "));
    let shares = lines.filter(|line| !line.contains("[..]")).map(|line| {
        let mut parts = [0.0; 5];
        for share in line.split(',') {
            let (name, share) = share.trim().trim_end_matches(" %").rsplit_once(' ').unwrap();
            let is_kind =
                |(_, names): &(&str, &[&str])| names.iter().any(|kind| name.starts_with(kind));
            parts[kinds.iter().position(is_kind).unwrap_or(4)] += share.parse::<f64>().unwrap();
        }
        parts[4] += 100.0 - parts.iter().sum::<f64>();
        parts
    });
    let names = ["8,192 tokens", "131,072 tokens"];
    let bars: Vec<Bar> = shares
        .zip(names)
        .map(|(parts, name)| Bar {
            name: name.to_owned(),
            parts: parts.into(),
            note: String::new(),
        })
        .collect();
    assert_eq!(bars.len(), 2, "the page simulates two meshes");
    let mut drawing = Drawing::new(
        "A step of Llama 3 on 16,384 GPUs by use, for two sequence lengths",
        [750, 130],
    );
    drawing.legend([20.0, 28.0], &kinds.map(|(name, _)| name));
    draw_bars(&mut drawing, &bars, [130.0, 720.0, 50.0], 100.0);
    check("scale_llama3", &drawing.finish());
}
