//! Lower bound of the activation memory of a transformer on each rank.
//!
//! Per layer, backward needs inputs and outputs of both norms (on each rank its part of the sequence, which is gathered
//! again), queries, keys and values, the output of attention, gate (if the feed-forward is gated), up and the input of
//! down, and in f32 the statistics of the norms and the log-sum-exp of attention. Activation checkpointing keeps less of
//! each layer, and adds all of the layers of the segment that is recomputed. The head keeps its input and the gradient of
//! that, and the logits of one chunk of tokens. With several chunks, and on a CPU, it also keeps the gradient of its weight.

use crate::layout::{AxisId, AxisSet};
use crate::nn::{ContextStyle, Grouping, LogitChunks, RecomputeOverride};
use crate::train::Outline;
use crate::train::config::{Config, Device};

use super::context::{AttentionElements, ContextBytes, F32};
use super::logits::LogitBytes;

/// Bytes of each rank's activations and workspace at their peaks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ActivationBytes {
    /// Activations when backward begins.
    pub at_head: f64,
    /// Activations while backward is in the last layers.
    pub in_layers: f64,
    /// Activations and workspace during the backward of the last context-parallel attention, zero without one.
    pub in_attention: f64,
    /// Of those, the workspace.
    pub attention_workspace: f64,
    /// Workspace of the head.
    pub head: HeadBytes,
}

/// Sizes that the head's workspace follows from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeadBytes {
    device: Device,
    tokens: f64,
    vocab: f64,
    hidden: f64,
    /// Bytes of a logit.
    element: f64,
}

/// Layer activations that are kept for backward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptActivations {
    /// As `--recompute` sets.
    As(RecomputeOverride),
    /// As attributes of the model declare, which are unknown here: at least those of one layer.
    Unknown,
}

/// The microbatch passes of one rank that are alive at the peak of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LivePasses {
    /// Layers of each pass: those of the model, or of the rank's smallest pipeline stage.
    pub layers: usize,
    /// Passes whose activations are kept at the same time: 1 without a pipeline.
    pub count: usize,
    /// True if the rank has the end of the model.
    pub has_head: bool,
}

impl LivePasses {
    /// Returns the passes of a rank without a pipeline, which computes one micro-batch at a time.
    pub fn of_whole_model(outline: &Outline) -> LivePasses {
        LivePasses { layers: outline.layers, count: 1, has_head: true }
    }
}

impl ActivationBytes {
    /// Plans the activations of a rank with these `passes`; `context` is the style of the model's attentions, if they are
    /// context-parallel.
    pub fn of_passes(
        config: &Config,
        outline: &Outline,
        kept: KeptActivations,
        context: Option<ContextStyle>,
        passes: LivePasses,
    ) -> ActivationBytes {
        let LivePasses { layers: layer_count, count, has_head } = passes;
        let part = MicroBatchWork::of(config, outline, context);
        let layers = layer_count as f64;
        let (input, layer) = (part.stream(), part.layer());
        let in_segments = |grouping: Grouping| {
            let run = grouping.layers_per_segment(layer_count).clamp(1, layer_count.max(1));
            in_segments(layer_count, run, input, layer)
        };
        let policy = kept;
        let (kept, computed) = match kept {
            KeptActivations::Unknown => (0.0, layer),
            KeptActivations::As(RecomputeOverride::Off) => (layers * layer, 0.0),
            KeptActivations::As(RecomputeOverride::Attention) => {
                (layers * part.around_attention(), part.with_attention())
            }
            KeptActivations::As(RecomputeOverride::Full) => in_segments(Grouping::Every(1)),
            KeptActivations::As(RecomputeOverride::Every(run)) => {
                in_segments(Grouping::Every(run.get()))
            }
            KeptActivations::As(RecomputeOverride::Sqrt) => in_segments(Grouping::Sqrt),
        };
        let kept = kept * count as f64;
        let in_layers = kept + computed;
        let has_attention = layer_count > 0 && part.context != ContextBytes::default();
        let [in_attention, attention_workspace] = if has_attention {
            let after = part.after_attention(policy);
            [in_layers - after + part.context.in_backward, part.context.workspace]
        } else {
            [0.0, 0.0]
        };
        let at_head = if has_head { kept + part.stream() + part.head() } else { 0.0 };
        ActivationBytes {
            at_head,
            in_layers,
            in_attention,
            attention_workspace,
            head: HeadBytes {
                device: config.device,
                tokens: part.tokens,
                vocab: part.vocab,
                hidden: part.hidden,
                element: part.element,
            },
        }
    }
}

