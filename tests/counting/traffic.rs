//! Bytes that rank 0 sends in a step.
//!
//! Over the data ranks, with `P` elements on the rank, `N` ranks along `fsdp` and `cp` and `D` along `dp`, in elements:
//!
//! | ZeRO stage | per step | per micro-batch |
//! |---|---|---|
//! | 0 | `2 P (ND-1)/(ND)`: all-reduce | |
//! | 1 | `2 P (N-1)/N`: reduce-scatter, all-gather | |
//! | 2 | `P (N-1)/N`: all-gather | `P (N-1)/N`: reduce-scatter |
//! | 3 | | `(P + B) (N-1)/N`: all-gathers; `P (N-1)/N`: reduce-scatter |
//!
//! Gradients are sent in the reduce dtype, values in the compute dtype. From stage 1 on, the replicas all-reduce their
//! shards: `2 S (D-1)/D` per step, where `S` is about `P/N`. `B` counts the units that backward unshards again: all
//! layers but one, as the backward of an embedding or head does not read the weight, and the last norm and one layer
//! are kept. The first backward pass does not know these. A tied weight is gathered twice in forward, once for each
//! use. At stage 3 the first unit of forward is prefetched after the optimizer step, so the first step has one more
//! all-gather than the others.

use std::collections::BTreeMap;

use meshwright::models::llama::Llama;
use meshwright_tests::models::{nested_llama, plain_llama, saving_llama};

use super::case::{Case, F32, F64, ONE};
use super::ring::{all_reduce, gather};
use super::state::check;

#[test]
fn gradients_are_reduced_once_per_step_below_stage_2() {
    for zero in [0, 1] {
        let case = Case { dp: 2, fsdp: 2, zero, ..ONE };
        let sent = |micro_batches| {
            let outcome = Case { micro_batches, ..case }.run::<Llama>();
            let axes = |line: &serde_json::Value, axes: &str| line["comm_bytes"][axes].as_u64();
            ["fsdp", "dp", "dp x fsdp"].map(|name| axes(&outcome.steps[1], name))
        };
        let once = sent(1);
        assert_eq!(sent(2), once, "level {zero}");
    }
}

/// Recomputation repeats the forward collectives of its segments and adds no others: tensors that the backward of a
/// plain layer would gather again were just gathered.
#[test]
fn recomputation_repeats_forward_collectives() {
    for recompute in ["full", "every=2", "sqrt", "attn"] {
        for zero in [0, 3] {
            let case = Case { fsdp: 2, tp: 2, zero, layers: 6, recompute, ..ONE };
            check::<Llama>(case);
            if recompute != "attn" {
                check::<plain_llama::Llama>(Case { splits_stream: false, ..case });
            }
        }
    }
}

#[test]
fn nested_segments_gather_each_unit_once() {
    let case = Case { fsdp: 2, zero: 3, layers: 5, recompute: "", ..ONE };
    check::<saving_llama::Llama>(case);
    let outcome = case.run::<nested_llama::Llama>();
    for (step, line) in outcome.steps.iter().enumerate() {
        // Forward reads the unit of the norms before and after attention, which is another unit; the first pass does
        // not know yet that the norms are read again.
        let norms = 2 * case.hidden.next_multiple_of(16) * F32;
        // Later ones keep this unit of the last layer, which backward reads first, and gather the others again.
        let others = F32 * case.units(0)[1] - norms;
        let again = if step == 0 { case.layers * gather(norms, 2) } else { gather(others, 2) };
        assert_eq!(line["comm_bytes"]["fsdp"], case.sent(step)["fsdp"] + again, "step {step}");
    }
}

