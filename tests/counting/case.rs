//! Test cases: a Llama with sizes that do not divide evenly, its mesh, and its run.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use meshwright::train::{LanguageModel, MemoryUse, Summary};
use meshwright_tests::run::train_with_words;
use serde_json::Value;

pub const HEADS: usize = 4;
pub const VOCAB: usize = 61;
pub const STEPS: usize = 2;

/// Bytes of an `f32`.
pub const F32: usize = 4;
pub const F64: usize = 8;
/// Alignment of parameters and shards in a unit's flat buffer, in elements.
const LINE: usize = 16;

/// A model, its mesh and the flags of its run.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub dp: usize,
    pub fsdp: usize,
    pub cp: usize,
    pub tp: usize,
    pub pp: usize,
    /// The value of `--schedule`; empty without `pp`.
    pub schedule: &'static str,
    /// The value of `--cp`; empty for the model's attribute.
    pub style: &'static str,
    pub zero: usize,
    pub bf16: bool,
    pub reduce_bf16: bool,
    /// True if gradients and optimizer state are bf16.
    pub rounded: bool,
    pub micro_batches: usize,
    /// The value of `--recompute`; empty for the model's attributes.
    pub recompute: &'static str,
    pub layers: usize,
    pub tied: bool,
    /// True if the residual stream is sequence-parallel.
    pub splits_stream: bool,
    pub kv_heads: usize,
    pub hidden: usize,
    pub ffn: usize,
    pub batch: usize,
    pub seq: usize,
    /// The value of `--sample-tokens`.
    pub sample_tokens: usize,
}

/// One rank, with sizes that are not multiples of the alignment.
pub const ONE: Case = Case {
    dp: 1,
    fsdp: 1,
    cp: 1,
    tp: 1,
    pp: 1,
    schedule: "",
    style: "",
    zero: 0,
    bf16: false,
    reduce_bf16: false,
    rounded: false,
    micro_batches: 1,
    recompute: "none",
    layers: 2,
    tied: false,
    splits_stream: true,
    kv_heads: HEADS,
    hidden: 24,
    ffn: 40,
    batch: 8,
    seq: 13,
    sample_tokens: 0,
};

/// The results of a run.
pub struct Outcome {
    /// Entries of `--metrics`, by step.
    pub steps: Vec<Value>,
    pub summary: Summary,
}

impl Case {
    /// Trains two steps with the real trainer, and reads its metrics.
    #[track_caller]
    pub fn run<M: LanguageModel>(self) -> Outcome {
        let dir = tempfile::tempdir().unwrap();
        let metrics = dir.path().join("metrics.jsonl");
        let summary = self.train::<M>(dir.path(), Some(&metrics));
        let text = fs::read_to_string(&metrics).unwrap();
        let steps: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(steps.len(), STEPS);
        Outcome { steps, summary }
    }

    /// Returns the memory of a run from its summary. Metrics are off, as they would measure the machine first.
    #[track_caller]
    pub fn memory<M: LanguageModel>(self) -> Vec<MemoryUse> {
        self.train::<M>(tempfile::tempdir().unwrap().path(), None).report.memory
    }

    #[track_caller]
    fn train<M: LanguageModel>(self, dir: &Path, metrics: Option<&Path>) -> Summary {
        let Case { dp, fsdp, cp, tp, pp, zero, layers, hidden, ffn, batch, seq, .. } = self;
        let data = dir.join("tokens.bin");
        let tokens = 0..STEPS * batch * seq + 1;
        let bytes: Vec<u8> =
            tokens.flat_map(|index| ((index * index % VOCAB) as u16).to_le_bytes()).collect();
        fs::write(&data, bytes).unwrap();
        let words = format!(
            "--mesh dp={dp},fsdp={fsdp},cp={cp},tp={tp},pp={pp} --zero {zero} --steps {STEPS} --batch {batch} --seq \
             {seq} --hidden {hidden} --ffn {ffn} --layers {layers} --heads {HEADS} --vocab {VOCAB} --threads 1 \
             --sample-tokens {} --micro-batches {} {} {} {} {} --dtype {} --reduce-dtype {} {}",
            self.sample_tokens,
            self.micro_batches,
            flag("schedule", self.schedule),
            flag("recompute", self.recompute),
            flag("cp", self.style),
            match self.kv_heads {
                HEADS => String::new(),
                kv_heads => format!("--kv-heads {kv_heads}"),
            },
            if self.bf16 { "bf16" } else { "f32" },
            if self.reduce_bf16 { "bf16" } else { "f32" },
            if self.rounded { "--grad-dtype bf16 --state-dtype bf16" } else { "" },
        );
        let words = words.split_whitespace().chain(self.tied.then_some("--tied")).map(OsStr::new);
        let data = ["--data".as_ref(), data.as_os_str()];
        let metrics = metrics.iter().flat_map(|path| ["--metrics".as_ref(), path.as_os_str()]);
        train_with_words::<M>(words.chain(data).chain(metrics)).unwrap()
    }

    /// Bytes per element in the compute dtype.
    pub fn element(self) -> usize {
        if self.bf16 { 2 } else { F32 }
    }

    /// Bytes per element in the dtype of gradient reduction.
    pub fn reduced(self) -> usize {
        if self.reduce_bf16 { 2 } else { F32 }
    }

    /// Elements of each unit's flat buffer on tensor-parallel rank `rank`, with aligned parameters: the embedding, the
    /// layers, the norm, and the head unless its weight is tied.
    pub fn units(self, rank: usize) -> Vec<usize> {
        let Case { hidden, ffn, tp, .. } = self;
        let lines = |len: usize| len.next_multiple_of(LINE);
        let rows = (rank + 1) * VOCAB / tp - rank * VOCAB / tp;
        let attention = [hidden * hidden, hidden * self.kv_hidden()];
        let matrices = attention.repeat(2).into_iter().chain([hidden * ffn; 3]);
        let layer = matrices.map(|len| lines(len / tp)).sum::<usize>() + 2 * lines(hidden);
        let vocab = lines(rows * hidden);
        let mut units = vec![vocab];
        units.extend(vec![layer; self.layers]);
        units.push(lines(hidden));
        if !self.tied {
            units.push(vocab);
        }
        units
    }

    /// Elements of rank `rank`'s shard of a unit: aligned blocks, distributed evenly up to one block.
    pub fn shard(self, len: usize, rank: usize) -> usize {
        let (lines, shards) = (len / LINE, self.shards());
        ((rank + 1) * lines / shards - rank * lines / shards) * LINE
    }

    /// Ranks that a unit is sharded over.
    pub fn shards(self) -> usize {
        self.fsdp * self.cp
    }

    /// Sequences of a micro-batch on one rank.
    pub fn rows(self) -> usize {
        self.batch / (self.dp * self.fsdp * self.micro_batches)
    }

    /// Tokens of a micro-batch on one rank.
    pub fn tokens(self) -> usize {
        self.rows() * self.seq / self.cp
    }

    /// Elements of the keys of one token, over all tensor-parallel ranks.
    pub fn kv_hidden(self) -> usize {
        self.hidden / HEADS * self.kv_heads
    }
}

/// Returns a flag with its value; nothing if that is empty.
fn flag(name: &str, value: &str) -> String {
    if value.is_empty() { String::new() } else { format!("--{name} {value}") }
}
