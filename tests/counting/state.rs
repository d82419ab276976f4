//! Parameters, gradients and optimiser state of the fullest rank.
//!
//! With `P` elements on the rank, in lines of 16 that a parameter does not share with another, and `N` ranks along
//! `fsdp`, of which the fullest holds `P/N` rounded up to lines, unit by unit:
//!
//! | level | parameters | gradients | AdamW |
//! |---|---|---|---|
//! | 0 | 4 P | 4 P | 8 P |
//! | 1 | 4 P | 4 P | 8 P/N |
//! | 2 | 4 P | 4 P/N | 8 P/N |
//! | 3 | 4 P/N | 4 P/N | 8 P/N |
//!
//! In bf16, parameters take 2 bytes instead of 4, and the optimiser 12 instead of 8: two moments and the master copy.
//! Replicas (`dp`) change nothing. Buffers take whole cache lines of 64 bytes, which matters to shards in bf16 alone.

use meshwright::train::LanguageModel;
use meshwright_examples::llama::Llama;
use meshwright_tests::models::plain_llama;

use super::case::{Case, F32, ONE};

const MESHES: [(usize, usize); 6] = [(1, 1), (2, 1), (4, 1), (1, 2), (1, 4), (2, 2)];

#[test]
fn a_sequence_parallel_llama_takes_and_sends_what_the_formulas_say() {
    for (dp, tp) in MESHES {
        for tied in [false, true] {
            check::<Llama>(Case { dp, tp, tied, ..ONE });
        }
    }
}

#[test]
fn a_plain_llama_takes_and_sends_what_the_formulas_say() {
    for (dp, tp) in MESHES {
        check::<plain_llama::Llama>(Case { dp, tp, splits_stream: false, ..ONE });
    }
}

#[test]
fn every_level_takes_and_sends_what_the_formulas_say() {
    for (dp, fsdp) in [(1, 2), (1, 4), (2, 2)] {
        for zero in 0..4 {
            check::<Llama>(Case { dp, fsdp, zero, ..ONE });
            let micro_batches = 2;
            check::<Llama>(Case { dp, fsdp, zero, micro_batches, tied: true, ..ONE });
        }
    }
}

#[test]
fn every_level_in_bf16_takes_and_sends_what_the_formulas_say() {
    check::<Llama>(Case { bf16: true, ..ONE });
    for (dp, fsdp) in [(1, 2), (1, 4), (2, 2)] {
        for zero in 0..4 {
            let reduce_bf16 = fsdp == 2;
            check::<Llama>(Case { dp, fsdp, zero, bf16: true, reduce_bf16, ..ONE });
        }
    }
}

#[test]
fn every_level_with_tensor_parallel_ranks_takes_and_sends_what_the_formulas_say() {
    for zero in 0..4 {
        check::<Llama>(Case { fsdp: 2, tp: 2, zero, micro_batches: 2, ..ONE });
        let plain = Case { splits_stream: false, bf16: zero % 2 == 1, ..ONE };
        check::<plain_llama::Llama>(Case { fsdp: 2, tp: 2, zero, ..plain });
    }
}

/// Trains, and compares every step with the formulas, here and of [`traffic`](super::traffic).
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
    /// Bytes of the fullest rank, which is the last: of what does not divide evenly it has most.
    fn state(self) -> [(&'static str, usize); 3] {
        let sum = |level: usize, bytes: usize| {
            let held = |len| if self.zero < level { len } else { self.shard(len, self.fsdp - 1) };
            let units = self.units(self.tp - 1).into_iter();
            units.map(|len| (held(len) * bytes).next_multiple_of(64)).sum::<usize>()
        };
        let copies = if self.bf16 { 3 } else { 2 };
        [
            ("parameters", sum(3, self.element())),
            ("gradients", sum(2, F32)),
            ("optimizer", copies * sum(1, F32)),
        ]
    }
}
