//! Tests of Arrow files.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, Int64Builder, ListBuilder, StringBuilder, StructBuilder,
};
use arrow_array::{ArrayRef, Date32Array, Float32Array, Int64Array, RecordBatch, StringArray};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field as ArrowField};

use super::open_examples;
use crate::data::{Example, ExampleSource, Field};

/// Columns of rows from `first` on, as the library `datasets` stores them: text, numbers, a list, and an image.
fn batch(first: i64, rows: i64) -> RecordBatch {
    let numbers = first..first + rows;
    let text = numbers.clone().map(|row| (row % 3 > 0).then(|| format!("row {row}")));
    let text: StringArray = text.collect();
    let label: Int64Array = numbers.clone().collect::<Vec<_>>().into();
    let score: Float32Array =
        numbers.clone().map(|row| row as f32 / 2.0).collect::<Vec<_>>().into();
    let mut lists = ListBuilder::new(Int64Builder::new());
    let image = [("bytes", DataType::Binary), ("path", DataType::Utf8)]
        .map(|(name, kind)| ArrowField::new(name, kind, true));
    let mut images = StructBuilder::from_fields(image.to_vec(), 0);
    for row in numbers {
        (0..row % 4).for_each(|item| lists.values().append_value(item));
        lists.append(true);
        images.field_builder::<BinaryBuilder>(0).unwrap().append_value([row as u8; 3]);
        images.field_builder::<StringBuilder>(1).unwrap().append_null();
        images.append(true);
    }
    let columns: [(&str, ArrayRef); 5] = [
        ("text", Arc::new(text)),
        ("label", Arc::new(label)),
        ("score", Arc::new(score)),
        ("ids", Arc::new(lists.finish())),
        ("image", Arc::new(images.finish())),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
        .unwrap()
}

fn write(path: &Path, batches: &[RecordBatch]) {
    let mut writer =
        StreamWriter::try_new(File::create(path).unwrap(), &batches[0].schema()).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.finish().unwrap();
}

#[test]
fn rows_are_read_in_any_order() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("data-00000-of-00002.arrow"), &[batch(0, 5), batch(5, 1)]);
    write(&dir.path().join("data-00001-of-00002.arrow"), &[batch(6, 7)]);
    let state = "{\"_data_files\": [{\"filename\": \"data-00000-of-00002.arrow\"}, \
                 {\"filename\": \"data-00001-of-00002.arrow\"}]}";
    fs::write(dir.path().join("state.json"), state).unwrap();
    fs::write(dir.path().join("dataset_info.json"), "{}").unwrap();
    let source = open_examples(&[dir.path().to_owned()]).unwrap();
    assert_eq!(source.examples(), 13);
    for row in (0..13).rev() {
        let example = source.read(row).unwrap();
        assert_eq!(example.names().collect::<Vec<_>>(), ["text", "label", "score", "ids", "image"]);
        assert_eq!(example.integer("label"), Ok(row as i64));
        assert_eq!(example.number("score"), Ok(row as f64 / 2.0));
        let expected = (row % 3 > 0).then(|| Field::Text(format!("row {row}")));
        assert_eq!(example.get("text"), expected.as_ref());
        let ids = (0..row % 4).map(|item| Field::Integer(item as i64));
        assert_eq!(example.get("ids"), Some(&Field::List(ids.collect())));
        let image: &Example = example.object("image").unwrap();
        assert_eq!(image.bytes("bytes"), Ok(&[row as u8; 3][..]));
        assert_eq!(image.get("path"), None);
    }
    // One of the files.
    let path = dir.path().join("data-00001-of-00002.arrow");
    let source = open_examples(std::slice::from_ref(&path)).unwrap();
    assert_eq!(source.read(0).unwrap().integer("label"), Ok(6));
    File::options().write(true).open(path).unwrap().set_len(100).unwrap();
    let text = source.read(1).unwrap_err().to_string();
    assert!(
        text.starts_with("row 2 of ") && text.ends_with("the file was cut off while it was read")
    );
}

#[test]
fn other_files_are_refused_with_the_next_step() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.arrow");
    let refused = || {
        let opened = open_examples(std::slice::from_ref(&path));
        opened.map(|source: Box<dyn ExampleSource>| source.examples()).unwrap_err().to_string()
    };
    write(&path, &[batch(0, 4)]);
    let whole = fs::read(&path).unwrap();
    for (content, part) in [
        (&b""[..], "a.arrow is empty"),
        (b"ARROW1\0\0", "it is in the file format of Arrow"),
        (b"prose", "it is damaged or not complete"),
        (&whole[..whole.len() / 2], "it is damaged or not complete"),
        (&whole[..40], "it is damaged or not complete"),
    ] {
        fs::write(&path, content).unwrap();
        let text = refused();
        assert!(text.starts_with("--data: ") && text.contains(part), "{text}");
    }
    let dates: ArrayRef = Arc::new(Date32Array::from(vec![1, 2]));
    write(&path, &[RecordBatch::try_from_iter([("when", dates)]).unwrap()]);
    assert!(refused().contains("the column `when` is of type Date32, which is not read"));
    write(&path, &[batch(0, 0)]);
    assert!(refused().contains("a.arrow is empty"));
    // Damaged headers are errors.
    for at in (0..whole.len()).step_by(13) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        fs::write(&path, bytes).unwrap();
        if let Ok(source) = open_examples(std::slice::from_ref(&path)) {
            (0..source.examples().min(8)).for_each(|row| drop(source.read(row)));
        }
    }
}
