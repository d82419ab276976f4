//! Files that are no data, or not whole: each is named with the next step, and none is trained on.

use super::assert_refused;
use crate::{SMALL, Workspace, fixture};

/// Returns the command line for a file.
fn on(name: &str) -> String {
    SMALL.replace("text.txt", name)
}

#[track_caller]
fn assert_each_refused(workspace: &Workspace, cases: &[(&str, &[u8], &[&str])]) {
    for (name, content, parts) in cases {
        workspace.write(name, content);
        let file = format!("--data: {name}: ");
        let parts: Vec<&str> = [&[file.as_str()], *parts].concat();
        assert_refused(workspace, &[(&on(name), &parts)]);
    }
}

fn data(name: &str) -> Vec<u8> {
    std::fs::read(fixture("data").join(name)).unwrap()
}

#[test]
fn other_kinds_of_files() {
    let workspace = Workspace::new();
    let mut tar = vec![0; 1024];
    tar[..5].copy_from_slice(b"a.txt");
    tar[257..262].copy_from_slice(b"ustar");
    let latin = "Größe über Straße ".chars().map(|c| c as u8).collect::<Vec<u8>>().repeat(9);
    let koi8 = [0xd4; 300];
    assert_each_refused(
        &workspace,
        &[
            ("a.bin", b"version https://git-lfs.github.com/spec/v1\n", &["git lfs pull"]),
            ("m.safetensors", b"\x10\0\0\0\0\0\0\0{\"a\":{}}", &["safetensors", "--init-from"]),
            ("a.csv", b"id,text\n1,a\n", &["a table", "read_csv('a.csv')", "--text-key"]),
            ("a.zip", b"PK\x03\x04", &["a zip archive", "unzip a.zip"]),
            ("a.tar", &tar, &["a tar archive", "tar -xf a.tar"]),
            ("a.h5", b"\x89HDF\r\n\x1a\n", &["HDF5", "h5py"]),
            ("a.arrow", b"\xff\xff\xff\xff\x10\0\0\0", &["an Arrow file", "to_parquet"]),
            ("a.feather", b"ARROW1\0\0", &["an Arrow file", "read_feather('a.feather')"]),
            ("a.pkl", b"\x80\x04\x95\0\0", &["a pickle", "tofile"]),
            ("a.db", b"SQLite format 3\0", &["SQLite", "sqlite3 -json a.db"]),
            ("a.pdf", b"%PDF-1.7\n", &["a PDF", "pdftotext a.pdf"]),
            ("a.txt.xz", b"\xfd7zXZ\0", &["xz -dk a.txt.xz"]),
            ("a.txt.bz2", b"BZh91AY&SY", &["bunzip2 -k a.txt.bz2"]),
            ("a.txt.lz4", b"\x04\x22\x4d\x18", &["lz4 -d a.txt.lz4"]),
            ("a", b"\x7fELF\x02", &["a program"]),
            ("a.png", b"\x89PNG\r\n\x1a\n", &["an image"]),
            ("a.jpg", b"\xff\xd8\xff\xe0\0", &["an image"]),
            ("utf16.txt", b"\xff\xfeh\0i\0", &["UTF-16", "iconv -f UTF-16 -t UTF-8 utf16.txt"]),
            ("a.mds", b"\x01\0\0\0\x10\0\0\0", &["MosaicML", "JSONL"]),
            ("a.ds", b"\x01\x05\0\x10", &["nanotron", "--token-dtype u16 or u32"]),
            ("a.tfrecord", b"\x01\0\0\0\0\0\0\0", &["TFRecord"]),
            ("a.gguf", b"GGUF\x03\0", &["GGUF", "--init-from"]),
            ("a.jsonl", b"<!DOCTYPE html><html>", &["an HTML page", "download the file again"]),
            ("b.bin", b"\n<html><head>", &["an HTML page"]),
            ("nul.txt", b"some text\0and more", &["binary", "--token-dtype", "tr -d '\\000'"]),
            ("latin1.txt", &latin, &["not UTF-8 text", "iconv -f ENCODING -t UTF-8 latin1.txt"]),
            ("koi8.txt", &koi8, &["not UTF-8 text"]),
            ("text.bin", &b"only words, no ids ".repeat(20), &["it is text", "rename it"]),
            ("a.json", b"[\n {\"text\": \"a\"}\n]", &["one JSON document", "jq -c '.[]' a.json"]),
            ("b.json", b"{\n \"text\": \"a\"\n}", &["one JSON document", "jq -c '.' b.json"]),
            ("alone.idx", b"MMIDIDX\0\0", &["alone.bin is not beside it"]),
            ("old.idx", b"TNTIDX\0\0\x01", &["fairseq", "Megatron"]),
        ],
    );
}

