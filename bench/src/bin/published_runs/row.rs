//! A published run, as a row of a table describes it.

use crate::csv::Record;

/// Columns that a table must have.
pub const COLUMNS: &[&str] = &[
    "id",
    "source_key",
    "layers",
    "hidden",
    "heads",
    "vocab",
    "seq_len",
    "gpu",
    "dtype",
    "global_batch_seqs",
    "micro_batch",
    "TP",
    "PP",
    "DP",
];

/// A published run.
pub struct Run {
    /// Name of its source, which selects the profile of its software.
    pub source: String,
    pub model: Model,
    pub mesh: Mesh,
    pub machine: Machine,
    /// Tokens of a sequence.
    pub seq: usize,
    /// Sequences of a micro-batch on a rank.
    pub micro_batch: usize,
    /// Micro-batches of a step on a rank.
    pub micro_batches: usize,
    pub recompute: Recompute,
    /// True if matmuls of layers are in fp8.
    pub is_fp8: bool,
}

/// The sizes of a model.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Model {
    pub layers: usize,
    pub hidden: usize,
    pub ffn: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub vocab: usize,
    /// True if the feed-forward has a gate.
    pub is_gated: bool,
}

impl Model {
    /// Returns true if all heads together are as wide as the residual stream.
    pub fn has_usual_heads(&self) -> bool {
        self.head_dim * self.heads == self.hidden
    }
}

/// Degrees of parallelism.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mesh {
    pub tp: usize,
    pub cp: usize,
    pub pp: usize,
    /// Stages of each position along `pp`.
    pub virtual_stages: usize,
    pub dp: usize,
    pub zero: usize,
    /// Ranks that shard the state.
    pub shard_group: usize,
    /// True if the residual stream is split over `tp`.
    pub is_sequence_parallel: bool,
    /// True if each rank along `tp` sends its part of a message between stages, and not the whole.
    pub splits_messages: bool,
}

/// GPUs and networks.
pub struct Machine {
    pub gpu: String,
    pub gpus_per_node: Option<usize>,
    /// Bytes per second of a GPU in its node, in each direction.
    pub node_bandwidth: Option<f64>,
    /// Bytes per second of a GPU between nodes, in each direction.
    pub network_bandwidth: Option<f64>,
}

/// Activations that are recomputed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Recompute {
    Nothing,
    /// Attention without its projections.
    CoreAttention,
    /// Attention with its projections.
    Attention,
    Layers,
}

impl Run {
    /// Reads a row. The inner error is the reason why the run cannot be described.
    ///
    /// # Errors
    /// Fields that are no numbers, with file, line and column.
    pub fn read(record: Record<'_>) -> Result<Result<Run, String>, String> {
        let numbers = Numbers::read(record)?;
        Ok(numbers.describe(record))
    }
}

/// The numbers of a row; `None` where a field is empty.
struct Numbers {
    sizes: [Option<usize>; 7],
    degrees: [Option<usize>; 6],
    zero: Option<usize>,
    shard_group: Option<usize>,
    experts: Option<usize>,
    steps: [Option<usize>; 3],
    gpus: [Option<usize>; 2],
    bandwidths: [Option<f64>; 2],
}

impl Numbers {
    fn read(record: Record<'_>) -> Result<Numbers, String> {
        let count = |column| record.count(column);
        let bandwidth = |column| -> Result<Option<f64>, String> {
            Ok(record.number(column)?.filter(|value| *value > 0.0).map(|value| value * 1e9))
        };
        Ok(Numbers {
            sizes: [
                count("layers")?,
                count("hidden")?,
                count("ffn_hidden")?,
                count("heads")?,
                count("kv_heads")?,
                count("head_dim")?,
                count("vocab")?,
            ],
            degrees: [
                count("TP")?,
                count("CP")?,
                count("PP")?,
                count("VPP")?,
                count("DP")?,
                count("EP")?,
            ],
            zero: count("zero_stage")?,
            shard_group: count("fsdp_shard_group")?,
            experts: count("experts")?,
            steps: [count("seq_len")?, count("global_batch_seqs")?, count("micro_batch")?],
            gpus: [count("gpus_per_node")?, count("gpu_count")?],
            bandwidths: [
                bandwidth("intra_bw_GBps_per_dir")?,
                bandwidth("inter_bw_GBps_per_gpu_per_dir")?,
            ],
        })
    }

