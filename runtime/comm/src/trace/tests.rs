//! Tests of the trace file: valid JSON, documented keys, nested spans.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Arg, Lane, Name, Tracer, is_trace};

fn file(tracer: &Tracer) -> Value {
    let mut bytes = Vec::new();
    tracer.write_to(&mut bytes).unwrap();
    // Also one whose writing was cut off, with the zeros of a power failure.
    for content in [&bytes[..], &bytes[..30], &[&bytes[..30], &[0; 99]].concat()] {
        assert!(is_trace(&mut &content[..]));
    }
    serde_json::from_slice(&bytes).unwrap()
}

fn events<'a>(file: &'a Value, phase: &str) -> Vec<&'a Value> {
    let events = file["traceEvents"].as_array().unwrap();
    events.iter().filter(|event| event["ph"] == phase).collect()
}

#[test]
fn lanes_are_named_and_spans_have_all_keys() {
    let tracer = Tracer::new();
    let comm = tracer.rank_lane(1, "comm dp");
    let compute = tracer.rank_lane(0, "compute");
    tracer.rank_lane(2, "compute");
    let start = Instant::now();
    std::thread::sleep(Duration::from_millis(2));
    compute.end_span(("forward", "blocks.0"), "compute", start, Vec::new);
    comm.end_span("all_reduce", "comm", start, || {
        vec![("bytes", Arg::Count(12)), ("field", Arg::Text("a \"quoted\"\n path".into()))]
    });

    let file = file(&tracer);
    assert_eq!(file["displayTimeUnit"], "ms");
    assert_eq!(file["otherData"], json!({"dropped_spans": {}}));
    let names: Vec<_> = events(&file, "M")
        .iter()
        .filter(|event| event["name"].as_str().unwrap().ends_with("_name"))
        .map(|event| {
            json!([event["name"], event["pid"], event["tid"], event["args"]["name"]]).to_string()
        })
        .collect();
    // Rank 2 recorded nothing.
    assert_eq!(
        names,
        [
            r#"["process_name",0,1,"rank 0"]"#,
            r#"["thread_name",0,1,"compute"]"#,
            r#"["process_name",1,2,"rank 1"]"#,
            r#"["thread_name",1,2,"comm dp"]"#,
        ]
    );
    let spans = events(&file, "X");
    assert_eq!(spans.len(), 2);
    assert_eq!(spans[0]["name"], "forward blocks.0");
    assert_eq!((&spans[1]["pid"], &spans[1]["tid"]), (&json!(1), &json!(2)));
    assert_eq!(spans[1]["cat"], "comm");
    assert_eq!(spans[1]["args"], json!({"bytes": 12, "field": "a \"quoted\"\n path"}));
    // Microseconds, with a fraction.
    let lasted = spans[1]["dur"].as_f64().unwrap();
    assert!((2000.0..1e6).contains(&lasted), "{lasted}");
}

#[test]
fn outer_spans_precede_inner_spans_of_the_same_start() {
    let tracer = Tracer::new();
    let lane = tracer.rank_lane(0, "compute");
    {
        let _step = lane.open_span("step");
        let _forward = lane.open_span("forward");
        drop(lane.open_span("block"));
    }
    let start = Instant::now();
    lane.end_span("inner", "compute", start, Vec::new);
    lane.end_span("outer", "compute", start, Vec::new);
    let file = file(&tracer);
    let names: Vec<_> = events(&file, "X").iter().map(|e| e["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["step", "forward", "block", "outer", "inner"]);
}

#[test]
fn a_full_lane_counts_dropped_spans() {
    let tracer = Tracer::with_capacity(3);
    for (name, spans) in [("compute", 10), ("comm dp", 3)] {
        let lane = tracer.rank_lane(4, name);
        (0..spans).for_each(|_| drop(lane.open_span("x")));
    }
    let file = file(&tracer);
    assert_eq!(events(&file, "X").len(), 6);
    assert_eq!(file["otherData"], json!({"dropped_spans": {"rank 4, compute": 7}}));
}

#[test]
fn a_lane_that_is_off_does_not_format_names() {
    struct Unused;
    impl From<Unused> for Name {
        fn from(_: Unused) -> Name {
            panic!("a name was formatted for a lane that is off");
        }
    }
    let lane = Lane::disabled();
    assert!(!lane.is_enabled());
    drop(lane.open_span(Unused));
    lane.end_span(Unused, "compute", Instant::now(), || panic!("arguments were created"));
}

#[test]
fn lanes_of_one_name_are_the_same() {
    let tracer = Tracer::new();
    drop(tracer.rank_lane(0, "compute").open_span("a"));
    drop(tracer.rank_lane(0, "compute").open_span("b"));
    let file = file(&tracer);
    assert_eq!(events(&file, "X").len(), 2);
    assert_eq!(events(&file, "M").len(), 4);
}

#[test]
fn write_errors_name_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let tracer = Tracer::new();
    tracer.write(folder.path().join("trace.json")).unwrap();
    let path = folder.path().join("missing").join("trace.json");
    let error = tracer.write(&path).unwrap_err().to_string();
    assert!(
        error.contains(&format!("the trace `{}` cannot be written: ", path.display())),
        "{error}"
    );
}

#[test]
fn other_files_are_no_traces() {
    for content in
        [&b"{\"traceEvents\":[]}"[..], b"text", &[0, 1, 2], b"{\"displayTimeUnit\":\"ns\""]
    {
        assert!(!is_trace(&mut &content[..]));
    }
}
