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

#[test]
fn images_have_the_number_of_their_folder() {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in [
        ("cat/b.PNG", "2"),
        ("cat/a.jpg", "1"),
        ("bird/z.jpeg", "0"),
        ("dog/x.png", "3"),
        ("dog/.hidden.png", ""),
        ("dog/notes.txt", ""),
        ("README.md", ""),
    ] {
        write(&dir, name, content.as_bytes());
    }
    let open = || open_examples(&[dir.path().to_owned()]).unwrap();
    let source = open();
    assert_eq!(source.examples(), 4);
    for (index, label) in [0, 1, 1, 2].into_iter().enumerate() {
        let example = source.read(index as u64).unwrap();
        assert_eq!(example.integer("label"), Ok(label));
        assert_eq!(example.bytes("image").unwrap(), index.to_string().as_bytes());
        assert_eq!(example.text("class").unwrap(), ["bird", "cat", "dog"][label as usize]);
    }
    write(&dir, "cat/b.PNG", b"longer");
    assert_ne!(open().fingerprint(), source.fingerprint());
    std::fs::rename(dir.path().join("cat"), dir.path().join("eel")).unwrap();
    let text = source.read(1).unwrap_err().to_string();
    assert!(text.starts_with("cannot read") && text.contains("cat/a.jpg"), "{text}");
}

#[test]
fn lines_of_a_folder_follow_one_another() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir, "2.jsonl", b"{\"a\": 2}");
    write(&dir, "1.jsonl", b"{\"a\": 1}");
    let source = open_examples(&[dir.path().to_owned()]).unwrap();
    let of = |index| source.read(index).unwrap();
    assert_eq!([of(0).integer("a"), of(1).integer("a")], [Ok(1), Ok(2)]);
    assert_eq!(source.name(), dir.path().display().to_string());
    assert_eq!(of(0).resolved("x.png"), dir.path().join("x.png"));
}

#[test]
fn other_folders_are_refused_with_the_next_step() {
    for (files, part) in [
        (&[][..], "the folder is empty; name a JSONL file"),
        (&["notes.txt"], "the folder holds no examples; name a JSONL file"),
        (&["a.png", "b.png"], "a.png: the image is in no folder of a class"),
        (&["cat/a.png", "b.png"], "b.png: the image is in no folder of a class"),
        (&["cat/a.png", "dog/notes.txt"], "dog: the class has no images"),
        (&["train/cat/a.png"], "cat: there is a folder in the folder of a class"),
        (&["cat/a.webp"], "a.webp: the image is neither a JPEG nor a PNG file"),
        (&["dataset_dict.json", "train/x"], "several splits; name one of them, such as"),
        (&["state.json"], "state.json: it is no JSON"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        for name in files {
            write(&dir, name, b"");
        }
        let text = refused(open_examples(&[dir.path().to_owned()]));
        assert!(text.starts_with("--data: ") && text.contains(part), "{text}");
    }
}