    fn describe(&self, record: Record<'_>) -> Result<Run, String> {
        if self.experts.is_some_and(|experts| experts > 1) {
            return Err("mixtures of experts are not predicted".into());
        }
        let required = |value: Option<usize>, name: &str| {
            value.filter(|value| *value > 0).ok_or(format!("{name} is not stated"))
        };
        let [layers, hidden, ffn, heads, kv_heads, head_dim, vocab] = self.sizes;
        let [layers, hidden] = [required(layers, "layers")?, required(hidden, "hidden")?];
        let heads = required(heads, "heads")?;
        let is_gated = record.text("gated_mlp") == "1";
        let model = Model {
            layers,
            hidden,
            ffn: ffn.unwrap_or(if is_gated { 8 * hidden / 3 } else { 4 * hidden }),
            heads,
            kv_heads: kv_heads.unwrap_or(heads),
            head_dim: head_dim.unwrap_or(hidden / heads),
            vocab: required(vocab, "vocab")?,
            is_gated,
        };
        let [seq, batch, micro_batch] = self.steps;
        let seq = required(seq, "seq_len")?;
        let [batch, micro_batch] =
            [required(batch, "global_batch_seqs")?, required(micro_batch, "micro_batch")?];
        let mesh = self.mesh(record, layers)?;
        let ranks = mesh.tp * mesh.cp * mesh.pp * mesh.dp;
        if let Some(gpus) = self.gpus[1].filter(|gpus| *gpus != ranks) {
            return Err(format!("the degrees make {ranks} ranks on {gpus} GPUs"));
        }
        let samples = mesh.dp * micro_batch;
        if !batch.is_multiple_of(samples) {
            return Err(format!(
                "{} micro-batches of {micro_batch} do not divide the batch of {batch}",
                mesh.dp
            ));
        }
        let recompute = match record.text("recompute") {
            text if text.starts_with("full") => Recompute::Layers,
            text if text.starts_with("selective") => Recompute::CoreAttention,
            // A policy of a compiler that is not stated is between both.
            text if text.contains("policy") => Recompute::Attention,
            _ => Recompute::Nothing,
        };
        Ok(Run {
            source: record.text("source_key").into(),
            model,
            mesh,
            machine: Machine {
                gpu: record.text("gpu").into(),
                gpus_per_node: self.gpus[0],
                node_bandwidth: self.bandwidths[0],
                network_bandwidth: self.bandwidths[1],
            },
            seq,
            micro_batch,
            micro_batches: batch / samples,
            recompute,
            is_fp8: record.text("dtype").contains("fp8"),
        })
    }

    fn mesh(&self, record: Record<'_>, layers: usize) -> Result<Mesh, String> {
        let [tp, cp, pp, virtual_stages, dp, ep] =
            self.degrees.map(|degree| degree.unwrap_or(1).max(1));
        if ep > 1 {
            return Err("mixtures of experts are not predicted".into());
        }
        // An interleaved schedule whose stages are not stated has stages of one layer.
        let is_interleaved = record.text("schedule").contains("interleaved") && pp > 1;
        let virtual_stages = match virtual_stages {
            1 if is_interleaved => (layers / pp).max(1),
            stages => stages,
        };
        let mode = record.text("dp_mode");
        let zero = self.zero.unwrap_or(if mode.contains("FSDP") { 3 } else { 0 });
        // One rank has nothing to share.
        let zero = if dp * cp > 1 { zero } else { 0 };
        // Pipelines reduce gradients once in a step.
        let zero = if pp > 1 { zero.min(1) } else { zero };
        let shard_group = match self.shard_group {
            Some(group) if group > 0 && dp.is_multiple_of(group) => group,
            _ => dp,
        };
        Ok(Mesh {
            tp,
            cp,
            pp,
            virtual_stages: if pp > 1 { virtual_stages } else { 1 },
            dp,
            zero: zero.min(3),
            shard_group: if zero == 0 { 1 } else { shard_group },
            is_sequence_parallel: record.text("SP") != "0",
            splits_messages: record.text("SP") != "0"
                || record.text("notes").contains("scatter/gather"),
        })
    }
}
