//! The memory plan of a run against its measured peak.

use meshwright::models::gpt2::Gpt2;
use meshwright::models::llama::Llama;
use meshwright::train::{LanguageModel, MemoryUse};

use super::case::{Case, ONE};

#[test]
fn the_plan_is_what_a_run_allocates() {
    let wide = Case { hidden: 48, ffn: 136, seq: 37, layers: 9, ..ONE };
    for recompute in ["none", "full", "every=2", "every=3", "sqrt", "attn"] {
        check_sharded::<Llama>(Case { recompute, ..wide });
    }
    for recompute in ["", "none", "full", "attn"] {
        check_sharded::<Gpt2>(Case { recompute, layers: 3, ..wide });
    }
}

/// The forward pass of a continuation is planned as the steps are.
#[test]
fn the_plan_is_what_a_continuation_allocates() {
    let wide = Case { recompute: "full", seq: 37, sample_tokens: 50, ..ONE };
    for (tp, fsdp, zero) in [(1, 1, 0), (2, 1, 0), (1, 2, 3)] {
        for micro_batches in [1, 8 / fsdp] {
            for bf16 in [false, true] {
                check::<Llama>(Case { tp, fsdp, zero, micro_batches, bf16, ..wide });
            }
        }
    }
    check::<Gpt2>(Case { micro_batches: 8, ..wide });
}

#[track_caller]
fn check_sharded<M: LanguageModel>(case: Case) {
    check::<M>(case);
    check::<M>(Case { tp: 2, bf16: true, ..case });
    for zero in 0..4 {
        check::<M>(Case { fsdp: 2, zero, micro_batches: 2, ..case });
    }
}

/// Without tensor-parallel regions: the unsharded values of two units at stage 3, and from stage 2 on a gradient and
/// the previous one in its reduction. The all-reduce of shards over replicas may hold one more than planned.
#[test]
fn concurrent_buffers_are_planned() {
    for (dp, fsdp) in [(1, 2), (2, 2), (1, 4)] {
        for zero in 0..4 {
            for bf16 in [false, true] {
                let case = Case { dp, fsdp, zero, bf16, reduce_bf16: bf16, layers: 3, ..ONE };
                let memory = case.memory::<Llama>();
                let used = memory.iter().find(|used| used.category == "communication");
                let MemoryUse { planned, peak, .. } = used.expect("a category");
                let largest = case.units(0).into_iter().max().unwrap_or(0);
                let more = (dp - 1) * case.shard(largest, fsdp - 1) * case.reduced();
                let range = *planned..=planned + more as u64;
                assert!(range.contains(peak), "{peak} is not in {range:?}: {case:?}");
            }
        }
    }
}

#[track_caller]
fn check<M: LanguageModel>(case: Case) {
    for used in case.memory::<M>() {
        let (name, planned, peak) = (used.category, used.planned, used.peak);
        assert!(planned <= peak, "{name}: {planned} are planned, {peak} used: {case:?}");
        // Transfers may hold their buffers for longer than in a dry run.
        if !["communication", "total"].contains(&name) {
            assert_eq!(planned, peak, "{name}: {case:?}");
        }
    }
}
