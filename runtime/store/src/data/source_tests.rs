//! Rows of several files and sources.

use std::sync::Arc;

use super::{
    Batch, DataPosition, DataSource, Dataset, DocumentOptions, MadeRows, Order, RowSource,
    TokenFile,
};

fn file(name: &str, text: &str) -> TokenFile {
    TokenFile::from_text(text.as_bytes().to_vec(), 256, name).unwrap()
}

fn source(name: &str, weight: f64, texts: &[&str]) -> DataSource {
    let files = texts.iter().map(|text| file(name, text)).collect();
    DataSource { weight, ..DataSource::of_files(name.to_owned(), files) }
}

fn text(ids: &[u32]) -> String {
    let letter = |id: &u32| if *id == Batch::IGNORED { '_' } else { char::from(*id as u8) };
    ids.iter().map(letter).collect()
}

#[test]
fn rows_do_not_cross_files() {
    let texts = ["abcdefghij", "klm", "n", "opqrst", ""].map(|text| format!("{text}."));
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let dataset = |order| {
        let sources = vec![source("all", 1.0, &texts)];
        Dataset::of_sources(sources, 3, 2, (order, 1), None).unwrap()
    };
    let rows = |dataset: &Dataset, count: usize| -> Vec<[String; 2]> {
        let row = |row| dataset.rows(0, row..row + 1).unwrap();
        (0..count).map(row).map(|row| [text(&row.tokens), text(&row.targets)]).collect()
    };
    let sequential = dataset(Order::Sequential);
    let expected = [
        ["abc", "bcd"],
        ["def", "efg"],
        ["ghi", "hij"],
        ["klm", "lm."],
        ["opq", "pqr"],
        ["rst", "st."],
        ["abc", "bcd"],
    ];
    assert_eq!(rows(&sequential, 7), expected);
    assert_eq!(sequential.epochs_after(3), 1.0);
    let short: Vec<usize> = sequential.files_without_rows().map(TokenFile::len).collect();
    assert_eq!(short, [2, 1]);
    let mut shuffled = rows(&dataset(Order::Shuffled), 6);
    shuffled.sort();
    assert_eq!(shuffled, expected[..6]);
    let evaluation = Dataset::for_evaluation(source("all", 1.0, &texts), 3, 4, None).unwrap();
    let batches = (0..evaluation.batches()).map(|step| evaluation.rows(step, 0..4).unwrap());
    let targets: String = batches.map(|batch| text(&batch.targets)).collect();
    assert_eq!(targets.replace('_', ""), "bcdefghij.lm..pqrst.");
}

#[test]
fn packed_rows_are_of_one_file() {
    let end = u32::from(b'.');
    let options = DocumentOptions { end, packs: true, masks_borders: true };
    let sources = vec![source("words", 1.0, &["a.bc.", "defg.h.i.", "j."])];
    let dataset =
        Dataset::of_sources(sources, 5, 1, (Order::Sequential, 0), Some(options)).unwrap();
    let waste = dataset.packing_waste().unwrap();
    assert_eq!((waste.rows, waste.documents, waste.padding, waste.tokens), (4, 6, 4, 20));
    let rows: Vec<String> =
        (0..4).map(|step| text(&dataset.rows(step, 0..1).unwrap().tokens)).collect();
    assert_eq!(rows, ["a.bc.", "defg.", "h.i..", "j...."]);
    let padding: Vec<f64> = (0..4).map(|step| dataset.padding_of_step(step).unwrap()).collect();
    assert_eq!(padding, [0.0, 0.0, 0.2, 0.6]);
}

/// The rows of a source are those that it has alone, in its own epochs, and no two rows have one position.
#[test]
fn sources_are_read_as_if_alone() {
    const BATCH: usize = 64;
    let (web, code) = ("etaoin shrdlu".repeat(9), "(){};".repeat(7));
    for order in [Order::Sequential, Order::Shuffled] {
        let sources = || vec![source("web", 0.8, &[&web]), source("code", 0.2, &[&code])];
        let dataset = Dataset::of_sources(sources(), 4, BATCH, (order, 5), None).unwrap();
        let mut rows = [Vec::new(), Vec::new()];
        let mut places = Vec::new();
        for step in 0..40 {
            let batch = dataset.rows(step, 0..BATCH).unwrap();
            for row in 0..BATCH {
                let source = dataset.source_of_row(step, row);
                rows[source].push(batch.tokens[row * 4..row * 4 + 4].to_vec());
                places.push((source, batch.places[row]));
            }
        }
        for (own, name) in rows.iter().zip(sources()) {
            let samples = (name.tokens() - 1) / 4;
            for (epoch, rows) in own.chunks_exact(samples).enumerate() {
                let mut rows = rows.to_vec();
                if order == Order::Shuffled {
                    rows.sort();
                }
                let text = &name.files[0];
                let mut expected: Vec<Vec<u32>> = (0..samples)
                    .map(|sample| {
                        let mut ids = vec![0; 4];
                        text.read(sample * 4, &mut ids).unwrap();
                        ids
                    })
                    .collect();
                if order == Order::Shuffled {
                    expected.sort();
                }
                assert_eq!(rows, expected, "{} {order}, epoch {epoch}", name.name);
            }
        }
        let epochs: Vec<(&str, f64)> = dataset.source_epochs_after(40).collect();
        let expected = [rows[0].len() as f64 / 29.0, rows[1].len() as f64 / 8.0];
        assert_eq!(epochs, [("web", expected[0]), ("code", expected[1])]);
        let all = places.len();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), all);
    }
}

