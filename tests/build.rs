//! Build script that derives variants of models from their source text: with a whole residual stream instead of a
//! sequence-parallel one, with recomputation, and with further FSDP units.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Replacements that turn a sequence-parallel model into one with a whole residual stream.
const WHOLE_STREAM: [(&str, &str); 7] = [
    ("Split<Seq, Tp>", "Seq"),
    (", scatter = Seq", ""),
    (".reduce_scatter(Seq)", ".all_reduce()"),
    (".start_reduce_scatter(Seq)", ".start_all_reduce()"),
    (".gather(Seq)", ""),
    (".start_gather(Seq).wait()", ""),
    (".slice(Seq, Tp)", ""),
];

/// Replacements that recompute pairs of layers, with some results saved.
const SAVING: [(&str, &str); 1] = [(
    "    blocks: Stack<Block>",
    "    #[recompute(every = 2, save = [attn.q, attn.core, mlp.down])]\n    blocks: Stack<Block>",
)];

/// Replacements for nested segments with offloaded inputs, and FSDP units within layers.
const NESTED: [(&str, &str); 4] = [
    ("    blocks: Stack<Block>", "    #[recompute(offload)]\n    blocks: Stack<Block>"),
    ("    pub attn: SelfAttention", "    #[recompute(save = [core])]\n    pub attn: SelfAttention"),
    ("    pub mlp: Mlp", "    #[sharded(fsdp)]\n    pub mlp: Mlp"),
    ("#[model]\npub struct SelfAttention", "#[model]\n#[sharded(fsdp)]\npub struct SelfAttention"),
];

/// Replacements that recompute everything between embedding and head.
const RECOMPUTED: [(&str, &str); 2] = [
    ("    blocks: Stack<Mlp>", "    #[recompute(every = 2, offload)]\n    blocks: Stack<Mlp>"),
    ("    mix: Mix", "    #[recompute]\n    mix: Mix"),
];

/// Replacements that distribute the sequence over cp.
const DISTRIBUTED: [(&str, &str); 1] = [("    Seq,\n", "    Seq @ cp,\n")];

/// The same with recomputed layers.
const DISTRIBUTED_RECOMPUTED: [(&str, &str); 2] =
    [DISTRIBUTED[0], ("    blocks: Stack<", "    #[recompute]\n    blocks: Stack<")];

/// Replacements that train everything.
const THAWED: [(&str, &str); 1] = [("    #[frozen]\n", "")];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let (mut all, mut used) = (BTreeSet::new(), BTreeSet::new());
    for (source, target, changes) in [
        ("../runtime/models/src/decoder/model.rs", "plain_llama.rs", &WHOLE_STREAM[..]),
        ("../runtime/models/src/gpt2/model.rs", "plain_gpt2.rs", &WHOLE_STREAM),
        ("models/gpt.rs", "plain_gpt.rs", &WHOLE_STREAM),
        ("models/mixer.rs", "plain_mixer.rs", &WHOLE_STREAM),
        ("../runtime/models/src/decoder/model.rs", "saving_llama.rs", &SAVING),
        ("../runtime/models/src/decoder/model.rs", "nested_llama.rs", &NESTED),
        ("models/mixer.rs", "recomputed_mixer.rs", &RECOMPUTED),
        ("models/convolutional.rs", "plain_convolutional.rs", &WHOLE_STREAM),
        ("models/convolutional.rs", "distributed_convolutional.rs", &DISTRIBUTED),
        ("models/convolutional.rs", "recomputed_convolutional.rs", &DISTRIBUTED_RECOMPUTED),
        ("models/frozen.rs", "thawed.rs", &THAWED),
    ] {
        derive(Path::new(source), &out.join(target), changes, &mut used);
        all.extend(changes.iter().map(|(before, _)| *before));
    }
    let unused: Vec<_> = all.difference(&used).collect();
    assert!(unused.is_empty(), "no model has {unused:?}");
}

fn derive<'a>(
    source: &Path,
    target: &Path,
    changes: &[(&'a str, &str)],
    used: &mut BTreeSet<&'a str>,
) {
    println!("cargo::rerun-if-changed={}", source.display());
    let text = fs::read_to_string(source).expect("the model's text is readable");
    // What a model uses of its family is imported where the variant is included.
    let is_kept = |line: &&str| !line.starts_with("//!") && !line.starts_with("use super::");
    let lines = text.lines().filter(is_kept);
    let mut changed: String = lines.map(|line| format!("{line}\n")).collect();
    assert!(changed.contains(changes[0].0), "{}: no {}", source.display(), changes[0].0);
    for (before, after) in changes {
        if changed.contains(before) {
            used.insert(before);
        }
        changed = changed.replace(before, after);
    }
    fs::write(target, changed).expect("the output folder is writable");
}