/// Returns the bytes of checkpoints and of recomputation with segments of `run` layers, of which only the inputs are kept.
/// The last segment may be shorter, but is recomputed while all inputs are kept.
fn in_segments(layers: usize, run: usize, input: f64, layer: f64) -> (f64, f64) {
    if layers == 0 {
        return (0.0, 0.0);
    }
    let runs = layers.div_ceil(run);
    let last = (layers - (runs - 1) * run) as f64 * layer - input;
    let full = if runs > 1 { run as f64 * layer - 2.0 * input } else { 0.0 };
    (runs as f64 * input, full.max(last))
}

/// One rank's part of a micro-batch.
struct MicroBatchWork {
    /// Bytes of an element.
    element: f64,
    /// Tokens of the rank's rows.
    tokens: f64,
    /// Tokens whose residual stream the rank holds, of those (sequence parallelism).
    own_tokens: f64,
    hidden: f64,
    /// Elements of the queries and keys of a token.
    scored: f64,
    /// Elements of the values of a token, and of the output of attention.
    weighted: f64,
    heads: f64,
    ffn: f64,
    /// Projections to the feed-forward width: two if gated.
    projections: f64,
    vocab: f64,
    /// Bytes that context parallelism adds.
    context: ContextBytes,
}

impl MicroBatchWork {
    fn of(config: &Config, outline: &Outline, context: Option<ContextStyle>) -> MicroBatchWork {
        let size = |size: usize| size as f64;
        let (tp_ranks, cp_ranks) = (config.mesh.degree(AxisId::Tp), config.mesh.degree(AxisId::Cp));
        let tp = size(tp_ranks);
        let parts = size(config.mesh.degree_of(AxisSet::DATA)) * size(config.micro_batches);
        let sequences = size(config.batch) / parts;
        let seq = size(config.seq) / size(cp_ranks);
        let all_heads = size(outline.heads) + size(outline.kv_heads);
        let element = size(config.dtype.dtype().bytes());
        let tokens = sequences * seq;
        let [heads, kv_heads] = [outline.heads, outline.kv_heads].map(|all| all.div_ceil(tp_ranks));
        let algorithm = context
            .filter(|_| cp_ranks > 1)
            .and_then(|style| style.algorithm(cp_ranks, heads, kv_heads).ok());
        let elements = |heads: usize, dim: usize| tokens * size(heads) * size(dim) / tp;
        let attention = AttentionElements {
            q: elements(outline.heads, outline.head_dim),
            kv: elements(outline.kv_heads, outline.head_dim + outline.value_dim),
            out: elements(outline.heads, outline.value_dim),
            lse: elements(outline.heads, 1),
        };
        let bytes =
            |algorithm| ContextBytes::new(algorithm, cp_ranks, kv_heads, element, attention);
        MicroBatchWork {
            element,
            tokens,
            own_tokens: sequences * (seq / tp).ceil(),
            hidden: size(outline.hidden),
            scored: all_heads * size(outline.head_dim) / tp,
            weighted: all_heads * size(outline.value_dim) / tp,
            heads: size(outline.heads) / tp,
            ffn: size(outline.ffn) / tp,
            projections: if outline.gated { 2.0 } else { 1.0 },
            vocab: (size(outline.vocab) / tp).ceil(),
            context: algorithm.map(bytes).unwrap_or_default(),
        }
    }

    /// Returns the bytes of the residual stream at one layer.
    fn stream(&self) -> f64 {
        self.element * self.own_tokens * self.hidden
    }

    /// Returns the bytes of all activations of a layer that backward needs.
    fn layer(&self) -> f64 {
        let statistics = F32 * (self.tokens * self.heads + 2.0 * self.own_tokens);
        let elements = self.scored + self.weighted + (self.projections + 1.0) * self.ffn;
        4.0 * self.stream() + self.element * self.tokens * elements + statistics + self.context.kept
    }

    /// Returns the bytes that are kept of a layer whose attention is recomputed: its input, the outputs of both norms with
    /// their statistics, and those of all other matmuls.
    fn around_attention(&self) -> f64 {
        let statistics = F32 * 2.0 * self.own_tokens;
        5.0 * self.stream() + self.element * self.tokens * self.projections * self.ffn + statistics
    }

