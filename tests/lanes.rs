//! Reader of the lanes in a trace file.

use std::collections::BTreeMap;

use serde_json::Value;

/// A span, with times in nanoseconds.
#[derive(Debug)]
pub struct Span {
    /// Name of the span.
    pub name: String,
    /// Category of the span.
    pub category: String,
    /// Start of the span.
    pub start: u64,
    /// End of the span.
    pub end: u64,
    /// Arguments of the span.
    pub args: Value,
}

/// Returns the spans of each lane by rank and name, in the order of the file.
pub fn lanes(trace: &Value) -> BTreeMap<(usize, String), Vec<Span>> {
    let events = trace["traceEvents"].as_array().unwrap();
    let number = |event: &Value, key: &str| event[key].as_u64().unwrap() as usize;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (mut ranks, mut names) = (BTreeMap::new(), BTreeMap::new());
    let mut lanes: BTreeMap<(usize, String), Vec<Span>> = BTreeMap::new();
    for event in events {
        let (pid, tid) = (number(event, "pid"), number(event, "tid"));
        match (event["ph"].as_str().unwrap(), event["name"].as_str().unwrap()) {
            ("M", "process_name") => {
                ranks.insert(pid, text(&event["args"]["name"]));
            }
            ("M", "thread_name") => {
                names.insert((pid, tid), text(&event["args"]["name"]));
            }
            ("M", _) => {}
            ("X", name) => {
                assert_eq!(ranks[&pid], format!("rank {pid}"), "named before its first span");
                let nanos = |key: &str| (event[key].as_f64().unwrap() * 1e3).round() as u64;
                lanes.entry((pid, names[&(pid, tid)].clone())).or_default().push(Span {
                    name: name.to_owned(),
                    category: text(&event["cat"]),
                    start: nanos("ts"),
                    end: nanos("ts") + nanos("dur"),
                    args: event["args"].clone(),
                });
            }
            other => panic!("unexpected event {other:?}"),
        }
    }
    lanes
}
