//! Memory of parameters, gradients and optimizer state on the rank with the largest shards.
//!
//! With `P` elements on the rank, where each parameter is aligned to 16 elements, and `N` ranks along `fsdp`, the
//! largest shard of a unit is `P/N` rounded up to the alignment:
//!
//! | ZeRO stage | parameters | gradients | AdamW |
//! |---|---|---|---|
//! | 0 | 4 P | 4 P | 8 P |
//! | 1 | 4 P | 4 P | 8 P/N |
//! | 2 | 4 P | 4 P/N | 8 P/N |
//! | 3 | 4 P/N | 4 P/N | 8 P/N |
//!
//! In bf16, parameters take 2 bytes instead of 4, and the optimizer 12 instead of 8: two moments and the master
//! weights. With `--grad-dtype bf16`, gradients take 2, and with `--state-dtype bf16` each moment takes 2. Replicas
//! (`dp`) make no difference. Buffers take whole cache lines of 64 bytes, which matters only to shards in bf16.

use meshwright::models::llama::Llama;
use meshwright::train::LanguageModel;
use meshwright_tests::models::plain_llama;

use super::case::{Case, F32, ONE};

const MESHES: [(usize, usize); 6] = [(1, 1), (2, 1), (4, 1), (1, 2), (1, 4), (2, 2)];

#[test]
fn a_sequence_parallel_llama_matches_the_formulas() {
    for (dp, tp) in MESHES {
        for tied in [false, true] {
            check::<Llama>(Case { dp, tp, tied, ..ONE });
        }
    }
}

#[test]
fn a_plain_llama_matches_the_formulas() {
    for (dp, tp) in MESHES {
        check::<plain_llama::Llama>(Case { dp, tp, splits_stream: false, ..ONE });
    }
}

#[test]
fn every_stage_matches_the_formulas() {
    for (dp, fsdp) in [(1, 2), (1, 4), (2, 2)] {
        for zero in 0..4 {
            check::<Llama>(Case { dp, fsdp, zero, ..ONE });
            let micro_batches = 2;
            check::<Llama>(Case { dp, fsdp, zero, micro_batches, tied: true, ..ONE });
        }
    }
}

#[test]
fn every_stage_in_bf16_matches_the_formulas() {
    check::<Llama>(Case { bf16: true, ..ONE });
    for (dp, fsdp) in [(1, 2), (1, 4), (2, 2)] {
        for zero in 0..4 {
            let reduce_bf16 = fsdp == 2;
            check::<Llama>(Case { dp, fsdp, zero, bf16: true, reduce_bf16, ..ONE });
        }
    }
}

/// 18 bytes per parameter become 12.
#[test]
fn gradients_and_states_in_bf16_match_the_formulas() {
    check::<Llama>(Case { rounded: true, bf16: true, ..ONE });
    for (dp, fsdp) in [(1, 2), (2, 2)] {
        for zero in 0..4 {
            check::<Llama>(Case { dp, fsdp, zero, rounded: true, bf16: zero % 2 == 1, ..ONE });
        }
    }
}

#[test]
fn every_stage_with_tensor_parallelism_matches() {
    for zero in 0..4 {
        check::<Llama>(Case { fsdp: 2, tp: 2, zero, micro_batches: 2, ..ONE });
        let plain = Case { splits_stream: false, bf16: zero % 2 == 1, ..ONE };
        check::<plain_llama::Llama>(Case { fsdp: 2, tp: 2, zero, ..plain });
    }
}

/// Trains, and compares every step with the formulas of this module and of [`traffic`](super::traffic).
#[track_caller]
pub fn check<M: LanguageModel>(case: Case) {
    let outcome = case.run::<M>();
    for (step, line) in outcome.steps.iter().enumerate() {
        let peak = &line["peak_bytes"];
        for (category, bytes) in case.state() {
            assert_eq!(peak[category], bytes, "{category} of {case:?}");
        }
        let sent = serde_json::json!(case.sent(step));
        assert_eq!(line["comm_bytes"], sent, "communication of step {step} of {case:?}");
    }
}

impl Case {
    /// Bytes of the last rank, which has the largest shards if sizes do not divide evenly.
    fn state(self) -> [(&'static str, usize); 3] {
        let sum = |level: usize, bytes: usize| {
            let held =
                |len| if self.zero < level { len } else { self.shard(len, self.shards() - 1) };
            let units = self.units(self.tp - 1).into_iter();
            units.map(|len| (held(len) * bytes).next_multiple_of(64)).sum::<usize>()
        };
        let rounded = if self.rounded { 2 } else { F32 };
        let masters = if self.bf16 { sum(1, F32) } else { 0 };
        [
            ("parameters", sum(3, self.element())),
            ("gradients", sum(2, rounded)),
            ("optimizer", masters + 2 * sum(1, rounded)),
        ]
    }
}