    /// Returns the bytes that are recomputed then: queries, keys, values, the output with its statistics, and elementwise
    /// results, which are the inputs of the second norm and of the last matmul.
    fn with_attention(&self) -> f64 {
        let elements = self.scored + self.weighted + self.ffn;
        let statistics = F32 * self.tokens * self.heads;
        self.stream() + self.element * self.tokens * elements + statistics + self.context.kept
    }

    /// Returns the bytes of a layer that the backward of its attention no longer needs: input and output of the second norm,
    /// the feed-forward, and, if attention alone is recomputed, the outputs of both.
    fn after_attention(&self, kept: KeptActivations) -> f64 {
        let streams = match kept {
            KeptActivations::As(RecomputeOverride::Attention) => 4.0,
            _ => 2.0,
        };
        let feed_forward = self.element * self.tokens * (self.projections + 1.0) * self.ffn;
        streams * self.stream() + feed_forward + F32 * self.own_tokens + self.context.freed
    }

    /// Returns the bytes of the head's gathered input and its gradient.
    fn head(&self) -> f64 {
        2.0 * self.element * self.tokens * self.hidden
    }
}

impl HeadBytes {
    /// Returns the bytes of logits.
    pub fn logits(&self) -> LogitBytes {
        LogitBytes { vocab: self.vocab, element: self.element }
    }

    /// Returns the bytes of the weight's gradient, accumulated over chunks in f32.
    pub fn dweight(&self) -> f64 {
        F32 * self.vocab * self.hidden
    }

