//! The table of all flags, from which the command line, the keys of `--config` files, `--help` and the checks are made.

/// The type of a flag's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FlagKind {
    /// A whole number.
    Count {
        /// Smallest valid value.
        min: u64,
        /// Largest valid value. It also keeps products of two sizes from overflowing.
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
    /// Text, parsed by the resolution of its flag.
    Text,
    /// One of some words.
    Choice(&'static [&'static str]),
    /// Present or absent.
    Switch,
}

/// One flag of the command line, which is also a key of `--config` files.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    /// Long name without dashes.
    pub name: &'static str,
    /// Placeholder of the value in `--help`.
    pub value: &'static str,
    /// Type of the value.
    pub kind: FlagKind,
    /// Value of an absent flag; empty if absence has a meaning of its own.
    pub default: &'static str,
    /// Value of a flag that is given without one; empty if it needs one.
    pub alone: &'static str,
    /// Heading in `--help`.
    pub group: &'static str,
    /// One line for `--help`.
    pub help: &'static str,
}

impl Flag {
    /// Returns the flag called `name`, written with dashes.
    pub fn find(name: &str) -> Option<&'static Flag> {
        FLAGS.iter().find(|flag| flag.name == name)
    }

    /// Returns the candidate closest to a misspelled `word`, if one is close.
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

    const fn new(group: &'static str, name: &'static str, kind: FlagKind) -> Flag {
        Flag { name, value: "", kind, default: "", alone: "", group, help: "" }
    }

    const fn value(mut self, value: &'static str) -> Flag {
        self.value = value;
        self
    }

    const fn default(mut self, default: &'static str) -> Flag {
        self.default = default;
        self
    }

    const fn alone(mut self, alone: &'static str) -> Flag {
        self.alone = alone;
        self
    }

    const fn help(mut self, help: &'static str) -> Flag {
        self.help = help;
        self
    }
}

const MACHINE: &str = "Devices and ranks";
const MODEL: &str = "Model";
const DATA: &str = "Data";
const SHARDING: &str = "Sharding, memory and precision";
const OPTIMIZER: &str = "Optimizer";
/// Heading of checkpoints and exports.
pub const SAVING: &str = "Saving";
/// Heading of what a run prints and writes about itself.
pub const REPORTS: &str = "Reports";

/// A whole number that may be zero.
const COUNT: FlagKind = FlagKind::Count { min: 0, max: u32::MAX as u64 };
/// A whole number of at least one.
const POSITIVE: FlagKind = FlagKind::Count { min: 1, max: u32::MAX as u64 };
/// Any whole number of 64 bits.
const SEED: FlagKind = FlagKind::Count { min: 0, max: u64::MAX };

