//! A small `tokenizer.json` for tests, of the kind that GPT-2 has: byte-level pairs. The tests of the programs include
//! this file too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// The token that ends documents.
pub const END: &str = "<|end|>";

/// Pairs that are merged, in order. Their ids follow the ids of the 256 bytes.
const MERGES: [(&str, &str); 8] = [
    ("t", "h"),
    ("th", "e"),
    ("Ġ", "the"),
    ("Ċ", "Ċ"),
    ("a", "n"),
    ("an", "d"),
    ("Ġ", "and"),
    ("Ġ", "Ġ"),
];

/// 256 bytes, the merges, and [`END`]: ids `0..265`.
pub fn tokenizer_json() -> Value {
    let mut vocab: BTreeMap<String, usize> = BTreeMap::new();
    for byte in 0..=255u8 {
        vocab.insert(letter_of_byte(byte).to_string(), usize::from(byte));
    }
    for (index, (a, b)) in MERGES.iter().enumerate() {
        vocab.insert(format!("{a}{b}"), 256 + index);
    }
    let end = vocab.len();
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [{
            "id": end, "content": END, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            "special": true,
        }],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab,
            "merges": MERGES.map(|(a, b)| format!("{a} {b}")),
        },
    })
}

/// Writes `json` to `dir/tokenizer.json`.
pub fn write(dir: &Path, json: &Value) -> PathBuf {
    let path = dir.join("tokenizer.json");
    std::fs::write(&path, json.to_string()).unwrap();
    path
}

/// Returns the letter of a byte: itself if it is printable, else one past Latin-1 in their order (GPT-2's
/// `bytes_to_unicode`).
fn letter_of_byte(byte: u8) -> char {
    let is_printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if is_printable(byte) {
        char::from(byte)
    } else {
        let before = (0..byte).filter(|other| !is_printable(*other)).count() as u32;
        char::from_u32(256 + before).unwrap()
    }
}
