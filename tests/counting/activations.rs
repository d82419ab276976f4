//! Peak activation memory against formulas of the tensors saved per layer.
//!
//! Saved per layer, in elements of the compute dtype: input and output of each norm (`x y`, `x' y'`: this rank's shard
//! of the sequence, as backward repeats the all-gather), queries, keys and values, the attention output, gate, up, and
//! their product. In f32: one statistic per token for each norm, and one per token and head for attention. All
//! layers share the rotary tables.
//!
//! | `--recompute` | saved per layer | during recomputation |
//! |---|---|---|
//! | none | all of it: `A` | |
//! | every=N | of N layers, the input: `B` | `N A' - B` |
//! | full | every=1 | |
//! | attn | `x`, `y`, the output projection, `y'`, gate, up, down, the norms' statistics: `C` | the rest of `A'` |
//!
//! `A'` is `A` with the whole `y` and `y'`, as a tensor gathered by recomputation is not gathered again.

use meshwright::models::llama::Llama;
use meshwright::train::LanguageModel;

use super::case::{Case, F32, HEADS, ONE};

/// A model wide enough for the peak to be in the layers, and not at the head.
const WIDE: Case = Case { hidden: 48, ffn: 104, seq: 37, layers: 4, ..ONE };

/// One rank; tensor parallelism with uneven shards of sequence and vocabulary; sharded state in bf16.
const CASES: [Case; 3] =
    [WIDE, Case { tp: 2, ..WIDE }, Case { fsdp: 2, zero: 3, bf16: true, micro_batches: 2, ..WIDE }];

#[test]
fn each_layer_saves_the_inputs_of_its_backward() {
    for case in CASES {
        for (recompute, run, kept) in [
            ("none", 1, case.layer()),
            ("full", 1, case.stream()),
            ("every=2", 2, case.stream()),
            ("attn", 1, case.around_attention()),
        ] {
            let case = Case { recompute, ..case };
            let more = Case { layers: case.layers + run, ..case };
            let slope = more.activations() - case.activations();
            assert_eq!(slope, kept, "{case:?}");
        }
    }
}

#[test]
fn larger_segments_save_fewer_inputs() {
    for case in CASES {
        let of = |layers, recompute| Case { layers, recompute, ..case }.activations();
        let (input, layer) = (case.stream(), case.recomputed_layer());
        let full = of(4, "full");
        assert_eq!(of(4, "every=2"), full + layer - 2 * input, "{case:?}");
        assert_eq!(of(4, "every=4"), full + 3 * layer - 3 * input, "{case:?}");
        assert_eq!(of(4, "sqrt"), of(4, "every=2"), "{case:?}");
        assert_eq!(of(9, "sqrt"), of(9, "every=3"), "{case:?}");
    }
}

#[test]
fn micro_batches_are_in_memory_one_at_a_time() {
    let case = Case { recompute: "none", ..WIDE };
    let half = Case { batch: case.batch / 2, ..case };
    assert_eq!(Case { micro_batches: 2, ..case }.activations(), half.activations());
}

impl Case {
    /// Returns the measured peak.
    #[track_caller]
    fn activations(self) -> usize {
        self.peak_of::<Llama>("activations")
    }

    /// Returns the measured peak of a category of memory.
    #[track_caller]
    pub fn peak_of<M: LanguageModel>(self, category: &str) -> usize {
        let memory = self.memory::<M>();
        let used = memory.iter().find(|used| used.category == category);
        used.expect("a category").peak as usize
    }

    /// Returns the bytes of `elements` in the compute dtype.
    pub fn buffer(self, elements: usize) -> usize {
        (elements * self.element()).next_multiple_of(64)
    }

    /// Tokens in the shard of the last tensor-parallel rank.
    fn own_tokens(self) -> usize {
        self.rows() * (self.seq / self.cp).div_ceil(self.tp)
    }

    /// `B`: the residual stream.
    pub fn stream(self) -> usize {
        self.buffer(self.own_tokens() * self.hidden)
    }

    /// `count` statistics in f32.
    pub fn statistic(self, count: usize) -> usize {
        (count * F32).next_multiple_of(64)
    }

    /// `A`.
    pub fn layer(self) -> usize {
        let Case { hidden, ffn, tp, .. } = self;
        let tokens = self.tokens();
        let heads = self.buffer(tokens * hidden / tp);
        let kv_heads = self.buffer(tokens * self.kv_hidden() / tp);
        let inner = self.buffer(tokens * ffn / tp);
        4 * self.stream()
            + 2 * self.statistic(self.own_tokens())
            + 2 * (heads + kv_heads)
            + self.statistic(tokens * HEADS / tp)
            + 3 * inner
    }

    /// `A'`.
    fn recomputed_layer(self) -> usize {
        self.layer() + 2 * (self.buffer(self.tokens() * self.hidden) - self.stream())
    }

    /// `C`.
    fn around_attention(self) -> usize {
        let inner = self.buffer(self.tokens() * self.ffn / self.tp);
        5 * self.stream() + 2 * self.statistic(self.own_tokens()) + 2 * inner
    }
}
