//! The program `tokenize`, as its users meet it.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use meshwright::data::TokenFile;

fn tokenize(folder: &Path, args: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokenize"));
    command.current_dir(folder).args(args).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It may have refused its arguments before it reads.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn ids(path: &Path, vocab: usize) -> Vec<u32> {
    let file = TokenFile::open(path, vocab).unwrap();
    let mut ids = vec![0; file.len()];
    file.read(0, &mut ids).unwrap();
    ids
}

#[test]
fn files_and_standard_input_become_one_file() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.txt"), "ab\n\ncd\n").unwrap();
    let args = "--tokenizer bytes a.txt - -o out.bin --separator \\n --append-eos .";
    let args: Vec<&str> = args.split(' ').collect();
    let output = tokenize(dir.path(), &args, b"e");
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""));
    assert!(
        stdout.starts_with("out.bin: 8 tokens of 16 bits, from 3 documents with 5 bytes; "),
        "{stdout}"
    );
    assert_eq!(ids(&dir.path().join("out.bin"), 256), b"ab.cd.e.".map(u32::from));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
    let record = std::fs::read(dir.path().join("out.bin.json")).unwrap();
    let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
    let expected = serde_json::json!({
        "tokens": 8, "dtype": "u16", "vocab": 256, "tokenizer": {"name": "bytes", "xxh3": null},
    });
    assert_eq!(record, expected);
}

#[test]
fn every_width_can_be_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.txt"), "abc").unwrap();
    for (dtype, bytes) in [("u16", 6), ("u32", 12)] {
        let args = ["--tokenizer", "bytes", "a.txt", "-o", "out.bin", "--dtype", dtype];
        assert!(tokenize(dir.path(), &args, b"").status.success());
        assert_eq!(std::fs::metadata(dir.path().join("out.bin")).unwrap().len(), bytes);
    }
    // The earlier output is still there.
    assert_eq!(std::fs::metadata(dir.path().join("out.bin.1")).unwrap().len(), 6);
    // With its record.
    assert_eq!(ids(&dir.path().join("out.bin"), 256), [97, 98, 99]);
    let record = std::fs::read_to_string(dir.path().join("out.bin.1.json")).unwrap();
    assert!(record.contains("\"u16\""), "{record}");
}

/// Each line is a document, whatever the format around it.
#[test]
fn lines_of_json_are_documents() {
    let dir = tempfile::tempdir().unwrap();
    let lines = "{\"text\": \"ab\", \"id\": 1}\n{\"text\": \"\"}\n{\"text\": \"c\"}\n";
    std::fs::write(dir.path().join("a.jsonl"), lines).unwrap();
    let run = |flags: &[&str]| {
        let args = [&["--tokenizer", "bytes", "a.jsonl", "-o", "out.bin"], flags].concat();
        let output = tokenize(dir.path(), &args, b"");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        ids(&dir.path().join("out.bin"), 256).into_iter().map(|id| id as u8).collect::<Vec<u8>>()
    };
    assert_eq!(run(&[]), b"ab\nc\n");
    assert_eq!(run(&["--bos", "<", "--eos", ">"]), b"<ab><c>");
    assert_eq!(run(&["--eos", ""]), b"abc");
    assert_eq!(run(&["--eos", "id=0", "--bos", "10"]), b"\nab\0\nc\0");
    let args = ["--tokenizer", "bytes", "a.jsonl", "-o", "out.bin", "--text-key", "body"];
    let output = tokenize(dir.path(), &args, b"");
    let stderr = String::from_utf8(output.stderr).unwrap();
    let expected = "error: a.jsonl:1: the object has no key `body`; its keys are text, id; name the one with the text \
                    by --text-key\n";
    assert_eq!((output.status.code(), stderr.as_str()), (Some(2), expected));
}

#[test]
fn what_is_wrong_is_said_in_one_message() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.txt"), "abc").unwrap();
    std::fs::write(dir.path().join("a.zip"), b"PK\x05\x06").unwrap();
    std::fs::write(dir.path().join("a.npy"), b"\x93NUMPY\x01\0").unwrap();
    for (line, message) in [
        ("--tokenizer bytes none.txt -o out.bin", "cannot read none.txt: No such file"),
        ("--tokenizer bytes a.txt -o out.txt", "-o: out.txt must end in .bin"),
        (
            "--tokenizer none.json a.txt -o out.bin",
            "--tokenizer: none.json cannot be used: No such",
        ),
        ("--tokenizer bytes a.txt -o out.bin --append-eos <eos>", "bytes has no token `<eos>`"),
        (
            "--tokenizer bytes a.txt -o no/out.bin",
            "-o: there is no folder no; create it, or name another file",
        ),
        ("--tokenizer bytes a.txt -o a.txt/out.bin", "cannot write a.txt/out.bin: Not a directory"),
        ("a.txt -o out.bin", "needs --tokenizer <tokenizer.json|bytes>; --help explains it"),
        (
            "--tokenizer bytes a.txt -o out.bin --apend-eos x",
            "unknown flag `--apend-eos`; did you mean `--append-eos`?",
        ),
        (
            "--tokenizer bytes a.txt -o out.bin --vocab-size 9",
            "unknown flag `--vocab-size`; --help lists them all\n",
        ),
        (
            "--tokenizer bytes a.txt -o out.bin --eos 0",
            "--eos: bytes has the token `0` with id 48, and another one with id 0; write id=48 or id=0",
        ),
        ("--tokenizer bytes a.txt -o out.bin --eos 256", "no token `256`; its ids are below 256"),
        ("--tokenizer bytes a.txt -o out.bin --bos id=999", "no token `id=999`; its ids are below"),
        ("--tokenizer bytes a.txt -o out.bin --dtype u8", "u16, u32"),
        ("--tokenizer bytes a.zip -o out.bin", "a.zip: it is a zip archive; unpack it"),
        (
            "--tokenizer bytes a.npy -o out.bin",
            "a.npy: it holds token ids already; give it to --data",
        ),
    ] {
        let args: Vec<&str> = line.split(' ').collect();
        let output = tokenize(dir.path(), &args, b"");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}\n{stderr}");
        assert_eq!(stderr.matches("error: ").count(), 1, "{line}\n{stderr}");
        assert!(stderr.contains(message), "{line}\n{stderr}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3, "nothing is left behind");
}

#[cfg(feature = "tokenizers")]
#[test]
fn tokenizer_files_define_ids_and_document_ends() {
    let dir = tempfile::tempdir().unwrap();
    test_tokenizer::write(dir.path(), &test_tokenizer::tokenizer_json());
    let args = ["--tokenizer", "tokenizer.json", "-", "-o", "out.bin", "--append-eos", "<|end|>"];
    let output = tokenize(dir.path(), &args, b"the the\n");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(ids(&dir.path().join("out.bin"), 265), [257, 258, 10, 264]);
}

#[cfg(feature = "tokenizers")]
#[path = "../../../tokenize/src/test_tokenizer.rs"]
mod test_tokenizer;
