//! Bytes and memory of context-parallel attention.
//!
//! Per layer and micro-batch, with `t` tokens of a rank, `q` and `kv` elements of a token's queries and keys on the
//! rank, `e` bytes of an element, `u` ranks that exchange heads, rings of `R = p / u` ranks, and `c` copies of keys and
//! values:
//!
//! | style | sent in forward | sent in backward | kept besides | workspace |
//! |---|---|---|---|---|
//! | ring | `(p-1) 2 t kv e` | `(p-1) 2 t kv e + p 2 t kv 4` | | `4 t kv e + 4 t kv 4 + t q 4` |
//! | gather | `(p-1) 2 t kv e` | `(p-1) 2 t kv e + (p-1) 2 t kv 4` | | `4 p t kv 4 + t q 4` |
//! | exchange | `2 t (q + c kv) e (u-1)/u + (R-1) 2 t c kv e` | it and `R 2 t c kv 4` | `t q e + 2 t (c-1) kv e` | |
//!
//! The workspace of an exchange is `2 t (q + 2 c kv) e`, or the one of the ring if that is larger. Forward needs less.

use meshwright::models::llama::Llama;
use meshwright_examples::long_context::LongLlama;

use super::case::{Case, F32, HEADS, ONE};
use super::state::check;

/// A Llama whose attention needs more memory than its head.
const LONG: Case = Case { hidden: 64, ffn: 96, seq: 64, layers: 2, batch: 4, cp: 4, ..ONE };

const STYLES: [&str; 4] = ["ring", "gather", "ulysses", "hybrid=2"];

/// Style of attention that ranks compute together.
enum Way {
    Ring,
    Gather,
    /// Exchange of heads among so many ranks.
    Exchange(usize),
}

/// Every style, dtype and number of ranks, also with tensor parallelism, micro-batches and ZeRO stages, and with fewer
/// key-value heads than ranks that exchange.
#[test]
fn each_style_sends_the_bytes_of_its_formula() {
    for style in STYLES {
        for cp in [2, 4] {
            check::<Llama>(Case { cp, style, ..LONG });
            check::<Llama>(Case { cp, style, kv_heads: 1, bf16: true, micro_batches: 2, ..LONG });
        }
        let style = if style == "ulysses" { "hybrid=4" } else { style };
        check::<Llama>(Case { cp: 8, style, kv_heads: 2, ..LONG });
    }
    for zero in [1, 3] {
        check::<Llama>(Case { fsdp: 2, cp: 2, style: "ring", zero, ..LONG });
    }
    check::<Llama>(Case { cp: 2, tp: 2, dp: 2, style: "ring", ..LONG });
    check::<Llama>(Case { cp: 2, tp: 2, style: "ulysses", bf16: true, ..LONG });
}

/// A layer that is recomputed sends keys and values again, unless the results of its attention are saved.
#[test]
fn saved_attention_sends_nothing_again() {
    for style in STYLES {
        check::<Llama>(Case { style, recompute: "full", ..LONG });
        check::<LongLlama>(Case { style, recompute: "full", ..LONG });
        check::<LongLlama>(Case { style, recompute: "", ..LONG });
    }
}

/// The activations that a layer keeps fall as `1 / cp`, and depend on the tokens of a rank only.
#[test]
fn kept_activations_fall_with_the_number_of_ranks() {
    for (style, kv_heads, bf16) in STYLES
        .into_iter()
        .flat_map(|style| [(style, HEADS, false), (style, HEADS, true), (style, 1, false)])
    {
        let slope = |case: Case| {
            let more = Case { layers: case.layers + 1, ..case };
            more.peak_of::<Llama>("activations") - case.peak_of::<Llama>("activations")
        };
        for cp in [1, 2, 4] {
            let style = if cp == 1 { "" } else { style };
            let fixed = Case { cp, style, kv_heads, bf16, ..LONG };
            assert_eq!(slope(fixed), fixed.layer() + fixed.kept_besides(), "{fixed:?}");
            // 16 positions of each sequence on each rank.
            let grown = Case { seq: 16 * cp, ..fixed };
            assert_eq!(slope(grown), grown.layer() + grown.kept_besides(), "{grown:?}");
            assert_eq!(grown.layer(), Case { cp: 1, seq: 16, ..fixed }.layer());
            assert_eq!(Case { cp: 1, ..fixed }.layer(), cp * fixed.layer(), "{fixed:?}");
        }
    }
}