#[test]
fn compressed_files() {
    let workspace = Workspace::new();
    let (gzip, zstd) = (data("members.jsonl.gz"), data("texts.jsonl.zst"));
    let cut = |bytes: &[u8]| bytes[..bytes.len() - 9].to_vec();
    let mut changed = zstd.clone();
    *changed.last_mut().unwrap() ^= 1;
    let io = |name: &str, content: Vec<u8>, parts: &[&str]| {
        workspace.write(name, &content);
        let file = format!("--data: cannot read {name}: ");
        assert_refused(&workspace, &[(&on(name), &[&[file.as_str()], parts].concat())]);
    };
    io(
        "a.gz",
        cut(&gzip),
        &["its gzip content is truncated, or followed by", "get the file again"],
    );
    io("a.zst", cut(&zstd), &["its Zstandard content is truncated"]);
    io("b.zst", changed, &["its Zstandard content is damaged (its checksum differs)"]);
    io("b.gz", [&gzip[..], b"junk"].concat(), &["its gzip content is "]);
    io("c.gz", b"\x1f\x8b\x08\0".to_vec(), &["its gzip content is truncated"]);
    io("c.zst", [&zstd[..], b"junk"].concat(), &["its Zstandard content is damaged"]);
    // Stored blocks of deflate.
    let stored = |content: &[u8]| {
        let len = content.len() as u16;
        let mut bytes = b"\x1f\x8b\x08\0\0\0\0\0\0\xff\x01".to_vec();
        bytes.extend(len.to_le_bytes());
        bytes.extend((!len).to_le_bytes());
        bytes.extend(content);
        bytes.extend(crc_32(content).to_le_bytes());
        bytes.extend(u32::from(len).to_le_bytes());
        bytes
    };
    let mut tar = vec![0; 512];
    tar[257..262].copy_from_slice(b"ustar");
    assert_each_refused(
        &workspace,
        &[
            ("d.gz.gz", &stored(&gzip), &["compressed twice; unpack it first: gzip -dk d.gz.gz"]),
            ("a.tar.gz", &stored(&tar), &["inside of gzip, it is a tar archive"]),
            ("a.npy.gz", &stored(&data("u16.npy")), &["token ids are mapped", "gzip -dk a.npy.gz"]),
            ("a.bin.gz", &stored(&[1, 0, 2, 0]), &["token ids are mapped", "gzip -dk a.bin.gz"]),
            ("a.txt.gz", &stored(b"text\0"), &["inside of gzip, it is binary"]),
        ],
    );
}

/// Computes the checksum of gzip.
fn crc_32(content: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    let add = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc));
    !content.iter().fold(!0, add)
}

/// A small file with an endless document, which costs little memory.
#[test]
fn a_gzip_bomb() {
    let workspace = Workspace::new();
    // A mebibyte of the letter a, by matches of 258 bytes.
    let mut block = Vec::new();
    let mut bits = BitWriter { bytes: &mut block, bit: 0 };
    // Not the last block, with fixed codes; the letter a.
    bits.write(0b010, 3);
    bits.write_code(0x30 + 97, 8);
    for _ in 0..4096 {
        // Length 258 and distance 1.
        bits.write_code(0b1100_0101, 8);
        bits.write_code(0, 5);
    }
    bits.write_code(0, 7);
    // An empty stored block, which ends at a byte.
    bits.write(0, 3);
    bits.bytes.extend([0, 0, 0xff, 0xff]);
    let mut bomb = b"\x1f\x8b\x08\0\0\0\0\0\0\xff".to_vec();
    // A JSON object whose text never ends, of more than 256 MiB.
    let start = b"{\"text\": \"";
    bomb.extend([0, start.len() as u8, 0, !(start.len() as u8), 0xff]);
    bomb.extend(start);
    (0..260).for_each(|_| bomb.extend(&block));
    workspace.write("bomb.jsonl.gz", &bomb);
    assert!(bomb.len() < 4 << 20);
    let expected = "--data: bomb.jsonl.gz:1: the line is longer than 256 MiB; split the document";
    assert_refused(&workspace, &[(&on("bomb.jsonl.gz"), &[expected])]);
}

