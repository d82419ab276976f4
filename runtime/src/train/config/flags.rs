//! The table of every flag: the command line, the keys of `--config` files, `--help` and the checks all come from it.

/// What a flag's value looks like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// A whole number.
    Count {
        /// The smallest value that makes sense.
        min: u64,
        /// The largest value that makes sense, or for which products of two cannot overflow, where products are formed.
        max: u64,
    },
    /// A finite number of at least zero.
    Number,
    /// A number in [0, 1).
    Fraction,
    /// A number of bytes, with or without a unit.
    Bytes,
    /// Two numbers separated by a comma, each in [0, 1).
    Pair,
    /// A file or folder.
    Path,
    /// Free text, checked by whoever uses it.
    Text,
    /// One of some words.
    Choice(&'static [&'static str]),
    /// Present or absent.
    Switch,
    /// Part of the interface, but brought by a later version; refused until then.
    Later,
}

/// One flag of the command line, which is also a key of `--config` files.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    /// Long name without the dashes.
    pub name: &'static str,
    /// What stands for the value in `--help`.
    pub value: &'static str,
    /// What the value looks like.
    pub kind: Kind,
    /// The value when the flag is absent; empty when absence means something of its own.
    pub default: &'static str,
    /// Heading in `--help`.
    pub group: &'static str,
    /// One line for `--help`.
    pub help: &'static str,
}

impl Flag {
    /// The flag called `name`, written with dashes.
    pub fn find(name: &str) -> Option<&'static Flag> {
        FLAGS.iter().find(|flag| flag.name == name)
    }

    /// The name in `candidates` that a misspelt `word` most likely meant, if any is near.
    pub fn nearest<'a>(
        word: &str,
        candidates: impl IntoIterator<Item = &'a str>,
    ) -> Option<&'a str> {
        candidates
            .into_iter()
            .map(|name| (strsim::osa_distance(word, name), name))
            .filter(|(distance, name)| *distance <= 1 + name.len().min(word.len()) / 4)
            .min_by_key(|(distance, _)| *distance)
            .map(|(_, name)| name)
    }

    const fn new(group: &'static str, name: &'static str, kind: Kind) -> Flag {
        Flag { name, value: "", kind, default: "", group, help: "" }
    }

    const fn value(mut self, value: &'static str) -> Flag {
        self.value = value;
        self
    }

    const fn default(mut self, default: &'static str) -> Flag {
        self.default = default;
        self
    }

    const fn help(mut self, help: &'static str) -> Flag {
        self.help = help;
        self
    }
}

/// `later` is the flag of a capability that a later version brings.
const fn later(name: &'static str, help: &'static str) -> Flag {
    Flag::new("Later versions", name, Kind::Later).help(help)
}

const MACHINE: &str = "Where to run";
const MODEL: &str = "Model";
const DATA: &str = "Data";
const SHARDING: &str = "Sharding, memory and precision";
const OPTIMIZER: &str = "Optimiser";
const SAVING: &str = "Saving";
const REPORTS: &str = "Reports";

/// A whole number that may be zero.
const COUNT: Kind = Kind::Count { min: 0, max: u32::MAX as u64 };
/// A whole number of at least one.
const POSITIVE: Kind = Kind::Count { min: 1, max: u32::MAX as u64 };
/// Any whole number of 64 bits.
const SEED: Kind = Kind::Count { min: 0, max: u64::MAX };

