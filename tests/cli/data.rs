//! Data of every format, as the tools that define the formats write them.

use std::path::PathBuf;

use meshwright::data::{
    DataInput, DocumentOptions, Encoding, TextDocuments, TokenFile, Tokenizer, tokenize_input,
};

use crate::{SMALL, Workspace, assert_contains, fixture, numbers};

/// The token that ends documents in the fixtures.
const END: u32 = 256;

fn file(name: &str) -> PathBuf {
    fixture("data").join(name)
}

fn ids(file: &TokenFile) -> Vec<u32> {
    let mut ids = vec![0; file.len()];
    file.read(0, &mut ids).unwrap();
    ids
}

/// Returns the ids of all documents, each with the token that ends it.
fn expected() -> Vec<u32> {
    let text = std::fs::read(file("expected.json")).unwrap();
    let expected: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let ids = expected["ids"].as_array().unwrap();
    ids.iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

#[test]
fn token_files_have_the_ids_of_their_tools() {
    for (name, encoding) in [
        ("u16.npy", Encoding::U16),
        ("i64.npy", Encoding::I64),
        ("version2.npy", Encoding::U32),
        ("version3.npy", Encoding::U32),
        ("llm_c_gpt2.bin", Encoding::U16),
        ("llm_c_llama3.bin", Encoding::U32),
    ] {
        let found = TokenFile::open(&file(name), 257).unwrap();
        assert_eq!((ids(&found), found.encoding()), (expected(), encoding), "{name}");
        assert_eq!(found.document_ends(), None);
    }
    let mut ends = Vec::new();
    let mut without_end = Vec::new();
    for id in expected() {
        match id {
            END => ends.push(without_end.len()),
            id => without_end.push(id),
        }
    }
    for name in ["megatron.bin", "megatron.idx", "megatron_i32.bin", "megatron_i32.idx"] {
        let found = TokenFile::open(&file(name), 257).unwrap();
        assert_eq!(ids(&found), without_end, "{name}");
        assert_eq!(found.document_ends(), Some(&ends[..]), "{name}");
    }
}

#[test]
fn documents_are_those_of_their_tools() {
    let lines = ["texts.jsonl", "members.jsonl.gz", "texts.jsonl.zst", "frames.jsonl.zst"];
    let tables = ["snappy", "zstd", "gzip", "none", "delta"].map(|name| format!("{name}.parquet"));
    let tables = tables.iter().map(String::as_str).filter(|_| cfg!(feature = "parquet"));
    for name in lines.into_iter().chain(tables) {
        let documents = TextDocuments { record_end: Some(vec![END]), ..TextDocuments::default() };
        let input = DataInput::open(&file(name), None).unwrap();
        let mut shown = 0;
        let done =
            tokenize_input(&Tokenizer::Bytes, input, &documents, 257, &mut |bytes| shown = bytes);
        let (found, encoded) = done.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((ids(&found), encoded.documents), (expected(), 5), "{name}");
        let len = std::fs::metadata(file(name)).unwrap().len();
        assert!(shown <= len && 10 * shown > len, "{name}: {shown} of {len} bytes");
    }
}

/// Every format of the same documents trains alike, and each can resume another.
#[test]
fn formats_are_the_same_data() {
    let workspace = Workspace::new();
    let run = |name: &str, flags: &str| {
        let data = file(name).display().to_string();
        let line = SMALL.replace("text.txt", &data);
        let finished = workspace.run(&format!("{line} --vocab 257 --metrics m.jsonl {flags}"));
        assert_eq!(finished.code, Some(0), "{name}\n{}", finished.stderr);
        (numbers(&workspace.metrics("m.jsonl"), "loss"), finished)
    };
    let (losses, _) = run("u16.npy", "--steps 4 --documents 256 --pack");
    let (_, finished) = run("texts.jsonl", "--steps 2 --documents 256 --pack --save run");
    assert_contains(&finished.stderr, "5 documents of ");
    assert_contains(&finished.stderr, "with token 256 (");
    let (all, _) = run("llm_c_gpt2.bin", "--steps 4 --documents 256 --pack --resume run/latest");
    assert_eq!(all, losses);
    // Without a token that ends documents, a line break follows each.
    let (_, finished) = run("members.jsonl.gz", "--steps 1");
    assert_contains(&finished.stderr, "with token 10 (\"\\n\") after each");
    // The index separates documents that have no end token.
    let (_, finished) = run("megatron.idx", "--steps 1 --documents 256 --pack");
    assert_contains(&finished.stderr, "5 documents packed into ");
}

/// A record beside the ids replaces flags.
#[test]
fn a_token_file_brings_its_vocabulary_and_decoder() {
    let workspace = Workspace::new();
    let (inputs, output) = ([file("texts.jsonl")], workspace.path("ids.bin"));
    let documents = TextDocuments::default();
    let width = Encoding::U32;
    let tokenize = meshwright::data::tokenize_files;
    tokenize(&Tokenizer::Bytes, &inputs, &documents, &output, width, &mut |_| ()).unwrap();
    let line =
        SMALL.replace("text.txt", "ids.bin").replace("--sample-tokens 0", "--sample-tokens 4");
    let finished = workspace.run(&format!("{line} --steps 1"));
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert_contains(&finished.stderr, "vocabulary 256");
    assert_contains(&finished.stdout, "--- prompt ---\none\ntwo");
    let error = |flags: &str| workspace.run(&format!("{line} {flags}")).error().to_owned();
    assert_contains(
        &error("--token-dtype u16"),
        "--data: ids.bin: its record states u32 ids, and --token-dtype u16; leave --token-dtype out",
    );
    assert_contains(
        &error("--vocab 100"),
        "--data: ids.bin has token id 111 at position 0, beyond the vocabulary of 100; the file was made by bytes: a \
         new model needs a --vocab of its size",
    );
    let record = String::from_utf8(workspace.read("ids.bin.json")).unwrap();
    workspace.write("ids.bin.json", record.replace("\"tokens\": ", "\"tokens\": 1").as_bytes());
    assert_contains(&error(""), "tokens, but its record ids.bin.json states 1");
    workspace.write("ids.bin.json", b"{\"tokens\"");
    assert_contains(&error(""), "--data: ids.bin.json: it is no record of tokens: ");
    let record = record.replace("\"xxh3\": null", "\"xxh3\": \"00\"");
    workspace.write("ids.bin.json", record.as_bytes());
    assert_contains(
        &error("--tokenizer bytes"),
        "--tokenizer: ids.bin has token ids of bytes (XXH3 00), which differs from bytes; give the tokenizer of the",
    );
}

/// Documents of an index, as rows of a run have them.
#[test]
fn an_index_separates_documents() {
    let found = TokenFile::open(&file("megatron.bin"), 257).unwrap();
    let ends = found.document_ends().unwrap().to_vec();
    let options = DocumentOptions { end: END, packs: false, masks_borders: true };
    let order = meshwright::data::Order::Sequential;
    let seq = found.len() - 1;
    let dataset =
        meshwright::data::Dataset::of_documents(found, seq, 1, order, 0, options).unwrap();
    let batch = dataset.rows(0, 0..1).unwrap();
    let starts = batch.starts.unwrap();
    for (index, start) in starts.iter().enumerate() {
        let before = ends.iter().copied().filter(|end| *end <= index).max().unwrap_or(0);
        assert_eq!(*start as usize, before);
        let is_last = ends.contains(&(index + 1));
        assert_eq!(batch.targets[index] == u32::MAX, is_last, "{index}");
    }
}

/// A folder, a list and a mixture lead to the same files when the run continues in another folder.
#[test]
fn lists_of_data_are_resumed_without_flags() {
    let workspace = Workspace::new();
    std::fs::create_dir(workspace.path("texts")).unwrap();
    for (name, letter) in [("texts/a.txt", "a "), ("texts/b.txt", "b "), ("c.txt", "c ")] {
        workspace.write(name, letter.repeat(400).as_bytes());
    }
    for data in ["texts", "texts/*.txt,c.txt", "texts:0.75,c.txt:0.25"] {
        let line = SMALL.replace("text.txt", data);
        let finished = workspace.run(&format!("{line} --steps 2 --save saved"));
        assert_eq!(finished.code, Some(0), "{data}\n{}", finished.stderr);
        let mut resumed = crate::program();
        resumed.args("--resume ../saved --steps 4 --threads 1 --sample-tokens 0".split(' '));
        let resumed = resumed.current_dir(workspace.path("texts")).output().unwrap();
        let stderr = String::from_utf8(resumed.stderr).unwrap();
        assert_eq!(resumed.status.code(), Some(0), "{data}\n{stderr}");
        assert_contains(&stderr, "step 4/4");
        std::fs::remove_dir_all(workspace.path("saved")).unwrap();
    }
}

/// Each message states the source, the file or the weight, and the fix.
#[test]
fn unusable_lists_of_data_are_refused() {
    let workspace = Workspace::new();
    std::fs::create_dir(workspace.path("texts")).unwrap();
    workspace.write("texts/a.txt", "a ".repeat(400).as_bytes());
    workspace.write("short.txt", b"short");
    workspace.write("ids.u16.bin", &[1; 2000]);
    let train = |data: &str, flags: &str| {
        workspace.run(&format!("{} --steps 1 {flags}", SMALL.replace("text.txt", data)))
    };
    for (data, flags, part) in [
        ("text.txt:0,texts:1", "", "--data: the weight of text is 0; weights are positive numbers"),
        ("text.txt:1,texts:-2", "", "--data: the weight of texts is -2;"),
        ("text.txt:nan,texts:1", "", "--data: the weight of text is NaN;"),
        ("text.txt:1,texts:0.00001", "", "of texts is less than 1 row in 4096"),
        (
            "text.txt,ids.u16.bin",
            "",
            "--data: text.txt is text, and ids.u16.bin token ids; name files of one kind",
        ),
        ("text.txt,none.txt", "", "--data: cannot read none.txt: No such file or directory"),
        (
            "short.txt:1,text.txt:1",
            "",
            "--data: short has 5 tokens, but one sample of --seq 16 needs 17",
        ),
        (
            "text.txt",
            "--eval-data text.txt:1,texts:1",
            "--eval-data: the sources of text.txt:1,texts:1 have weights",
        ),
        ("text.txt", "--new-data", "--new-data: needs --resume DIR"),
        (
            "text.txt",
            "--new-data --resume auto --save s",
            "--new-data: cannot be combined with --resume auto",
        ),
        ("texts", "--metrics texts/a.txt", "--metrics: is also the file of --data"),
        ("text.txt:1e308,texts:1e308", "", "--data: the weights are too large to be added"),
        (
            "texts/*",
            "--metrics texts/m.jsonl",
            "--metrics: texts/m.jsonl is in the folder texts/* of --data",
        ),
        (
            "texts",
            "--metrics texts/m.jsonl",
            "--metrics: texts/m.jsonl is in the folder texts of --data",
        ),
    ] {
        assert_contains(train(data, flags).error(), part);
    }
    let finished = train("texts,short.txt", "");
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert_contains(
        &finished.stderr,
        "warning: --data: short.txt is shorter than a row, seq + 1 = 17 tokens, and not",
    );
}

/// A glob cannot match them; the folder can.
#[test]
fn names_that_are_no_text_are_not_left_out() {
    use std::os::unix::ffi::OsStrExt;

    let workspace = Workspace::new();
    std::fs::create_dir(workspace.path("texts")).unwrap();
    workspace.write("texts/a.txt", "a ".repeat(400).as_bytes());
    let other = workspace.path("texts").join(std::ffi::OsStr::from_bytes(b"b\xff.txt"));
    std::fs::write(other, "b ".repeat(400)).unwrap();
    let run = |data: &str| workspace.run(&format!("{} --steps 1", SMALL.replace("text.txt", data)));
    assert_contains(
        run("texts/*.txt").error(),
        "is not UTF-8, so no glob matches it; rename the file",
    );
    let whole = run("texts");
    assert_eq!(whole.code, Some(0), "{}", whole.stderr);
    assert_contains(&whole.stderr, "the 1,600 tokens of 2 files of texts");
}

/// The length of sequences, too; the tokens have to be those that the model has learned.
#[test]
fn new_data_may_have_another_length() {
    let workspace = Workspace::new();
    workspace.write("other.txt", "another text ".repeat(90).as_bytes());
    workspace.train("--steps 2 --save out --metrics m.jsonl");
    let refused = workspace.run("--resume out --steps 4 --batch 2").error().to_owned();
    assert_contains(
        &refused,
        "or go on with these by --new-data:\n  - --batch: 2, but 4 was saved",
    );
    for seq in ["8", "32"] {
        let line = format!(
            "--resume out --new-data --data other.txt --seq {seq} --batch 2 --save {seq} --steps 4"
        );
        let finished = workspace.run(&format!("{line} --threads 1 --metrics {seq}.jsonl"));
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        let expected = format!("--seq: {seq}, but 16 was saved");
        assert_contains(&finished.stderr, &expected);
        // Later runs need no flag, and take the lines of steps with other batches for their own.
        let line = format!(
            "--resume {seq} --save {seq} --steps 6 --metrics {seq}.jsonl --export-hf hf{seq}"
        );
        let finished = workspace.run(&line);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        assert!(!finished.stderr.contains("warning"), "{}", finished.stderr);
        assert_eq!(workspace.metrics(&format!("{seq}.jsonl")).len(), 4);
    }
}

/// Programs without the feature `remote` name it.
#[cfg(not(feature = "remote"))]
#[test]
fn objects_need_support() {
    let workspace = Workspace::new();
    for (flag, line) in [
        ("--data", "--data s3://bucket/a.bin"),
        ("--data", "--data text.txt:1,gs://bucket/web/:2"),
        ("--eval-data", "--data text.txt --eval-data az://bucket/*.bin"),
        ("--data", "--data s3://bucket/a.bin --data-cache cache"),
        ("--save", "--data text.txt --save s3://bucket/run"),
    ] {
        let small = SMALL.replace("--data text.txt ", "");
        let refused = workspace.run(&format!("{small} --steps 2 {line}"));
        assert_contains(refused.error(), &format!("{flag}: "));
        assert_contains(
            refused.error(),
            "was built without support for it; build it with `--features remote`",
        );
    }
    assert_eq!(workspace.listing(), ["text.txt"]);
}
