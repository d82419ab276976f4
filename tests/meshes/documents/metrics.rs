//! Metrics of runs with documents.

use meshwright::data::{Batch as Rows, Dataset, DocumentOptions, Order, TokenFile};
use meshwright::models::llama::Llama;

use super::bags::Bags;
use super::run::{EXAMPLE, Run, text};

#[test]
fn metrics_have_the_padding_of_each_step() {
    let run = Run::new();
    let metrics = run.path("m.jsonl");
    let words = format!("--pack --steps 3 --mesh dp=2 --order shuffled --metrics {metrics}");
    run.train::<Bags>(&words).unwrap();
    let file = TokenFile::from_text(text(), 256, "text").unwrap();
    let options = DocumentOptions { end: 10, packs: true, masks_borders: false };
    let dataset = Dataset::of_documents(file, 24, 8, Order::Shuffled, 0, options).unwrap();
    let lines = std::fs::read_to_string(metrics).unwrap();
    for (step, line) in lines.lines().enumerate() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let batch = dataset.rows(step as u64, 0..8).unwrap();
        // Padding is the end of documents, as documents that begin and end with it.
        let padding = dataset.padding_of_step(step as u64).unwrap();
        assert_eq!(line["padding"].as_f64().unwrap(), padding, "step {step}");
        let counted = batch.targets.iter().filter(|target| **target != Rows::IGNORED).count();
        assert_eq!(line["tokens"].as_u64().unwrap(), counted as u64, "step {step}");
    }
    run.train::<Bags>(&format!("--steps 1 --mesh 1 --metrics {}", run.path("plain"))).unwrap();
    let plain = std::fs::read_to_string(run.path("plain")).unwrap();
    assert!(!plain.contains("padding"), "{plain}");
}

/// Counted pair by pair, in the rows that the data has.
#[test]
fn metrics_have_the_balance_of_attention() {
    const STEPS: usize = 3;
    let run = Run::new();
    let metrics = run.path("m.jsonl");
    let balance = |words: &str| {
        let words = format!("{EXAMPLE} --steps {STEPS} --metrics {metrics} {words}");
        let train = if words.contains("--pack") {
            Run::train::<Llama>
        } else {
            Run::train_without_documents::<Llama>
        };
        train(&run, &words).unwrap();
        run.metric(&metrics, "attention_balance")
    };
    let file = TokenFile::from_text(text(), 256, "text").unwrap();
    let options = DocumentOptions { end: 10, packs: true, masks_borders: false };
    let dataset = Dataset::of_documents(file, 24, 8, Order::Shuffled, 0, options).unwrap();
    // Visible pairs of the queries of each rank, in some rows of a step.
    let pairs = |step: usize, rows: std::ops::Range<usize>, ranks: usize| {
        let starts = dataset.rows(step as u64, rows).unwrap().starts.unwrap();
        let mut of_ranks = vec![0u64; ranks];
        for row in starts.chunks(24) {
            for (query, key) in (0..24).flat_map(|query| (0..=query).map(move |key| (query, key))) {
                let chunk = query * 2 * ranks / 24;
                of_ranks[chunk.min(2 * ranks - 1 - chunk)] += u64::from(row[query] == row[key]);
            }
        }
        of_ranks
    };
    let packed = "--pack --order shuffled --mesh";
    for (mesh, ranks, parts) in [
        ("cp=2", 2, 1),
        ("cp=4", 4, 1),
        ("cp=4 --cp gather --micro-batches 2", 4, 2),
        ("dp=2,cp=2", 2, 2),
        ("pp=2,cp=2 --micro-batches 4", 2, 4),
        ("fsdp=2,cp=2,tp=2 --micro-batches 2", 2, 4),
        ("cp=4 --cp hybrid=2", 2, 1),
    ] {
        let found = balance(&format!("{packed} {mesh}"));
        assert_eq!(found.len(), STEPS);
        for (step, found) in found.into_iter().enumerate() {
            // Ranks wait for one another in each micro-batch of each data rank.
            let of_part =
                |part: usize| pairs(step, part * 8 / parts..(part + 1) * 8 / parts, ranks);
            let all: Vec<Vec<u64>> = (0..parts).map(of_part).collect();
            let total: u64 = all.iter().flatten().sum();
            let longest: u64 = all.iter().map(|part| part.iter().max().unwrap()).sum();
            let expected = total as f64 / (ranks as u64 * longest) as f64;
            assert!(expected < 0.99, "packed rows are unequal work");
            let found = found.unwrap();
            assert!(
                (found - expected).abs() < 1e-12,
                "{mesh}, step {step}: {found}, not {expected}"
            );
        }
    }
    assert_eq!(balance(&format!("{packed} cp=4 --cp ulysses")), [Some(1.0); STEPS]);
    assert_eq!(balance("--mesh cp=4"), [Some(1.0); STEPS]);
    assert_eq!(balance(&format!("{packed} dp=2")), [None; STEPS]);
}
