//! The peak of activations against what the tape keeps of each layer.
//!
//! Of a layer, in elements of the compute dtype: the input of each norm and what it gives (`x y`, `x' y'`: on each rank
//! its part of the sequence, as what is gathered from it is gathered again), queries, keys and values, what attention
//! gives, gate, up, and their product. In f32: a statistic of each token for each norm, and for each head. The rotary
//! tables of a layer are there for as long as the model.
//!
//! | `--recompute` | kept of a layer | while layers are computed once more |
//! |---|---|---|
//! | none | all of it: `A` | |
//! | every=N | of N layers, the input: `B` | `N A' - B` |
//! | full | every=1 | |
//! | attn | `x`, `y`, the output projection, `y'`, gate, up, down, the norms' statistics: `C` | the rest of `A'` |
//!
//! `A'` is `A` with all of `y` and `y'`: what was just gathered is not gathered again.

use meshwright_examples::llama::Llama;

use super::case::{Case, F32, HEADS, ONE};

/// Wide enough for the peak to be in the layers, and not at the head.
const WIDE: Case = Case { hidden: 48, ffn: 104, seq: 37, layers: 4, ..ONE };

/// One rank; tensor-parallel ranks, over which neither sequence nor vocabulary divides evenly; sharded state in bf16.
const CASES: [Case; 3] =
    [WIDE, Case { tp: 2, ..WIDE }, Case { fsdp: 2, zero: 3, bf16: true, micro_batches: 2, ..WIDE }];

#[test]
fn each_layer_keeps_what_its_backward_reads() {
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
            assert_eq!(slope, kept + run * case.tables(), "{case:?}");
        }
    }
}

#[test]
fn larger_regions_keep_fewer_inputs_and_compute_more_layers_at_once() {
    for case in CASES {
        let of = |layers, recompute| Case { layers, recompute, ..case }.activations();
        let (input, layer) = (case.stream(), case.layer_again());
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
    /// The measured peak.
    #[track_caller]
    fn activations(self) -> usize {
        let memory = self.memory::<Llama>();
        let used = memory.iter().find(|used| used.category == "activations");
        used.expect("a category").peak as usize
    }

    /// Bytes of `elements` in the compute dtype.
    fn buffer(self, elements: usize) -> usize {
        (elements * self.element()).next_multiple_of(64)
    }

    /// Tokens whose stream the last tensor-parallel rank holds.
    fn own_tokens(self) -> usize {
        self.tokens() / self.seq * self.seq.div_ceil(self.tp)
    }

    /// `B`: the residual stream.
    fn stream(self) -> usize {
        self.buffer(self.own_tokens() * self.hidden)
    }

    /// A statistic of each of `count` in f32.
    fn statistic(self, count: usize) -> usize {
        (count * F32).next_multiple_of(64)
    }

    /// `A`.
    fn layer(self) -> usize {
        let Case { hidden, ffn, tp, .. } = self;
        let tokens = self.tokens();
        let heads = self.buffer(tokens * hidden / tp);
        let inner = self.buffer(tokens * ffn / tp);
        4 * self.stream()
            + 2 * self.statistic(self.own_tokens())
            + 4 * heads
            + self.statistic(tokens * HEADS / tp)
            + 3 * inner
    }

    /// `A'`.
    fn layer_again(self) -> usize {
        self.layer() + 2 * (self.buffer(self.tokens() * self.hidden) - self.stream())
    }

    /// `C`.
    fn around_attention(self) -> usize {
        let inner = self.buffer(self.tokens() * self.ffn / self.tp);
        5 * self.stream() + 2 * self.statistic(self.own_tokens()) + 2 * inner
    }

    /// Cosines and sines of every position, for half of a head's elements.
    fn tables(self) -> usize {
        2 * self.statistic(self.seq * self.hidden / HEADS / 2)
    }
}