/// Every flag, in the order of `--help`.
pub const FLAGS: &[Flag] = &[
    Flag::new(MACHINE, "config", FlagKind::Path)
        .value("FILE.toml")
        .help("Read settings from a file with the same keys; flags override it"),
    Flag::new(MACHINE, "mesh", FlagKind::Text).value("AXIS=N,..").help(
        "Ranks along each axis: dp (replicas), fsdp (sharded replicas), tp (tensor-parallel), cp (context-parallel), \
         pp (pipeline), such as dp=2,tp=2; an axis left out has degree 1 [default: dp=2,tp=2 without --data and \
         --init-from, else one rank]",
    ),
    Flag::new(MACHINE, "mesh-order", FlagKind::Text).value("AXIS,..").help(
        "Order of the axes in rank numbers, outermost first, such as dp,pp,tp: ranks along the last one are neighbors \
         [default: pp,dp,fsdp,ep,cp,tp]",
    ),
    Flag::new(MACHINE, "device", FlagKind::Choice(&["cpu", "cuda"]))
        .value("DEVICE")
        .default("cpu")
        .help("Device of the ranks: cpu, or cuda in a program built with --features cuda"),
    Flag::new(MACHINE, "threads", POSITIVE)
        .value("N")
        .help("Threads of each rank [default: cores divided by ranks, at least 1]"),
    Flag::new(MACHINE, "nondeterministic", FlagKind::Switch).help(
        "Allow attention and matmul algorithms that are faster but nondeterministic: results differ in the last bits \
         from run to run [needs --device cuda]",
    ),
    Flag::new(MACHINE, "no-graphs", FlagKind::Switch).help(
        "Launch the kernels of every step eagerly, without CUDA graphs [needs --device cuda]",
    ),
    Flag::new(SHARDING, "zero", FlagKind::Count { min: 0, max: 3 }).value("STAGE").help(
        "ZeRO stage, sharded over the fsdp, ep and cp axes: 0 nothing, 1 optimizer state and master weights, 2 also \
         gradients, 3 also parameters [default: 0 without an fsdp axis, else 3, or 1 with a pp axis]",
    ),
    Flag::new(SHARDING, "micro-batches", POSITIVE)
        .value("N")
        .default("1")
        .help("Gradient accumulation: micro-batches per step on each rank"),
    Flag::new(SHARDING, "schedule", FlagKind::Text).value("NAME").help(
        "Pipeline schedule: gpipe, 1f1b, interleaved, zb-h1, zb-v, dualpipev, or FILE.csv in PyTorch's notation; \
         `meshwright schedule` draws them [default: 1f1b; needs a pp axis]",
    ),
    Flag::new(SHARDING, "virtual-stages", FlagKind::Count { min: 1, max: 1 << 12 }).value("N").help(
        "Pipeline stages of each rank [default: 2 for interleaved, zb-v and dualpipev, else 1; needs a pp axis]",
    ),
    Flag::new(SHARDING, "stages", FlagKind::Text).value("CUT").help(
        "Layers of each pipeline stage: auto (balances FLOPs), even (balances layers), a list such as 7,8,8,7, or \
         FILE.json with measured milliseconds per layer [default: auto; needs a pp axis]",
    ),
    Flag::new(SHARDING, "recompute", FlagKind::Text).value("POLICY").help(
        "Activation checkpointing of layers: none, full (each layer is recomputed from its input), every=N (segments \
         of N layers), sqrt (segments of about the square root of the number of layers), attn (attention only) \
         [default: as the model declares]",
    ),
    Flag::new(SHARDING, "cp", FlagKind::Text).value("STYLE").help(
        "Style of the model's context-parallel attention: ring, ulysses, gather, hybrid, or hybrid=N (N ranks exchange \
         heads) [default: as the model declares; needs a cp axis]",
    ),
    Flag::new(SHARDING, "memory-limit", FlagKind::Bytes)
        .value("BYTES")
        .help("Memory limit of each rank, such as 2GB or 512MiB; a run that needs more is refused"),
    Flag::new(SHARDING, "dtype", FlagKind::Choice(&["f32", "bf16"])).value("DTYPE").help(
        "Compute dtype, also of activations and their gradients in collectives, which are summed in f32; master \
         weights, optimizer state and accumulated gradients are always f32 [default: f32 on cpu, bf16 on cuda]",
    ),
    Flag::new(SHARDING, "reduce-dtype", FlagKind::Choice(&["f32", "bf16"]))
        .value("DTYPE")
        .default("f32")
        .help("Dtype of the gradient reduction over the data ranks [bf16 needs --dtype bf16]"),
    Flag::new(MODEL, "init-from", FlagKind::Path)
        .value("DIR")
        .help("Load sizes and weights from a Hugging Face folder of the model's family"),
    Flag::new(MODEL, "accept-keys", FlagKind::Text).value("KEY,..").help(
        "Leave out these keys of the config.json of --init-from, which the program does not know",
    ),
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
        .help("Key and value heads, each shared by heads / kv-heads query heads [default: --heads]"),
    Flag::new(MODEL, "ffn", POSITIVE)
        .value("N")
        .help("Width of the feed-forward [default: 8/3 of --hidden rounded up to a multiple of 64 for a Llama, 4 times \
               --hidden for a GPT-2]"),
    Flag::new(MODEL, "vocab", POSITIVE).value("N").default("256").help("Vocabulary size"),
    Flag::new(MODEL, "tied", FlagKind::Switch)
        .help("Use one weight for the token embedding and the output head"),
    Flag::new(MODEL, "balance", FlagKind::Text).value("LOSS").help(
        "Load-balancing loss of each router of experts: none, or batch=X with weight X [default: router_aux_loss_coef \
         of the config.json of --init-from, 0.01 for a new model]",
    ),
    Flag::new(MODEL, "z-loss", FlagKind::Number).value("X").help(
        "Weight of the z-loss of each router of experts, which keeps its logits small [default: router_z_loss_coef of \
         the config.json of --init-from, else 0]",
    ),
    Flag::new(DATA, "data", FlagKind::Path).value("FILE").help(
        "Tokens: .bin holds little-endian u16 or u32 ids, any other file is text for --tokenizer \
         [default: the project's own book]",
    ),
    Flag::new(DATA, "tokenizer", FlagKind::Path)
        .value("FILE.json")
        .help("Tokenize text with a Hugging Face tokenizer.json [default: byte by byte]"),
    Flag::new(DATA, "order", FlagKind::Choice(&["sequential", "shuffled"]))
        .value("ORDER")
        .default("sequential")
        .help("Order of the samples: sequential, or reshuffled every epoch"),
    Flag::new(DATA, "documents", COUNT).value("ID").help(
        "Separate documents in attention and positions, each ending after the token ID; the model must use documents \
         [default: each row is one document]",
    ),
    Flag::new(DATA, "pack", FlagKind::Switch).help(
        "Pack each row with whole documents, best fit first; only documents longer than --seq are cut [needs \
         --documents]",
    ),
    Flag::new(DATA, "mask-borders", FlagKind::Switch).help(
        "Do not count the prediction of the next document's first token in the loss [needs --documents]",
    ),
    Flag::new(DATA, "batch", POSITIVE)
        .value("B")
        .default("16")
        .help("Global batch: sequences per step over all ranks"),
    Flag::new(DATA, "seq", POSITIVE).value("T").default("128").help("Sequence length in tokens"),
    Flag::new(DATA, "steps", POSITIVE)
        .value("N")
        .default("600")
        .help("Optimizer steps in total, including those before --resume"),
    Flag::new(DATA, "seed", SEED)
        .value("K")
        .default("0")
        .help("Seed of initialization, sample order, dropout and sampling"),
    Flag::new(OPTIMIZER, "optimizer", FlagKind::Choice(&["adamw", "sgd", "muon"]))
        .value("NAME")
        .default("adamw")
        .help("adamw, sgd (with momentum), or muon (for matrices of layers; adamw for the rest)"),
    Flag::new(OPTIMIZER, "lr", FlagKind::Number).value("X").default("1e-3").help("Peak learning rate"),
    Flag::new(OPTIMIZER, "lr-schedule", FlagKind::Choice(&["constant", "cosine", "wsd"]))
        .value("NAME")
        .default("constant")
        .help("Schedule after the warm-up: constant, cosine decay, or wsd (stable, then linear decay over the last \
               fifth)"),
    Flag::new(OPTIMIZER, "warmup", COUNT)
        .value("N")
        .default("0")
        .help("Warm-up steps, over which the learning rate rises linearly"),
    Flag::new(OPTIMIZER, "min-lr", FlagKind::Number)
        .value("X")
        .default("0")
        .help("Learning rate at the end of a decay"),
    Flag::new(OPTIMIZER, "betas", FlagKind::Pair)
        .value("A,B")
        .default("0.9,0.95")
        .help("Decay of the two moments, in [0, 1) [adamw, muon]"),
    Flag::new(OPTIMIZER, "eps", FlagKind::Number)
        .value("X")
        .default("1e-8")
        .help("Added to the square root of the second moment [adamw, muon]"),
    Flag::new(OPTIMIZER, "momentum", FlagKind::Fraction)
        .value("X")
        .help("Momentum, in [0, 1) [sgd, muon; default: 0.9 for sgd, 0.95 for muon]"),
    Flag::new(OPTIMIZER, "weight-decay", FlagKind::Number)
        .value("X")
        .default("0.1")
        .help("Decoupled weight decay of parameters with two or more dims"),
    Flag::new(OPTIMIZER, "clip", FlagKind::Number)
        .value("X")
        .default("1.0")
        .help("Gradient clipping by global norm; 0 turns it off"),
    Flag::new(OPTIMIZER, "ema", FlagKind::Fraction)
        .value("DECAY")
        .help("Exponential moving average of the parameters with this decay in [0, 1), used for --export-hf and the \
               continuation at the end"),
    Flag::new(SAVING, "save", FlagKind::Path)
        .value("DIR")
        .help("Save checkpoints of the whole training state in DIR"),
    Flag::new(SAVING, "save-every", POSITIVE)
        .value("N")
        .help("Also save after every N steps, not only after the last [needs --save]"),
    Flag::new(SAVING, "save-async", FlagKind::Switch).help(
        "Write the checkpoints of --save-every while training goes on, from a copy of the state in host memory",
    ),
    Flag::new(SAVING, "keep", POSITIVE)
        .value("K")
        .help("Remove all but the newest K checkpoints [needs --save]"),
    Flag::new(SAVING, "max-failed-saves", POSITIVE).value("N").help(
        "End the run when N saves in a row have failed, such as on a full disk (3 without this flag); fewer are a \
         warning, except for the last save",
    ),
    Flag::new(SAVING, "resume", FlagKind::Path)
        .value("DIR/latest")
        .help("Continue from a checkpoint: DIR/latest, DIR/step-N or DIR; auto continues from the newest intact one of \
               --save, or begins if there is none"),
    Flag::new(SAVING, "stop-after", FlagKind::Text).value("TIME").help(
        "Stop after this time, such as 3h50m, 90s or 2d, as by SIGTERM: complete the step, save, and exit with code 75 \
         [needs --save]",
    ),
    Flag::new(SAVING, "export-hf", FlagKind::Path)
        .value("DIR")
        .help("At the end, write the model as a Hugging Face folder"),
    Flag::new(REPORTS, "metrics", FlagKind::Path)
        .value("FILE.jsonl")
        .help("Write one JSON object per step"),
    Flag::new(REPORTS, "trace", FlagKind::Path)
        .value("FILE.json")
        .help("Write a trace of compute and communication of every rank, for Perfetto"),
    Flag::new(REPORTS, "stage-times", FlagKind::Path).value("FILE.json").help(
        "Measure the milliseconds of each layer, and write them for --stages; steps run without CUDA graphs",
    ),
    Flag::new(REPORTS, "sample-tokens", COUNT)
        .value("N")
        .default("200")
        .help("Tokens of the continuation sampled at the end"),
    Flag::new(REPORTS, "explain", FlagKind::Switch).help(
        "Print the collectives of a training step, with their bytes and the computations that they overlap with, and \
         exit",
    ),
    Flag::new(REPORTS, "preflight", POSITIVE).value("STEPS").alone("3").help(
        "Compare the losses, gradients and updates of the first steps on the mesh, as threads on the CPU, with one \
         rank, and exit [STEPS: 3]",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_close_words_are_suggested() {
        let names = || FLAGS.iter().map(|flag| flag.name);
        assert_eq!(Flag::nearest("save-evry", names()), Some("save-every"));
        assert_eq!(Flag::nearest("bacth", names()), Some("batch"));
        assert_eq!(Flag::nearest("learning-rate", names()), None);
    }

    #[test]
    fn flags_are_unique_and_have_help() {
        for (i, flag) in FLAGS.iter().enumerate() {
            assert!(!flag.help.is_empty(), "--{}", flag.name);
            assert!(FLAGS[..i].iter().all(|other| other.name != flag.name), "--{}", flag.name);
        }
    }
}