/// A recomputed layer that saves the attention's results keeps its input, the output of attention and its log-sum-exps;
/// and an exchange of heads also the operands and the output with some heads.
#[test]
fn saved_attention_keeps_its_results() {
    for style in STYLES {
        for cp in [2, 4] {
            let case = Case { cp, style, recompute: "", ..LONG };
            let more = Case { layers: case.layers + 1, ..case };
            let peak = |case: Case| case.peak_of::<LongLlama>("activations");
            let tokens = case.tokens();
            let out = case.buffer(tokens * case.hidden);
            let besides = match case.way() {
                Way::Exchange(_) => 2 * out + 2 * case.buffer(tokens * case.kv_hidden()),
                _ => 0,
            };
            let kept = case.stream() + out + case.statistic(tokens * HEADS) + besides;
            assert_eq!(peak(more) - peak(case), kept, "{case:?}");
        }
    }
}

/// While gradients travel around a ring, those that were sent are freed as soon as the next rank has them: up to `2 t
/// kv 4` more.
#[test]
fn workspace_is_that_of_the_formula() {
    for (style, kv_heads, bf16) in STYLES
        .into_iter()
        .flat_map(|style| [(style, HEADS, false), (style, HEADS, true), (style, 2, false)])
    {
        for (cp, seq) in [(2, 64), (2, 128), (4, 64), (4, 256)] {
            let case = Case { cp, style, kv_heads, bf16, seq, ..LONG };
            let (least, in_flight) = case.attention_workspace();
            let peak = case.peak_of::<Llama>("workspace");
            assert!(
                (least..=least + in_flight).contains(&peak),
                "{peak} instead of {least}, or up to {in_flight} more: {case:?}"
            );
        }
    }
}

impl Case {
    fn way(self) -> Way {
        match self.style {
            "gather" => Way::Gather,
            "ulysses" => Way::Exchange(self.cp),
            "hybrid=2" => Way::Exchange(2),
            "hybrid=4" => Way::Exchange(4),
            _ => Way::Ring,
        }
    }

    /// Copies of keys and values that ranks which exchange heads have together.
    fn copies(self) -> usize {
        match self.way() {
            Way::Exchange(size) => (size * self.tp / self.kv_heads).max(1),
            _ => 1,
        }
    }

    /// `t q` and `t kv` of a rank.
    fn queries_and_keys(self) -> [usize; 2] {
        [self.hidden, self.kv_hidden()].map(|elements| self.tokens() * elements / self.tp)
    }

    /// Bytes that a rank sends in a layer's forward and backward, and again if the layer is recomputed with its
    /// attention.
    pub fn sent_by_attention(self, ranks: usize) -> usize {
        let ([q, kv], e) = (self.queries_and_keys(), self.element());
        let [forward, backward] = match self.way() {
            Way::Ring => {
                let forward = (ranks - 1) * 2 * kv * e;
                [forward, forward + ranks * 2 * kv * F32]
            }
            Way::Gather => {
                let forward = (ranks - 1) * 2 * kv * e;
                [forward, forward + (ranks - 1) * 2 * kv * F32]
            }
            Way::Exchange(size) => {
                let (copied, ring) = (self.copies() * kv, ranks / size);
                let exchanged = (2 * q + 2 * copied) * e * (size - 1) / size;
                let forward = exchanged + (ring - 1) * 2 * copied * e;
                let gradients = if ring == 1 { 0 } else { ring * 2 * copied * F32 };
                [forward, forward + gradients]
            }
        };
        let again = match self.recompute {
            "" | "none" => 0,
            _ => forward,
        };
        forward + backward + again
    }

    /// Bytes that a style keeps of a layer in addition to the bytes of one rank.
    fn kept_besides(self) -> usize {
        let [q, kv] = self.queries_and_keys();
        match self.way() {
            Way::Exchange(_) => {
                let more = 2 * (self.buffer(self.copies() * kv) - self.buffer(kv));
                self.buffer(q) + more
            }
            _ => 0,
        }
    }

    /// Peak of the workspace of attention, and the bytes that it may be more by.
    fn attention_workspace(self) -> (usize, usize) {
        let ([q, kv], e) = (self.queries_and_keys(), self.element());
        let ring = |ranks: usize, kv: usize| match ranks {
            1 => (0, 0),
            _ => (4 * kv * e + (4 * kv + q) * F32, 2 * kv * F32),
        };
        match self.way() {
            Way::Ring => ring(self.cp, kv),
            Way::Gather => ((4 * self.cp * kv + q) * F32, 0),
            Way::Exchange(size) => {
                let copied = self.copies() * kv;
                let ((least, in_flight), messages) =
                    (ring(self.cp / size, copied), 2 * (q + 2 * copied) * e);
                (least.max(messages), in_flight)
            }
        }
    }
}