    /// Returns the bytes of the logits of a chunk, in the chunks that the head itself uses, and of the weight's gradient
    /// unless a GPU writes it to its final buffer.
    pub fn workspace(&self, logits_limit: Option<usize>) -> f64 {
        let (tokens, vocab) = (self.tokens as usize, self.vocab as usize);
        let chunks = match self.device {
            Device::Cpu => LogitChunks::on_cpu(tokens, vocab),
            Device::Cuda => LogitChunks::on_device(tokens, vocab, logits_limit),
        };
        let is_summed = self.device == Device::Cpu || chunks.count() > 1;
        let dweight = if is_summed { self.dweight() } else { 0.0 };
        dweight + self.element * chunks.longest() as f64 * self.vocab
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::tiny;
    use super::*;

    /// Bytes of the residual stream, and of a layer, for 16 tokens of the tiny model.
    const STREAM: f64 = 16.0 * 4.0 * 4.0;
    const LAYER: f64 = 16.0 * (16.0 + 12.0 + 18.0 + 4.0) * 4.0;
    /// The head's input and its gradient.
    const HEAD: f64 = 2.0 * STREAM;

    fn of(line: &str, layers: usize, kept: KeptActivations) -> ActivationBytes {
        let mesh = if line.contains("--mesh") { "" } else { "--mesh 1" };
        let words = format!("t --batch 2 --seq 8 {mesh} {line}");
        let config = Config::parse(words.split_whitespace()).unwrap();
        let outline = Outline { layers, ..tiny() };
        let passes = LivePasses::of_whole_model(&outline);
        ActivationBytes::of_passes(&config, &outline, kept, None, passes)
    }

    #[track_caller]
    fn assert_kept(recompute: &str, layers: usize, at_head: f64, in_layers: f64) {
        let bytes = of("", layers, KeptActivations::As(recompute.parse().unwrap()));
        assert_eq!(bytes.at_head, at_head + STREAM + HEAD, "{recompute} of {layers}");
        assert_eq!(bytes.in_layers, in_layers, "{recompute} of {layers}");
    }

    #[test]
    fn checkpointing_keeps_inputs_and_one_segment() {
        assert_kept("none", 10, 10.0 * LAYER, 10.0 * LAYER);
        assert_kept("full", 10, 10.0 * STREAM, 9.0 * STREAM + LAYER);
        // Segments of 5 and 5: the second is recomputed while both inputs are kept, the first while its own is.
        assert_kept("every=5", 10, 2.0 * STREAM, STREAM + 5.0 * LAYER);
        // Segments of 4, 4 and 2: the second, with two inputs, takes more than the third.
        assert_kept("every=4", 10, 3.0 * STREAM, STREAM + 4.0 * LAYER);
        assert_kept("sqrt", 10, 3.0 * STREAM, STREAM + 4.0 * LAYER);
        assert_kept("every=20", 10, STREAM, 10.0 * LAYER);
        // Five stream activations, gate and up, two statistics; and the recomputed ones.
        let kept = 10.0 * 16.0 * (20.0 + 12.0 + 2.0) * 4.0;
        let attention = 16.0 * (4.0 + 8.0 + 4.0 + 2.0 + 6.0) * 4.0;
        assert_kept("attn", 10, kept, kept + attention);
        let unknown = of("", 10, KeptActivations::Unknown);
        assert_eq!((unknown.at_head, unknown.in_layers), (STREAM + HEAD, LAYER));
    }

    /// Heads of values twice as wide: 12 elements of values and output per token, instead of 6.
    #[test]
    fn values_of_another_width_count() {
        let config = Config::parse("t --mesh 1 --batch 2 --seq 8".split(' ')).unwrap();
        let of = |value_dim| {
            let outline = Outline { layers: 10, value_dim, ..tiny() };
            let passes = LivePasses::of_whole_model(&outline);
            let kept = KeptActivations::As("none".parse().unwrap());
            ActivationBytes::of_passes(&config, &outline, kept, None, passes).in_layers
        };
        assert_eq!(of(4), of(2) + 10.0 * 16.0 * 6.0 * 4.0);
    }

    #[test]
    fn live_passes_of_a_stage_multiply() {
        let config = Config::parse("t --mesh pp=2 --batch 2 --seq 8".split(' ')).unwrap();
        let of = |recompute: &str, passes| {
            let kept = KeptActivations::As(recompute.parse().unwrap());
            ActivationBytes::of_passes(&config, &tiny(), kept, None, passes)
        };
        let passes = LivePasses { layers: 3, count: 4, has_head: false };
        let bytes = of("none", passes);
        assert_eq!((bytes.at_head, bytes.in_layers), (0.0, 4.0 * 3.0 * LAYER));
        let bytes = of("full", LivePasses { has_head: true, ..passes });
        assert_eq!(bytes.at_head, 4.0 * 3.0 * STREAM + STREAM + HEAD);
        // One segment is recomputed at a time.
        assert_eq!(bytes.in_layers, 4.0 * 3.0 * STREAM + LAYER - STREAM);
        let without_layers = of("sqrt", LivePasses { layers: 0, ..passes });
        assert_eq!(without_layers.in_layers, 0.0);
    }

    #[test]
    fn ranks_and_micro_batches_divide_activations() {
        let off = KeptActivations::As(RecomputeOverride::Off);
        let whole = of("", 2, off);
        let workspace = |bytes: &ActivationBytes| bytes.head.workspace(None);
        assert_eq!(workspace(&whole), 4.0 * (40.0 + 160.0));
        for line in ["--mesh dp=2", "--mesh fsdp=2", "--micro-batches 2"] {
            let half = of(line, 2, off);
            assert_eq!(half.in_layers * 2.0, whole.in_layers, "{line}");
            assert_eq!(half.at_head * 2.0, whole.at_head, "{line}");
        }
        // Half of each layer and of the vocabulary, but the whole of the head's input and its gradient.
        let half = of("--mesh tp=2", 2, off);
        assert_eq!(half.in_layers * 2.0, whole.in_layers);
        assert_eq!(half.at_head, 2.0 * LAYER / 2.0 + STREAM / 2.0 + HEAD);
        assert_eq!(workspace(&half) * 2.0, workspace(&whole));
        // Statistics and the gradient of the head's weight are f32 always.
        let bf16 = of("--dtype bf16", 2, off);
        assert_eq!(bf16.in_layers, 2.0 * (LAYER - 16.0 * 16.0) / 2.0 + 2.0 * 16.0 * 16.0);
        assert_eq!(workspace(&bf16), 4.0 * 40.0 + 2.0 * 160.0);
    }

    #[test]
    fn head_workspace_follows_from_its_chunks() {
        let of = of("--device cuda --dtype bf16", 2, KeptActivations::As(RecomputeOverride::Off));
        let head = HeadBytes { tokens: 512.0, ..of.head };
        // 512 tokens of 10 logits: in one chunk, or in two and the weight's gradient.
        assert_eq!(head.workspace(Some(5120)), 2.0 * 5120.0);
        assert_eq!(head.workspace(Some(5119)), 2.0 * 2560.0 + 4.0 * 40.0);
        // Without a limit, 8192 tokens of a vocabulary of 128 k are cut into chunks of 2^27 logits.
        let head = HeadBytes { tokens: 8192.0, vocab: 131_072.0, ..head };
        let dweight = 4.0 * 4.0 * 131_072.0;
        assert_eq!(head.workspace(None), dweight + 2.0 * f64::from(1 << 27));
    }
}
