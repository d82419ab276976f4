//! Tests of paths that are opened as examples.

use std::path::PathBuf;

use super::open_examples;
use crate::data::{DataError, ExampleSource};

fn write(dir: &tempfile::TempDir, name: &str, content: &[u8]) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, content).unwrap();
    path
}

fn refused(opened: Result<Box<dyn ExampleSource>, DataError>) -> String {
    opened.map(|source| source.name().to_owned()).unwrap_err().to_string()
}

#[test]
fn files_follow_one_another() {
    let dir = tempfile::tempdir().unwrap();
    let one = write(&dir, "1.jsonl", b"{\"a\": 1}\n{\"a\": 2}\n");
    let two = write(&dir, "2.jsonl", b"{\"a\": 3}");
    let source = open_examples(&[one.clone(), two.clone()]).unwrap();
    assert_eq!(source.examples(), 3);
    let all = (0..3).map(|index| source.read(index).unwrap().integer("a").unwrap());
    assert_eq!(all.collect::<Vec<_>>(), [1, 2, 3]);
    assert!(source.name().ends_with("1.jsonl and 1 more"), "{}", source.name());
    let turned = open_examples(&[two, one.clone()]).unwrap();
    assert_ne!(source.fingerprint(), turned.fingerprint());
    assert!(open_examples(&[one]).unwrap().name().ends_with("1.jsonl"));
}

#[test]
fn other_paths_are_refused_with_the_next_step() {
    let dir = tempfile::tempdir().unwrap();
    assert!(refused(open_examples(&[])).contains("no file of examples is named"));
    let missing = dir.path().join("missing.jsonl");
    assert!(refused(open_examples(&[missing])).contains("cannot read"));
    for (name, content, part) in [
        ("empty.jsonl", &b""[..], "empty.jsonl is empty"),
        ("a.bin", b"\x01\0\x02\0", "it holds token ids, which have no fields"),
        ("a.txt", b"prose\nmore prose\n", "it is plain text, which has no examples"),
        ("a.jsonl.gz", b"\x1f\x8b\x08\0", "it is compressed"),
        ("a.parquet", b"PAR1", "it is a Parquet file"),
        ("a.csv", b"a,b\n1,2\n", "it is a table"),
        ("a.json", b"[{\"a\": 1},\n {\"a\": 2}]\n", "JSON"),
    ] {
        let text = refused(open_examples(&[write(&dir, name, content)]));
        assert!(text.starts_with("--data: ") && text.contains(name), "{text}");
        assert!(text.contains(part), "{text}");
    }
}