/// Every flag, in the order of `--help`.
pub const FLAGS: &[Flag] = &[
    Flag::new(MACHINE, "config", Kind::Path)
        .value("FILE.toml")
        .help("Read settings from a file with the same keys; flags override it"),
    Flag::new(MACHINE, "mesh", Kind::Text).value("AXIS=N,..").help(
        "Ranks along each axis: dp (replicas), fsdp (sharded replicas), tp (tensor-parallel), such as dp=2,tp=2; an \
         axis left out has degree 1 [default: dp=2,tp=2 without --data and --init-from, else one rank]",
    ),
    Flag::new(MACHINE, "device", Kind::Choice(&["cpu", "cuda", "meta"]))
        .value("DEVICE")
        .default("cpu")
        .help("Where tensors live: cpu, or cuda in a program built with --features cuda (meta comes with a later version)"),
    Flag::new(MACHINE, "threads", POSITIVE)
        .value("N")
        .help("Threads of each rank [default: the machine's cores shared out, at least 1]"),
    Flag::new(MACHINE, "nondeterministic", Kind::Switch).help(
        "Let a GPU use ways of attention and of matrix products that are faster, and whose results differ in their last \
         bits from run to run [needs --device cuda]",
    ),
    Flag::new(MACHINE, "no-graphs", Kind::Switch).help(
        "Submit the work of every step to a GPU anew, instead of recording that of one step and submitting it at once in \
         later ones [needs --device cuda]",
    ),
    Flag::new(SHARDING, "zero", Kind::Count { min: 0, max: 3 }).value("LEVEL").help(
        "What the ranks of the fsdp axis hold only a shard of: 0 nothing, 1 optimiser state and master weights, \
         2 gradients too, 3 parameters too [default: 3 where the mesh has an fsdp axis, else 0]",
    ),
    Flag::new(SHARDING, "micro-batches", POSITIVE)
        .value("N")
        .default("1")
        .help("Parts that each rank's share of a step is computed in, one after the other"),
    Flag::new(SHARDING, "recompute", Kind::Text).value("WHAT").help(
        "Activations that backward computes anew instead of keeping them, by layer: none, full (each layer from its \
         input), every=N (runs of N layers), sqrt (runs of about the root of their number), attn (attention only) \
         [default: what the model declares]",
    ),
    Flag::new(SHARDING, "memory-limit", Kind::Bytes)
        .value("BYTES")
        .help("Most memory of each rank, such as 2GB or 512MiB; a run that needs more is refused"),
    Flag::new(SHARDING, "dtype", Kind::Choice(&["f32", "bf16"])).value("DTYPE").help(
        "Element type of the computation, and of the activations and gradients of activations that ranks exchange, \
         whose sums are formed in f32; master weights, optimiser state and accumulated gradients are f32 always [default: f32 on cpu, bf16 on cuda]",
    ),
    Flag::new(SHARDING, "reduce-dtype", Kind::Choice(&["f32", "bf16"]))
        .value("DTYPE")
        .default("f32")
        .help("Element type in which gradients are summed over the data ranks [bf16 needs --dtype bf16]"),
    Flag::new(MODEL, "init-from", Kind::Path)
        .value("DIR")
        .help("Take sizes and weights from a Hugging Face folder of the model's family"),
    Flag::new(MODEL, "hidden", POSITIVE)
        .value("N")
        .default("128")
        .help("Width of the residual stream"),
    Flag::new(MODEL, "layers", POSITIVE).value("N").default("4").help("Transformer blocks"),
    Flag::new(MODEL, "heads", POSITIVE)
        .value("N")
        .default("4")
        .help("Attention heads; each is hidden / heads wide"),
    Flag::new(MODEL, "kv-heads", POSITIVE)
        .value("N")
        .help("Key and value heads, each shared by heads / kv-heads queries [default: --heads]"),
    Flag::new(MODEL, "ffn", POSITIVE)
        .value("N")
        .help("Width of the feed-forward [default: of a Llama, 8/3 of --hidden rounded up to 64; of a GPT-2, 4 times --hidden]"),
    Flag::new(MODEL, "vocab", POSITIVE).value("N").default("256").help("Vocabulary size"),
    Flag::new(MODEL, "tied", Kind::Switch)
        .help("Use one weight for the token embedding and the output head"),
    Flag::new(DATA, "data", Kind::Path).value("FILE").help(
        "Tokens: .bin holds little-endian u16 or u32 ids, any other file is text for --tokenizer \
         [default: the project's own book]",
    ),
    Flag::new(DATA, "tokenizer", Kind::Path)
        .value("FILE.json")
        .help("Tokenise text with a Hugging Face tokenizer.json [default: byte by byte]"),
    Flag::new(DATA, "order", Kind::Choice(&["sequential", "shuffled"]))
        .value("ORDER")
        .default("sequential")
        .help("Order of the samples: sequential, or shuffled anew every epoch"),
    Flag::new(DATA, "batch", POSITIVE)
        .value("B")
        .default("16")
        .help("Sequences of a step, over all ranks together"),
    Flag::new(DATA, "seq", POSITIVE).value("T").default("128").help("Tokens of a sequence"),
    Flag::new(DATA, "steps", POSITIVE)
        .value("N")
        .default("600")
        .help("Optimiser steps in all, those before --resume included"),
    Flag::new(DATA, "seed", SEED)
        .value("K")
        .default("0")
        .help("Seed of initialisation, sample order, dropout and sampling"),
    Flag::new(OPTIMIZER, "optimizer", Kind::Choice(&["adamw", "sgd", "muon"]))
        .value("NAME")
        .default("adamw")
        .help("adamw, sgd (with momentum), or muon (for matrices of layers; adamw for the rest)"),
    Flag::new(OPTIMIZER, "lr", Kind::Number).value("X").default("1e-3").help("Peak learning rate"),
    Flag::new(OPTIMIZER, "lr-schedule", Kind::Choice(&["constant", "cosine", "wsd"]))
        .value("NAME")
        .default("constant")
        .help("After warm-up: constant, cosine decay, or wsd (stable, then linear decay over the last fifth)"),
    Flag::new(OPTIMIZER, "warmup", COUNT)
        .value("N")
        .default("0")
        .help("Steps over which the learning rate rises linearly"),
    Flag::new(OPTIMIZER, "min-lr", Kind::Number)
        .value("X")
        .default("0")
        .help("Learning rate at the end of a decay"),
    Flag::new(OPTIMIZER, "betas", Kind::Pair)
        .value("A,B")
        .default("0.9,0.95")
        .help("Decays of the two moments, in [0, 1) [adamw, muon]"),
    Flag::new(OPTIMIZER, "eps", Kind::Number)
        .value("X")
        .default("1e-8")
        .help("Added to the root of the second moment [adamw, muon]"),
    Flag::new(OPTIMIZER, "momentum", Kind::Fraction)
        .value("X")
        .help("Decay of the sum of gradients, in [0, 1) [sgd, muon; default: 0.9 for sgd, 0.95 for muon]"),
    Flag::new(OPTIMIZER, "weight-decay", Kind::Number)
        .value("X")
        .default("0.1")
        .help("Decoupled decay of parameters with two or more dims"),
    Flag::new(OPTIMIZER, "clip", Kind::Number)
        .value("X")
        .default("1.0")
        .help("Largest gradient norm; 0 leaves gradients as they are"),
    Flag::new(OPTIMIZER, "ema", Kind::Fraction)
        .value("DECAY")
        .help("Keep a moving average of the parameters with this decay in [0, 1); --export-hf and the continuation at the end are of the average"),
    Flag::new(SAVING, "save", Kind::Path)
        .value("DIR")
        .help("Keep checkpoints of the whole training state in DIR"),
    Flag::new(SAVING, "save-every", POSITIVE)
        .value("N")
        .help("Also save after every N steps, not only after the last [needs --save]"),
    Flag::new(SAVING, "keep", POSITIVE)
        .value("K")
        .help("Remove all but the newest K checkpoints [needs --save]"),
    Flag::new(SAVING, "resume", Kind::Path)
        .value("DIR/latest")
        .help("Continue from a checkpoint: DIR/latest, DIR/step-N or DIR"),
    Flag::new(SAVING, "export-hf", Kind::Path)
        .value("DIR")
        .help("At the end, write the model as a Hugging Face folder"),
    Flag::new(REPORTS, "metrics", Kind::Path)
        .value("FILE.jsonl")
        .help("Write one JSON object per step"),
    Flag::new(REPORTS, "trace", Kind::Path)
        .value("FILE.json")
        .help("Write a timeline of compute and communication of every rank, for Perfetto"),
    Flag::new(REPORTS, "sample-tokens", COUNT)
        .value("N")
        .default("200")
        .help("Tokens of the continuation sampled at the end"),
    later("schedule", "pipeline schedules"),
    later("virtual-stages", "pipeline schedules with several stages per rank"),
    later("cp", "context-parallel attention"),
    later("explain", "the list of generated collectives"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found_and_far_ones_are_not() {
        let names = || FLAGS.iter().map(|flag| flag.name);
        assert_eq!(Flag::nearest("save-evry", names()), Some("save-every"));
        assert_eq!(Flag::nearest("bacth", names()), Some("batch"));
        assert_eq!(Flag::nearest("learning-rate", names()), None);
    }

    #[test]
    fn names_are_unique_and_every_flag_is_explained() {
        for (i, flag) in FLAGS.iter().enumerate() {
            assert!(!flag.help.is_empty(), "--{}", flag.name);
            assert!(FLAGS[..i].iter().all(|other| other.name != flag.name), "--{}", flag.name);
        }
    }
}