#[test]
fn new_data_begins_at_its_step() {
    let of = |step| {
        let sources =
            vec![source("web", 1.0, &["abcdefghijklm"]), source("code", 1.0, &["0123456789"])];
        Dataset::of_sources(sources, 2, 3, (Order::Shuffled, 0), None).unwrap().beginning_at(step)
    };
    for step in 0..20 {
        assert_eq!(of(7).rows(7 + step, 0..3).unwrap(), of(0).rows(step, 0..3).unwrap());
    }
    assert_eq!((of(7).epochs_after(7), of(7).epochs_after(9)), (0.0, of(0).epochs_after(2)));
    let position = DataPosition::after(9, &of(7)).unwrap();
    assert_eq!((position.samples, position.first_step), (6, 7));
    let json = serde_json::to_string(&position).unwrap();
    assert_eq!(serde_json::from_str::<DataPosition>(&json).unwrap(), position);
}

#[test]
fn the_changed_source_is_named() {
    let position = |sources: Vec<DataSource>| {
        let dataset = Dataset::of_sources(sources, 2, 4, (Order::Sequential, 0), None).unwrap();
        DataPosition::after(3, &dataset).unwrap()
    };
    let web = || source("web", 0.7, &["some text", "more text"]);
    let code = |text| source("code", 0.3, &[text]);
    let saved = position(vec![web(), code("let x = 1;")]);
    assert_eq!(saved.other_data(&position(vec![web(), code("let x = 1;")])), None);
    for (now, part) in [
        (
            vec![web(), code("let x = 2;")],
            "code with 10 tokens differs from the file of the checkpoint, code with 10",
        ),
        (vec![web()], "the sources are web, but web, code were saved"),
        (vec![code("let x = 1;"), web()], "the sources are code, web, but web, code were saved"),
        (
            vec![DataSource { weight: 0.2, ..web() }, code("let x = 1;")],
            "the weight of web is 1638 rows in 4,096",
        ),
        (
            vec![DataSource { order: Some(Order::Shuffled), ..web() }, code("let x = 1;")],
            "the order of web is shuffled, but sequential was saved",
        ),
        (
            vec![source("web", 0.7, &["some text"]), code("let x = 1;")],
            "web has 1 file, but 2 files were saved",
        ),
        (
            vec![code("let x = 1;")],
            "code (1 file) differs from the data of the checkpoint, web, code (3 files)",
        ),
    ] {
        let text = saved.other_data(&position(now)).unwrap();
        assert!(text.starts_with("--data: ") && text.contains(part), "{text}");
        assert!(text.ends_with("or begin with these by --new-data"), "{text}");
    }
}

/// Rows that a program makes, mixed with those of a file.
#[test]
fn rows_may_be_made() {
    struct Numbers(u64);

    impl RowSource for Numbers {
        fn name(&self) -> &str {
            "numbers"
        }

        fn rows(&self) -> u64 {
            self.0
        }

        fn fingerprint(&self) -> String {
            format!("{} rows", self.0)
        }

        fn write_row(
            &self,
            row: u64,
            tokens: &mut [u32],
            targets: &mut [u32],
        ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
            if row == 7 {
                return Err("it is the seventh".into());
            }
            tokens.fill(row as u32);
            targets.fill(Batch::IGNORED);
            targets[0] = 100 + row as u32;
            Ok(())
        }
    }

    let made = |rows, vocab| DataSource::of_rows(MadeRows::new(Arc::new(Numbers(rows)), vocab));
    let of =
        |sources: Vec<DataSource>| Dataset::of_sources(sources, 2, 4, (Order::Sequential, 0), None);
    let dataset = of(vec![made(3, 256)]).unwrap();
    let batch = dataset.rows(0, 0..4).unwrap();
    assert_eq!(batch.tokens, [0, 0, 1, 1, 2, 2, 0, 0]);
    const NONE: u32 = Batch::IGNORED;
    assert_eq!(batch.targets, [100, NONE, 101, NONE, 102, NONE, 100, NONE]);
    assert_eq!((dataset.tokens(), dataset.first_tokens(9).unwrap()), (6, vec![0, 0]));
    let position = DataPosition::after(1, &dataset).unwrap();
    assert_eq!(position.other_data(&DataPosition::after(2, &dataset).unwrap()), None);
    let other = DataPosition::after(1, &of(vec![made(4, 256)]).unwrap()).unwrap();
    let text = position.other_data(&other).unwrap();
    assert!(
        text.contains("numbers with 8 tokens differs from the file of the checkpoint"),
        "{text}"
    );
    let mixed = of(vec![made(3, 256), source("web", 1.0, &["abcdefghi"])]).unwrap();
    let found = mixed.rows(0, 0..64).unwrap();
    for (row, tokens) in found.tokens.chunks(2).enumerate() {
        assert_eq!(tokens[0] < 3, mixed.source_of_row(0, row) == 0);
    }
    for (dataset, step, part) in [
        (of(vec![made(9, 256)]), 1, "row 7 of numbers: it is the seventh"),
        (
            of(vec![made(3, 102)]),
            0,
            "row 2 of numbers: token id 102 is beyond the vocabulary of 102",
        ),
        (of(vec![made(0, 256)]), 0, "numbers has no rows"),
    ] {
        let read = dataset.and_then(|dataset| dataset.rows(step, 0..4));
        let text = read.unwrap_err().to_string();
        assert!(text.contains(part), "{text}");
    }
}
