//! Spans of collectives and waits in a trace.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::trace::Tracer;
use crate::{CommError, LaunchOptions, ReduceOp, Site, launch_with};
use meshwright_backend::{CachingAllocator, Category, DType, View, ViewMut};
use meshwright_mesh::{AxisId, AxisSet};

use super::TP;

const DP: AxisSet = AxisSet::of(AxisId::Dp);

/// The spans of a trace by rank and lane.
fn spans(tracer: &Tracer) -> BTreeMap<(u64, String), Vec<Value>> {
    let mut file = Vec::new();
    tracer.write_to(&mut file).unwrap();
    let file: Value = serde_json::from_slice(&file).unwrap();
    let events = file["traceEvents"].as_array().unwrap();
    let mut names = BTreeMap::new();
    let mut lanes: BTreeMap<_, Vec<Value>> = BTreeMap::new();
    for event in events {
        let lane = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
        if event["name"] == "thread_name" {
            names.insert(lane, event["args"]["name"].as_str().unwrap().to_owned());
        }
        if event["ph"] == "X" {
            lanes.entry((lane.0, names[&lane].clone())).or_default().push(event.clone());
        }
    }
    lanes
}

fn nanos(event: &Value, key: &str) -> u64 {
    (event[key].as_f64().unwrap() * 1000.0).round() as u64
}

#[test]
fn collectives_and_waits_have_spans() {
    let tracer = Tracer::new();
    let options = LaunchOptions { tracer: Some(Arc::clone(&tracer)), ..LaunchOptions::default() };
    let result = launch_with(&options, &"dp=2,tp=2".parse().unwrap(), |comms| {
        let (dp, tp) = (comms.group(DP), comms.group(TP));
        let allocator = CachingAllocator::new();
        for layer in 0..3 {
            let _layer = comms.lane().open_span(("backward", &*format!("blocks.{layer}")));
            let grad = allocator.zeros(DType::F32, 30_000, Category::Gradients);
            let site = Site::here(format!("blocks.{layer} (gradient)"));
            let pending = dp.start_all_reduce(&site, ReduceOp::Sum, grad);
            tp.all_reduce(
                &Site::here("mlp.down"),
                ReduceOp::Max,
                ViewMut::from(&mut [0f32; 9][..]),
            )?;
            let next = (tp.rank() + 1) % 2;
            tp.send(&Site::here("ring"), next, View::from(&[1f32; 100][..]))?;
            tp.recv(&Site::here("ring"), next, ViewMut::from(&mut [1f32; 100][..]))?;
            // Large and small ones, before and after their receivers.
            for len in [4, 30_000] {
                let room = allocator.zeros(DType::F32, len, Category::Activations);
                let data = Arc::new(allocator.zeros(DType::F32, len, Category::Activations));
                let received = tp.start_recv(&Site::here("stage"), next, room);
                tp.start_send(&Site::here("stage"), next, data).wait()?;
                received.wait()?;
            }
            pending.wait()?;
        }
        Ok::<_, CommError>(comms.bytes_by_axes())
    });
    let bytes = result.unwrap_or_else(|error| panic!("{error}"));
    let lanes = spans(&tracer);
    let named = |events: &[Value], name: &str| events.iter().filter(|e| e["name"] == name).count();
    for rank in 0..4 {
        let lane = |name: &str| &lanes[&(rank, name.to_owned())][..];
        let started = lane("comm dp (async)");
        assert_eq!(started.len(), 3);
        assert_eq!(started[1]["name"], "all_reduce blocks.1 (gradient)");
        assert_eq!(started[1]["cat"], "comm");
        let args = &started[1]["args"];
        assert_eq!(args["op"], "asynchronous all_reduce(sum, f32 x 30000) over dp");
        assert_eq!(args["bytes"], 120_000);
        assert_eq!(args["field"], "blocks.1 (gradient)");
        assert!(args["site"].as_str().unwrap().contains("traces.rs:"), "{args}");

        let calls = lane("comm tp");
        assert_eq!(named(calls, "all_reduce mlp.down"), 3);
        assert_eq!((named(calls, "send ring"), named(calls, "recv ring")), (3, 3));

        let compute = lane("compute");
        assert_eq!(named(compute, "backward blocks.2"), 1);
        assert_eq!(named(compute, "all_reduce mlp.down"), 3);
        let wait = compute.iter().find(|e| e["name"].as_str().unwrap().starts_with("wait: "));
        let sites = ["wait: stage", "wait: blocks.0 (gradient)"];
        assert!(wait.is_none_or(|e| sites.contains(&e["name"].as_str().unwrap())), "{wait:?}");

        // The bytes of the spans equal the counters.
        let messages = lane("comm tp (messages)");
        assert_eq!((named(messages, "send stage"), named(messages, "recv stage")), (6, 6));
        for (axes, spans) in [(DP, started.to_vec()), (TP, [calls, messages].concat())] {
            let sent: u64 = spans.iter().map(|e| e["args"]["bytes"].as_u64().unwrap()).sum();
            assert_eq!(bytes[rank as usize][&axes], sent, "rank {rank}, {axes}");
        }
    }
    for ((rank, name), events) in &lanes {
        let mut open: Vec<u64> = Vec::new();
        for event in events {
            let (start, end) = (nanos(event, "ts"), nanos(event, "ts") + nanos(event, "dur"));
            open.retain(|outer| *outer > start);
            let nests = open.iter().all(|outer| end <= *outer);
            assert!(nests, "rank {rank}, {name}: {event} leaves the span around it");
            open.push(end);
        }
    }
}

#[test]
fn wait_for_a_late_member_has_a_span() {
    let tracer = Tracer::new();
    let options = LaunchOptions { tracer: Some(Arc::clone(&tracer)), ..LaunchOptions::default() };
    let result = launch_with(&options, &"tp=2".parse().unwrap(), |comms| {
        if comms.rank() == 1 {
            std::thread::sleep(std::time::Duration::from_millis(40));
        }
        let data = CachingAllocator::new().zeros(DType::F32, 10, Category::Gradients);
        let site = Site::new("blocks.3 (gradient)");
        comms.group(TP).start_all_reduce(&site, ReduceOp::Sum, data).wait().map(drop)
    });
    result.unwrap_or_else(|error: crate::LaunchError<CommError>| panic!("{error}"));
    let lanes = spans(&tracer);
    let waits = &lanes[&(0, "compute".to_owned())];
    assert_eq!(waits[0]["name"], "wait: blocks.3 (gradient)");
    assert!(nanos(&waits[0], "dur") > 20_000_000, "{}", waits[0]);
    // The transfer itself begins when the late member has arrived.
    let transfer = &lanes[&(0, "comm tp (async)".to_owned())][0];
    assert!(nanos(transfer, "ts") > nanos(&waits[0], "ts") + 20_000_000, "{transfer}");
}
