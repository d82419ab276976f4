//! Model FLOPs of a training step, and the measured peak FLOP/s of the machine (the terms of MFU).
//! Recomputation does not count, as it would in HFU.

use std::time::Duration;

use crate::bench::{MatmulSize, measure_matmul};
use crate::comm::Site;
use crate::nn::Built;
use crate::tensor::Rank;

use super::PeakFlops;

/// Returns the model FLOPs of training on one token in sequences of `seq`.
pub fn model_flops_per_token<M>(built: &Built<M>, seq: usize) -> f64 {
    built.flops_per_token(seq, |_| true)
}

/// Measures the peak FLOP/s of large matmuls in the compute dtype, on all cores or devices of the ranks: the largest of
/// several measurements. Every rank calls it.
///
/// Rank 0 measures while the others wait. With more threads than cores, separate measurements would count a core
/// several times.
pub fn measure_peak(rank: &Rank) -> PeakFlops {
    let mut peak = [0.0];
    if rank.index() == 0 {
        let threads = rank.backend().threads();
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let all = (threads * rank.comms().shape().world_size()).min(cores);
        // The ranks of a device share it.
        let share = if rank.allocator().device().is_some() { 1 } else { all };
        let fastest = PeakFlops::measured(|| fastest_matmul(rank)).flops;
        peak[0] = fastest / threads.min(cores) as f64 * share as f64;
    }
    rank.sum_over_ranks(&Site::new("peak FLOP/s"), &mut peak);
    PeakFlops { flops: peak[0], is_of_data_sheet: false }
}

/// Returns the FLOP/s of the fastest of several matmuls.
fn fastest_matmul(rank: &Rank) -> f64 {
    const AT_LEAST: (u32, Duration) = (8, Duration::from_millis(60));
    // Large enough to reach the peak, small enough to be quick.
    let size = if rank.allocator().device().is_some() { 4096 } else { 768 };
    let size = MatmulSize::square(size);
    size.flops() / measure_matmul(rank, size, rank.compute_dtype(), AT_LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::CpuBackend;
    use crate::comm::RankComms;
    use crate::dims;
    use crate::mesh::MeshShape;
    use crate::nn::{
        Attention, AttentionOptions, Bidirectional, Build, Builder, Causal, Embedding,
        GroupedLinear, LearnedPositions, LmHead, Router, Sizes,
    };
    use meshwright_core::__internal::declare;

    dims! { crate = crate; Vocab, Hidden, Heads, KvHeads, HeadDim, Places, Experts, TopK }

    struct Tiny;

    impl Build for Tiny {
        fn build(builder: &mut Builder<'_>) -> Tiny {
            Embedding::<Vocab, Hidden>::build(&mut builder.field("embed"));
            Attention::<Heads, KvHeads, HeadDim>::build(&mut builder.field("attention"));
            LearnedPositions::<Places, Hidden>::build(&mut builder.field("positions"));
            let mut head = builder.field("head");
            head.tie("embed", Some("tied"));
            LmHead::<Hidden, Vocab>::build(&mut head);
            Tiny
        }
    }

    #[test]
    fn model_flops_count_matmuls_and_attention() {
        let comms = RankComms::unattended(MeshShape::SINGLE);
        let rank = Rank::new(comms, Box::new(CpuBackend::new(1).unwrap()), 0);
        let sizes = Sizes::new()
            .with(Vocab, 10)
            .with(Hidden, 4)
            .with(Heads, 6)
            .with(KvHeads, 3)
            .with(HeadDim, 5)
            .with(Places, 100);
        // A tied embedding is also the weight of the head's matmul.
        for tied in [false, true] {
            let sizes = sizes.clone().with_flag("tied", tied);
            let built = declare::<Tiny>(&rank, &sizes).unwrap();
            assert_eq!(built.global_len(), if tied { 440 } else { 480 });
            let expected = 6.0 * 40.0 + 12.0 * (6 * 5 * 7) as f64;
            assert_eq!(model_flops_per_token(&built, 7), expected, "tied: {tied}");
        }
    }

    struct Mixture;

    impl Build for Mixture {
        fn build(builder: &mut Builder<'_>) -> Mixture {
            Router::<Hidden, Experts, TopK>::build(&mut builder.field("router"));
            GroupedLinear::<Experts, Hidden, Heads>::build(&mut builder.field("experts"));
            Mixture
        }
    }

    /// A token chooses three of eight experts of 4 x 6 elements; all of them have a logit.
    #[test]
    fn model_flops_count_the_chosen_experts() {
        let comms = RankComms::unattended(MeshShape::SINGLE);
        let rank = Rank::new(comms, Box::new(CpuBackend::new(1).unwrap()), 0);
        let sizes = Sizes::new().with(Hidden, 4).with(Heads, 6).with(Experts, 8).with(TopK, 3);
        let built = declare::<Mixture>(&rank, &sizes).unwrap();
        assert_eq!(built.global_len(), 4 * 8 + 8 * 24);
        assert_eq!(model_flops_per_token(&built, 7), 6.0 * (4 * 8 + 3 * 24) as f64);
    }

    struct Windows;

    impl Build for Windows {
        fn build(builder: &mut Builder<'_>) -> Windows {
            type Wide<M> = Attention<Heads, KvHeads, HeadDim, M, Hidden>;
            Wide::<Causal>::build(&mut builder.field("wide"));
            Wide::<Causal>::build(&mut builder.field("windowed"));
            Wide::<Bidirectional>::build(&mut builder.field("both_sides"));
            Windows
        }
    }

    /// Heads of 5 + 4 elements, of queries and of values; in windows of 3, 3 keys and 5 keys of up to 7.
    #[test]
    fn model_flops_count_windows_and_value_widths() {
        let comms = RankComms::unattended(MeshShape::SINGLE);
        let rank = Rank::new(comms, Box::new(CpuBackend::new(1).unwrap()), 0);
        let window = AttentionOptions { windows: vec![Some(3)], ..AttentionOptions::default() };
        let sizes = Sizes::new()
            .with(Hidden, 4)
            .with(Heads, 6)
            .with(KvHeads, 3)
            .with(HeadDim, 5)
            .with_attention("windowed", window.clone())
            .with_attention("both_sides", window);
        let built = declare::<Windows>(&rank, &sizes).unwrap();
        for (seq, keys) in [(7, 7 + 3 + 5), (4, 4 + 3 + 4), (2, 6)] {
            assert_eq!(model_flops_per_token(&built, seq), (6 * 6 * 9 * keys) as f64, "{seq}");
        }
    }

    #[test]
    fn peak_counts_each_core_once() {
        let comms = RankComms::unattended(MeshShape::SINGLE);
        let cores = std::thread::available_parallelism().unwrap().get();
        let rank = Rank::new(comms, Box::new(CpuBackend::new(cores * 2).unwrap()), 0);
        let peak = measure_peak(&rank);
        // Between a slow core's scalar arithmetic and more than any machine does.
        assert!((1e8..1e15).contains(&peak.flops), "{peak}");
        assert_eq!(rank.allocator().total_peak(), 0, "the measurement is not part of the run");
    }
}
