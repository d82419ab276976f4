//! What the activations of a transformer take on each rank, at the least.
//!
//! Per layer, backward needs: the inputs of both norms and what they give (on each rank its part of the sequence: what
//! is gathered from that is gathered again), queries, keys and values, what attention gives, gate (where there is one),
//! up and what becomes of them, and in f32 the norms' statistics and attention's log-sum-exp. With recomputation it needs less of a layer, but all of
//! it of the layers that are computed once more together. The head keeps its input and the gradient of that, and works on
//! the logits of some tokens at a time; of several chunks of tokens, and on a CPU, it keeps the gradient of its weight.

use crate::layout::{AxisId, AxisSet};
use crate::nn::{Grouping, LogitChunks, RecomputeOverride};
use crate::train::Outline;
use crate::train::config::{Config, Device};

use super::logits::LogitBytes;

/// Bytes of an f32.
const F32: f64 = 4.0;

/// Bytes of each rank's activations and scratch, at the moments when they are most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ActivationBytes {
    /// Activations when backward begins.
    pub at_head: f64,
    /// Activations while backward is in the last layers.
    pub in_layers: f64,
    /// What the head needs beside.
    pub head: HeadBytes,
}

/// What sizes the head's scratch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeadBytes {
    device: Device,
    tokens: f64,
    vocab: f64,
    hidden: f64,
    /// Bytes of a logit.
    element: f64,
}

/// Which of the activations of layers are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// What the flag says.
    As(RecomputeOverride),
    /// What attributes of the model say that are not known here: no less than those of one layer.
    Unknown,
}

