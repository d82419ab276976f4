//! Rows of documents.

use super::{Batch, Dataset, DocumentOptions, Order, TokenFile};

fn dataset(packs: bool, order: Order, seed: u64) -> Dataset {
    let text = b"one.two.three.a.bc.def.ghij.klmnopqrst.u.v.w.xyz.".to_vec();
    let file = TokenFile::from_text(text, 256, "words").unwrap();
    let options = DocumentOptions { end: u32::from(b'.'), packs, masks_borders: true };
    Dataset::of_documents(file, 8, 4, order, seed, options).unwrap()
}

#[test]
fn rows_that_follow_one_another_cut_documents() {
    let batch = dataset(false, Order::Sequential, 0).rows(0, 0..2).unwrap();
    let text: Vec<u8> = batch.tokens.iter().map(|id| *id as u8).collect();
    assert_eq!(text, b"one.two.three.a.");
    let starts = [0, 0, 0, 0, 4, 4, 4, 4, 0, 0, 0, 0, 0, 0, 6, 6];
    assert_eq!(batch.starts.as_deref(), Some(&starts[..]));
    let ignored: Vec<usize> =
        (0..16).filter(|index| batch.targets[*index] == Batch::IGNORED).collect();
    assert_eq!(ignored, [3, 7, 13, 15]);
    assert_eq!(batch.targets[..3], batch.tokens[1..4]);
}

#[test]
fn packed_batches_depend_on_step_and_row_only() {
    for order in [Order::Sequential, Order::Shuffled] {
        let [first, second] = [(); 2].map(|()| dataset(true, order, 3));
        let n_rows = first.packing_waste().unwrap().rows;
        for step in (0..3 * n_rows as u64).rev() {
            let whole = second.rows(step, 0..4).unwrap();
            let [low, high] = [0..2, 2..4].map(|rows| first.rows(step, rows).unwrap());
            assert_eq!([low.tokens, high.tokens].concat(), whole.tokens, "{order}, step {step}");
            assert_eq!([low.targets, high.targets].concat(), whole.targets);
            assert_eq!([low.starts.unwrap(), high.starts.unwrap()].concat(), whole.starts.unwrap());
        }
        // An epoch has each row once.
        let places = (0..n_rows).map(|index| first.rows(0, index..index + 1).unwrap().places[0]);
        let mut starts: Vec<usize> = places.map(|place| place.start).collect();
        starts.sort_unstable();
        starts.dedup();
        assert_eq!(starts.len(), n_rows);
    }
    let order = |seed| {
        let dataset = dataset(true, Order::Shuffled, seed);
        (0..8)
            .map(|index| dataset.rows(0, index..index + 1).unwrap().places[0].start)
            .collect::<Vec<_>>()
    };
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
}

#[test]
fn padding_is_counted_by_step() {
    let dataset = dataset(true, Order::Sequential, 0);
    let waste = dataset.packing_waste().unwrap();
    let held = 49;
    assert_eq!((waste.tokens, waste.padding), (8 * waste.rows, 8 * waste.rows - held));
    // As many steps as rows are four epochs.
    let sum: f64 = (0..waste.rows as u64).map(|step| dataset.padding_of_step(step).unwrap()).sum();
    assert!((sum / waste.rows as f64 - waste.fraction()).abs() < 1e-12);
}
