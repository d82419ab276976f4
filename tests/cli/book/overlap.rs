//! The figure of a real trace: the all-reduce of a layer's gradients beside the backward pass of the next layer.

use serde_json::Value;

use super::drawing::Drawing;
use super::figures::path_of;
use crate::{SMALL, Workspace};

/// A span of rank 0: its lane, its name, its start and its end, in microseconds.
struct TraceSpan {
    lane: String,
    name: String,
    start: f64,
    end: f64,
}

/// Returns the spans of the last step between two updates.
fn last_step(trace: &Value) -> Vec<TraceSpan> {
    let events =
        || trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["pid"] == 0);
    let lane = |id: &Value| -> String {
        let named = |event: &&Value| event["name"] == "thread_name" && event["tid"] == *id;
        let name = &events().find(named).expect("each lane has a name")["args"]["name"];
        name.as_str().unwrap().to_owned()
    };
    let spans = events().filter(|event| event["ph"] == "X").map(|event| {
        let [start, duration] = ["ts", "dur"].map(|key| event[key].as_f64().unwrap_or(0.0));
        let name = event["name"].as_str().unwrap().to_owned();
        TraceSpan { lane: lane(&event["tid"]), name, start, end: start + duration }
    });
    let spans: Vec<TraceSpan> = spans.collect();
    let mut updates: Vec<f64> =
        spans.iter().filter(|span| span.name == "optimizer").map(|span| span.start).collect();
    updates.sort_by(f64::total_cmp);
    let [.., before, last] = updates[..] else { panic!("{updates:?}") };
    spans.into_iter().filter(|span| span.start > before && span.start < last).collect()
}

/// Times differ from run to run, so the drawing of this run is checked, and only `BLESS=1` writes it.
#[test]
fn gradients_are_reduced_beside_the_next_layer() {
    let workspace = Workspace::new();
    // For a picture, layers of many parameters and few tokens: their sums take long enough to be seen.
    let is_drawn = std::env::var_os("BLESS").is_some();
    let width = if is_drawn { "--hidden 512 --ffn 1536" } else { "--hidden 32 --ffn 48" };
    let sizes = SMALL.replace("--hidden 32 --layers 2", "--layers 4").replace("--ffn 48", width);
    let finished = workspace.run(&format!("{sizes} --mesh dp=2 --steps 3 --trace trace.json"));
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let trace: Value = serde_json::from_slice(&workspace.read("trace.json")).unwrap();
    let spans = last_step(&trace);
    let reduced = |layer: usize| {
        let name = format!("all_reduce blocks.{layer} (gradient)");
        let is_it = |span: &&TraceSpan| span.lane == "comm dp (async)" && span.name == name;
        spans.iter().find(is_it).unwrap_or_else(|| panic!("no {name}"))
    };
    // The backward pass of a block begins with its feed-forward, and the last one ends with the block's norm.
    let starts = |name: &str| {
        let mut starts: Vec<f64> =
            spans.iter().filter(|span| span.name == name).map(|span| span.start).collect();
        starts.sort_by(f64::total_cmp);
        starts
    };
    let mut borders = starts("backward Mlp");
    assert_eq!(borders.len(), 4, "four layers");
    let last_norm = spans.iter().filter(|span| span.name == "backward Block").map(|span| span.end);
    borders.push(last_norm.fold(0.0, f64::max));
    let first = borders[0];
    let last = spans.iter().map(|span| span.end).fold(0.0, f64::max);
    let x = |time: f64| 90.0 + (time - first).max(0.0) / (last - first) * 640.0;
    let mut drawing = Drawing::new(
        "A trace: backward of four layers, and the all-reduce of their gradients beside it",
        [750, 150],
    );
    drawing.text([20.0, 28.0], "bold", "rank 0 of dp=2, backward pass of one step");
    drawing.text([82.0, 65.0], "end", "compute");
    drawing.text([82.0, 101.0], "end", "comm dp");
    for (place, layer) in (0..4).rev().enumerate() {
        let (start, end) = (x(borders[place]), x(borders[place + 1]));
        drawing.rect([start, 48.0, end - start, 26.0], "orange");
        drawing.text([(start + end) / 2.0, 65.0], "middle", &format!("B{layer}"));
        let reduced = reduced(layer);
        // A layer's gradients are complete when its backward pass is.
        assert!(reduced.start >= borders[place], "blocks.{layer}");
        let (start, end) = (x(reduced.start), x(reduced.end));
        drawing.rect([start, 84.0, (end - start).max(2.0), 26.0], "blue");
        drawing.text([start + 4.0, 124.0], "note", &format!("gradient {layer}"));
    }
    drawing.text([730.0, 142.0], "note end", &format!("{:.1} ms", (last - first) / 1e3));
    let svg = drawing.finish();
    assert_eq!(svg.matches("class=\"blue\"/>").count(), 4);
    if is_drawn {
        std::fs::write(path_of("scale_overlap"), &svg).unwrap();
    }
    assert!(path_of("scale_overlap").exists());
}