impl Case {
    /// Bytes by axis.
    pub fn sent(self, step: usize) -> BTreeMap<String, usize> {
        let mut sent = BTreeMap::new();
        let degrees = [("dp", self.dp), ("fsdp", self.fsdp), ("cp", self.cp), ("tp", self.tp)];
        for (axis, _) in degrees.iter().filter(|(_, degree)| *degree > 1) {
            sent.insert((*axis).to_owned(), 0);
        }
        // Bytes sent within a group of `ranks`, over the named axes whose degree is not 1.
        let mut send = |names: &[&str], bytes: &dyn Fn(usize) -> usize| {
            let group: Vec<_> = degrees
                .iter()
                .filter(|(axis, degree)| *degree > 1 && names.contains(axis))
                .collect();
            let ranks: usize = group.iter().map(|(_, degree)| degree).product();
            if ranks > 1 {
                let axes = group.iter().map(|(axis, _)| *axis).collect::<Vec<_>>().join(" x ");
                *sent.entry(axes).or_default() += bytes(ranks);
            }
        };
        let units = self.units(0);
        let of_units = |bytes: &dyn Fn(usize) -> usize| units.iter().map(|len| bytes(*len)).sum();
        let (reduced, element, turns) = (self.reduced(), self.element(), self.micro_batches);

        let all_reduced = |ranks| of_units(&|len| all_reduce(len * reduced, ranks));
        let scattered = |ranks| of_units(&|len| gather(len * reduced, ranks));
        let published = |ranks| of_units(&|len| gather(len * element, ranks));
        let replicated = |ranks| of_units(&|len| all_reduce(self.shard(len, 0) * reduced, ranks));
        match self.zero {
            0 => send(&["dp", "fsdp", "cp"], &all_reduced),
            1 => send(&["fsdp", "cp"], &|ranks| scattered(ranks) + published(ranks)),
            2 => send(&["fsdp", "cp"], &|ranks| turns * scattered(ranks) + published(ranks)),
            _ => {
                let gathered = |ranks| {
                    let of = |units: &[usize]| -> usize {
                        units.iter().map(|len| gather(len * element, ranks)).sum()
                    };
                    let again = of(&units[1..self.layers]);
                    let not_kept = if step == 0 { of(&units[self.layers..][..2]) } else { 0 };
                    let tied = if self.tied { of(&units[..1]) } else { 0 };
                    let ahead = if step == 0 { of(&units[..1]) } else { 0 };
                    turns * (of(&units) + again + tied) + ahead + not_kept
                };
                send(&["fsdp", "cp"], &|ranks| turns * scattered(ranks) + gathered(ranks));
            }
        }
        if self.zero > 0 {
            send(&["dp"], &replicated);
        }
        // The squared gradient norm. Losses and counts are part of the exchange that checks the step.
        let holders: &[&str] = if self.zero > 0 { &["fsdp", "cp", "tp"] } else { &["cp", "tp"] };
        send(holders, &|ranks| all_reduce(F64, ranks));
        let reductions = if self.zero < 2 { 1 } else { turns };
        send(&["tp"], &|ranks| turns * self.exchanged(ranks) + reductions * self.norms(ranks));
        send(&["cp"], &|ranks| turns * self.layers * self.sent_by_attention(ranks));
        sent
    }

    /// Bytes of activations that a tensor-parallel rank sends in a micro-batch.
    fn exchanged(self, tp: usize) -> usize {
        let (tokens, layers) = (self.tokens(), self.layers);
        let stream = tokens * self.hidden * self.element();
        // Exits of tensor-parallel regions: the embedding, and two per layer. Entries: two per layer, and the head.
        let (exits, entries) = (1 + 2 * layers, 2 * layers + 1);
        // The bytes of recomputed layers. If only attention is recomputed, the output projection was saved.
        let (repeated_exits, repeated_entries) = match self.recompute {
            "none" => (0, 0),
            "attn" => (0, 2 * layers),
            _ => (2 * layers, 2 * layers),
        };
        let regions = if self.splits_stream {
            // Each exit is a reduce-scatter forward and an all-gather backward, and each entry the reverse. Backward
            // repeats a layer's all-gather for the gradients of its weights, unless the layer was just recomputed.
            let regathered = 2 * layers - repeated_entries;
            (2 * exits + 2 * entries + repeated_exits + repeated_entries + regathered)
                * gather(stream, tp)
        } else {
            // An all-reduce at each exit forward, and at each entry backward.
            (exits + entries + repeated_exits) * all_reduce(stream, tp)
        };
        // Per token: the maximum, the sum of exponentials, the target's logit.
        regions + 3 * all_reduce(tokens * F32, tp)
    }

    /// Gradients of norms in a sequence-parallel stream: partial sums of the tensor-parallel ranks, reduced in f32.
    fn norms(self, tp: usize) -> usize {
        if !self.splits_stream {
            return 0;
        }
        self.layers * all_reduce(2 * self.hidden * F32, tp) + all_reduce(self.hidden * F32, tp)
    }
}