/// Bits as deflate orders them.
struct BitWriter<'a> {
    bytes: &'a mut Vec<u8>,
    bit: u32,
}

impl BitWriter<'_> {
    fn write(&mut self, value: u32, len: u32) {
        for index in 0..len {
            if self.bit == 0 {
                self.bytes.push(0);
            }
            *self.bytes.last_mut().unwrap() |= ((value >> index & 1) << self.bit) as u8;
            self.bit = (self.bit + 1) % 8;
        }
    }

    /// Writes a code of Huffman, whose highest bit is first.
    fn write_code(&mut self, code: u32, len: u32) {
        self.write(code.reverse_bits() >> (32 - len), len);
    }
}

#[test]
fn lines_of_json() {
    let workspace = Workspace::new();
    let good = "{\"text\": \"a\"}\n";
    let write = |name: &str, line: &str| {
        workspace.write(name, format!("{good}{line}\n{good}").as_bytes());
        on(name)
    };
    for (line, part) in [
        (write("key.jsonl", "{\"body\": \"a\"}"), "key.jsonl:2: the object has no key `text`"),
        (write("null.jsonl", "{\"text\": null}"), "null.jsonl:2: `text` is null, not a string"),
        (write("half.jsonl", "{\"text\": \"\\ud800\"}"), "half.jsonl:2: at column "),
        (write("broken.jsonl", "{\"text\": \"a\""), "broken.jsonl:2: broken JSON at column "),
        (on("text.txt") + " --token-dtype u16", "text.txt: it is text, and --token-dtype is"),
        (on("text.txt") + " --text-key=", "--text-key: needs a key"),
        (
            on("text.txt") + " --text-key body",
            "--text-key: text.txt holds plain text, whose documents have no",
        ),
        (
            write("keys.jsonl", "{}") + " --text-key body",
            "keys.jsonl:1: the object has no key `body`",
        ),
    ] {
        assert_refused(&workspace, &[(&line, &[part])]);
    }
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_files() {
    let workspace = Workspace::new();
    let table = data("snappy.parquet");
    let mut changed = table.clone();
    changed[100..200].fill(0xff);
    assert_each_refused(
        &workspace,
        &[
            ("null.parquet", &data("null.parquet"), &["`text` is null in row 2", "dropna"]),
            ("cut.parquet", &table[..table.len() / 2], &["cannot be read as Parquet", "truncated"]),
            ("short.parquet", b"PAR1", &["cannot be read as Parquet"]),
            ("damaged.parquet", &changed, &["cannot be read as Parquet"]),
        ],
    );
    workspace.write("a.parquet", &table);
    for (key, part) in [
        (
            "body",
            "it has no column `body`; its columns are id, text, nested.list.element; name the",
        ),
        ("id", "the column `id` holds INT64, not strings"),
        ("nested", "the column `nested` holds lists or structures, not strings"),
    ] {
        let line = format!("{} --text-key {key}", on("a.parquet"));
        assert_refused(&workspace, &[(&line, &["--data: a.parquet: ", part])]);
    }
}

#[cfg(not(feature = "parquet"))]
#[test]
fn parquet_needs_its_feature() {
    let workspace = Workspace::new();
    assert_each_refused(
        &workspace,
        &[("a.parquet", &data("snappy.parquet"), &["the feature `parquet`", "to_json"])],
    );
}
