//! Derives the forms with a whole residual stream of models written with a sequence-parallel one.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// What the text of a sequence-parallel model says, and what that of a plain one says instead.
const WHOLE_STREAM: [(&str, &str); 7] = [
    ("Split<Seq, Tp>", "Seq"),
    (", scatter = Seq", ""),
    (".reduce_scatter(Seq)", ".all_reduce()"),
    (".start_reduce_scatter(Seq)", ".start_all_reduce()"),
    (".gather(Seq)", ""),
    (".start_gather(Seq).wait()", ""),
    (".slice(Seq, Tp)", ""),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    derive(Path::new("../examples/llama.rs"), &out.join("plain_llama.rs"));
    derive(Path::new("models/gpt.rs"), &out.join("plain_gpt.rs"));
    derive(Path::new("models/mixer.rs"), &out.join("plain_mixer.rs"));
}

fn derive(source: &Path, target: &Path) {
    println!("cargo::rerun-if-changed={}", source.display());
    let text = fs::read_to_string(source).expect("the model's text is readable");
    let lines = text.lines().filter(|line| !line.starts_with("//!"));
    let mut plain: String = lines.map(|line| format!("{line}\n")).collect();
    assert!(plain.contains(WHOLE_STREAM[0].0), "{}: no split stream", source.display());
    for (split, whole) in WHOLE_STREAM {
        plain = plain.replace(split, whole);
    }
    fs::write(target, plain).expect("the output folder is writable");
}
