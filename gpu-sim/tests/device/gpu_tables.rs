//! The tables of the benchmark program `gpu`, on a simulated device with small sizes.

#[allow(dead_code, reason = "a test needs no files and no sizes of a GPU")]
#[path = "../../../bench/src/bin/gpu/suite/mod.rs"]
mod suite;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use meshwright::backend::Backend;
use meshwright_cuda::CudaBackend;
use meshwright_gpu_sim::SimDriver;
use serde_json::Value;

use suite::report::{Effort, Report};
use suite::{Sizes, TABLES, measured_report};

fn small() -> Sizes {
    let mut sizes = Sizes::full();
    for model in [&mut sizes.llama, &mut sizes.gpt2] {
        (model.batch, model.seq) = (2, 16);
        (model.hidden, model.ffn, model.heads) = (64, 128, 4);
        (model.vocab, model.chunk_tokens) = (96, 16);
    }
    (sizes.llama.kv_heads, sizes.gpt2.kv_heads) = (2, 4);
    (sizes.copied, sizes.square, sizes.parameters) = (4096, 64, 4096);
    sizes
}

fn backend() -> Arc<dyn Backend> {
    Arc::new(CudaBackend::new(Arc::new(SimDriver::new(1))))
}

const ONCE: Effort =
    Effort { series: 1, at_least: Duration::ZERO, few: 1, sustained: Duration::ZERO };

/// Returns the rows of a table whose kernels contain `filter` in their names.
fn rows_of(table: &suite::Table, filter: &str) -> Vec<Value> {
    let (sizes, mut rows) = (small(), Vec::new());
    let mut sink = |row: &Value| rows.push(row.clone());
    (table.rows)(&mut measured_report(backend(), &sizes, filter, ONCE, &mut sink), &sizes);
    rows
}

#[test]
fn every_row_is_measured() {
    let mut names = BTreeSet::new();
    for table in &TABLES {
        let rows = rows_of(table, "");
        assert!(!rows.is_empty(), "{}", table.name);
        for row in rows {
            let name = format!("{} {} {}", table.name, row["table"], row["name"]);
            for number in ["ms", "rate", "share"] {
                let value = row[number].as_f64().unwrap();
                assert!(value > 0.0 && value.is_finite(), "{name}: {number} {value}");
            }
            assert!(names.insert(name.clone()), "two rows are {name}");
        }
    }
}

#[test]
fn a_filter_leaves_rows_out() {
    let table = TABLES.iter().find(|table| table.name == "elementwise").unwrap();
    let rows = rows_of(table, "rope");
    assert_eq!(rows.iter().map(|row| row["name"].as_str()).collect::<Vec<_>>(), [Some("rope")]);
}

/// Frequencies of the two most frequent tokens in text with a vocabulary of 32000: 1 / ln(32000) * ln(2), and *
/// ln(3/2).
#[test]
fn zipf_tokens_are_as_in_text() {
    let mut sink = |_: &Value| {};
    let report = Report::new(backend(), "", ONCE, &mut sink);
    let ids: Vec<u32> = report.zipf_tokens(16384, 32000).view().to_vec();
    assert!(ids.iter().all(|id| *id < 32000));
    let mut counts: HashMap<u32, usize> = HashMap::new();
    ids.iter().for_each(|id| *counts.entry(*id).or_default() += 1);
    for (id, expected) in [(0, 0.0668), (1, 0.0391)] {
        let share = counts[&id] as f64 / ids.len() as f64;
        assert!((share / expected - 1.0).abs() < 0.05, "token {id}: {share}");
    }
    let uniform: Vec<u32> = report.uniform_tokens(16384, 32000).view().to_vec();
    let distinct = uniform.iter().collect::<BTreeSet<_>>().len();
    // Random ids have 32000 * (1 - exp(-16384 / 32000)) distinct values, evenly spread ids more.
    assert!(distinct > 12000 && uniform.iter().all(|id| *id < 32000), "{distinct}");
}