impl ActivationBytes {
    /// Those of one micro-batch: a rank computes one at a time.
    pub fn of(config: &Config, outline: &Outline, kept: Kept) -> ActivationBytes {
        let part = Part::of(config, outline);
        let layers = outline.layers as f64;
        let (input, layer) = (part.stream(), part.layer());
        let in_runs = |grouping: Grouping| {
            let run = grouping.layers_per_segment(outline.layers).clamp(1, outline.layers);
            in_runs(outline.layers, run, input, layer)
        };
        let (kept, computed) = match kept {
            Kept::Unknown => (0.0, layer),
            Kept::As(RecomputeOverride::Off) => (layers * layer, 0.0),
            Kept::As(RecomputeOverride::Attention) => {
                (layers * part.around_attention(), part.with_attention())
            }
            Kept::As(RecomputeOverride::Full) => in_runs(Grouping::Every(1)),
            Kept::As(RecomputeOverride::Every(run)) => in_runs(Grouping::Every(run.get())),
            Kept::As(RecomputeOverride::Sqrt) => in_runs(Grouping::Sqrt),
        };
        ActivationBytes {
            at_head: kept + part.stream() + part.head(),
            in_layers: kept + computed,
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

/// With runs of `run` layers of which only the inputs are kept: these inputs, and what comes to them while a run is
/// computed once more. The last run may be shorter, but is undone while all inputs are there.
fn in_runs(layers: usize, run: usize, input: f64, layer: f64) -> (f64, f64) {
    let runs = layers.div_ceil(run);
    let last = (layers - (runs - 1) * run) as f64 * layer - input;
    let full = if runs > 1 { run as f64 * layer - 2.0 * input } else { 0.0 };
    (runs as f64 * input, full.max(last))
}

/// The part of a step that one rank computes at a time.
struct Part {
    /// Bytes of an element.
    element: f64,
    /// Tokens, and those whose stream the rank holds.
    tokens: f64,
    own_tokens: f64,
    hidden: f64,
    /// Elements of queries, and of keys, of one token.
    queries: f64,
    keys: f64,
    heads: f64,
    ffn: f64,
    /// Projections to the width of the feed-forward.
    projections: f64,
    vocab: f64,
}

impl Part {
    fn of(config: &Config, outline: &Outline) -> Part {
        let size = |size: usize| size as f64;
        let tp = size(config.mesh.degree(AxisId::Tp));
        let parts = size(config.mesh.degree_of(AxisSet::DATA)) * size(config.micro_batches);
        let sequences = size(config.batch) / parts;
        Part {
            element: size(config.dtype.dtype().bytes()),
            tokens: sequences * size(config.seq),
            own_tokens: sequences * (size(config.seq) / tp).ceil(),
            hidden: size(outline.hidden),
            queries: size(outline.heads) * size(outline.head_dim) / tp,
            keys: size(outline.kv_heads) * size(outline.head_dim) / tp,
            heads: size(outline.heads) / tp,
            ffn: size(outline.ffn) / tp,
            projections: if outline.gated { 2.0 } else { 1.0 },
            vocab: (size(outline.vocab) / tp).ceil(),
        }
    }

    /// The residual stream at one place.
    fn stream(&self) -> f64 {
        self.element * self.own_tokens * self.hidden
    }

    /// Everything that backward needs of a layer.
    fn layer(&self) -> f64 {
        let statistics = F32 * (self.tokens * self.heads + 2.0 * self.own_tokens);
        let products = 2.0 * self.queries + 2.0 * self.keys + (self.projections + 1.0) * self.ffn;
        4.0 * self.stream() + self.element * self.tokens * products + statistics
    }

    /// What is kept of a layer of which attention, and what leads to it, is computed once more: its input, the results
    /// of both norms with their statistics, and those of all other products.
    fn around_attention(&self) -> f64 {
        let statistics = F32 * 2.0 * self.own_tokens;
        5.0 * self.stream() + self.element * self.tokens * self.projections * self.ffn + statistics
    }

    /// What is computed once more then: queries, keys, values, the result and its statistics, and what is element-wise,
    /// the input of the second norm and that of the last product.
    fn with_attention(&self) -> f64 {
        let products = 2.0 * self.queries + 2.0 * self.keys + self.ffn;
        self.stream() + self.element * self.tokens * products + F32 * self.tokens * self.heads
    }

    /// The head's input, gathered, and its gradient.
    fn head(&self) -> f64 {
        2.0 * self.element * self.tokens * self.hidden
    }
}

impl HeadBytes {
    /// What a logit takes.
    pub fn logits(&self) -> LogitBytes {
        LogitBytes { vocab: self.vocab, element: self.element }
    }

    /// The gradient of the weight, summed over chunks in f32.
    pub fn dweight(&self) -> f64 {
        F32 * self.vocab * self.hidden
    }

    /// The logits of a chunk, and the weight's gradient unless a device writes it where it belongs.
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

    /// Bytes of the stream at one place, and of a layer, of 16 tokens of the tiny model.
    const STREAM: f64 = 16.0 * 4.0 * 4.0;
    const LAYER: f64 = 16.0 * (16.0 + 12.0 + 18.0 + 4.0) * 4.0;
    /// The head's input and its gradient.
    const HEAD: f64 = 2.0 * STREAM;

    fn of(line: &str, layers: usize, kept: Kept) -> ActivationBytes {
        let mesh = if line.contains("--mesh") { "" } else { "--mesh 1" };
        let words = format!("t --batch 2 --seq 8 {mesh} {line}");
        let config = Config::parse(words.split_whitespace()).unwrap();
        ActivationBytes::of(&config, &Outline { layers, ..tiny() }, kept)
    }

    #[track_caller]
    fn assert_kept(recompute: &str, layers: usize, at_head: f64, in_layers: f64) {
        let bytes = of("", layers, Kept::As(recompute.parse().unwrap()));
        assert_eq!(bytes.at_head, at_head + STREAM + HEAD, "{recompute} of {layers}");
        assert_eq!(bytes.in_layers, in_layers, "{recompute} of {layers}");
    }

    #[test]
    fn recomputation_keeps_inputs_and_one_run() {
        assert_kept("none", 10, 10.0 * LAYER, 10.0 * LAYER);
        assert_kept("full", 10, 10.0 * STREAM, 9.0 * STREAM + LAYER);
        // Runs of 5 and 5: the second is undone beside both inputs, the first beside its own.
        assert_kept("every=5", 10, 2.0 * STREAM, STREAM + 5.0 * LAYER);
        // Runs of 4, 4 and 2: the second, beside two inputs, has more than the third.
        assert_kept("every=4", 10, 3.0 * STREAM, STREAM + 4.0 * LAYER);
        assert_kept("sqrt", 10, 3.0 * STREAM, STREAM + 4.0 * LAYER);
        assert_kept("every=20", 10, STREAM, 10.0 * LAYER);
        // Five places of the stream, gate and up, two statistics; and what is computed once more.
        let kept = 10.0 * 16.0 * (20.0 + 12.0 + 2.0) * 4.0;
        let attention = 16.0 * (4.0 + 8.0 + 4.0 + 2.0 + 6.0) * 4.0;
        assert_kept("attn", 10, kept, kept + attention);
        let unknown = of("", 10, Kept::Unknown);
        assert_eq!((unknown.at_head, unknown.in_layers), (STREAM + HEAD, LAYER));
    }

    #[test]
    fn ranks_and_micro_batches_share_tokens_and_heads() {
        let off = Kept::As(RecomputeOverride::Off);
        let whole = of("", 2, off);
        let workspace = |bytes: &ActivationBytes| bytes.head.workspace(None);
        assert_eq!(workspace(&whole), 4.0 * (40.0 + 160.0));
        for line in ["--mesh dp=2", "--mesh fsdp=2", "--micro-batches 2"] {
            let half = of(line, 2, off);
            assert_eq!(half.in_layers * 2.0, whole.in_layers, "{line}");
            assert_eq!(half.at_head * 2.0, whole.at_head, "{line}");
        }
        // Each half of a layer, but the head's input and its gradient are whole, and half the vocabulary is.
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
    fn gpu_heads_hold_as_many_logits_as_they_may() {
        let of = of("--device cuda --dtype bf16", 2, Kept::As(RecomputeOverride::Off));
        let head = HeadBytes { tokens: 512.0, ..of.head };
        // 512 tokens of 10 logits: in one chunk, or in two and the weight's gradient.
        assert_eq!(head.workspace(Some(5120)), 2.0 * 5120.0);
        assert_eq!(head.workspace(Some(5119)), 2.0 * 2560.0 + 4.0 * 40.0);
    }
}
