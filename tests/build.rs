//! Derives the plain-stream form of the examples' Llama from its source: the same model without sequence parallelism.

use std::path::Path;
use std::{env, fs};

fn main() {
    let source = Path::new("../examples/llama.rs");
    println!("cargo::rerun-if-changed={}", source.display());
    println!("cargo::rerun-if-changed=build.rs");
    let text = fs::read_to_string(source).expect("the examples' Llama is readable");
    let mut plain: String = text
        .lines()
        .filter(|line| !line.starts_with("//!"))
        .map(|line| format!("{line}\n"))
        .collect();
    for (sharded, whole) in [("Split<Seq, Tp>", "Seq"), (", scatter = Seq", "")] {
        assert!(plain.contains(sharded), "{}: no `{sharded}` to replace", source.display());
        plain = plain.replace(sharded, whole);
    }
    let out = Path::new(&env::var_os("OUT_DIR").expect("cargo sets it")).join("plain_llama.rs");
    fs::write(out, plain).expect("the output folder is writable");
}
