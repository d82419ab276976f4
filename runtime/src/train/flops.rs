//! FLOPs of a training step, by the usual convention, and what the machine could do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::{BlockIndex, Buffer, Category, DType, Gemm, MemoryMeter, Queue};
use crate::comm::Site;
use crate::layout::AxisSet;
use crate::nn::Built;
use crate::tensor::{ParamRef, Rank};

/// Model FLOPs of training on one token: `6 N + 12 L H Q T` with `N` parameters, `L` layers of `H` heads of `Q`
/// elements, and sequences of `T` (Chowdhery et al., "PaLM", 2022, appendix B). Attention counts as if every token
/// looked at all others, which is twice what a causal one computes.
///
/// Tables that are only looked up are left out of `N`, since no product is computed with them: that of positions, and
/// the token embedding of a model whose head has a weight of its own.
pub fn model_flops_per_token<M>(built: &Built<M>, seq: usize) -> f64 {
    let params = built.params();
    let multiplied = params.iter().filter(|param| !param.is_table() || built.has_matmul(param));
    let multiplied: usize = multiplied.map(ParamRef::global_len).sum();
    let attention: usize = built.attentions.iter().map(|(heads, head_dim)| heads * head_dim).sum();
    6.0 * multiplied as f64 + 12.0 * (attention * seq) as f64
}

/// FLOP/s of large matrix products in the compute dtype on all the cores, or the device, that the ranks of this machine
/// use. Every rank calls it.
///
/// The first rank measures while the others wait: where more threads run than there are cores, each measuring for
/// itself would count a core several times.
pub fn measure_peak(rank: &Rank) -> f64 {
    let mut peak = [0.0];
    if rank.index() == 0 {
        let threads = rank.backend().threads();
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let all = (threads * rank.degree_of(AxisSet::ALL)).min(cores);
        // The ranks of a device share it.
        let share = if rank.meter().device().is_some() { 1 } else { all };
        peak[0] = best_product(rank) / threads.min(cores) as f64 * share as f64;
    }
    rank.all_reduce_f64(AxisSet::ALL, &Site::new("peak FLOP/s"), &mut peak);
    peak[0]
}

/// FLOP/s of the best of several products: other work on the machine only ever makes them slower.
fn best_product(rank: &Rank) -> f64 {
    const AT_LEAST: (u32, Duration) = (8, Duration::from_millis(100));
    // A meter of its own: these buffers are no part of what training needs.
    let device = rank.meter().device();
    let meter = MemoryMeter::on(device.cloned(), usize::MAX);
    // Large enough for the machine to be at its best, small enough to be quick.
    let size = if device.is_some() { 4096 } else { 768 };
    let finish =
        || device.iter().for_each(|device| device.synchronize(&device.mark(Queue::Compute)));
    let [a, b, mut c] = [1, 2, 3].map(|key| random_matrix(rank, &meter, size, key));
    let product =
        Gemm { m: size, n: size, k: size, trans_a: false, trans_b: false, accumulate: false };
    let begin = Instant::now();
    let (mut runs, mut best) = (0, Duration::MAX);
    while runs < AT_LEAST.0 || begin.elapsed() < AT_LEAST.1 {
        let start = Instant::now();
        rank.backend().gemm(&product, a.view(), b.view(), c.view_mut());
        finish();
        best = best.min(start.elapsed());
        runs += 1;
    }
    2.0 * (size * size * size) as f64 / best.as_secs_f64()
}

/// Normal numbers, as in a model: a GPU takes less power for zeros, and keeps a higher clock.
fn random_matrix(rank: &Rank, meter: &Arc<MemoryMeter>, size: usize, key: u64) -> Buffer {
    let mut numbers = meter.alloc(DType::F32, size * size, Category::Workspace);
    let index = BlockIndex::whole(&[size, size]);
    rank.backend().normal(key, 1.0, &index, numbers.view_mut());
    let mut matrix = meter.alloc(rank.compute_dtype(), size * size, Category::Workspace);
    rank.backend().cast(numbers.view(), matrix.view_mut());
    matrix
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::CpuBackend;
    use crate::comm::RankComms;
    use crate::layout::{Here, Local};
    use crate::mesh::MeshShape;
    use crate::nn::{
        Attention, Build, Builder, Embedding, LearnedPositions, LmHead, Sizes, declare,
    };
    use crate::prelude::Whole;

    macro_rules! dims {
        ($($name:ident)*) => {$(
            #[derive(Clone, Copy)]
            struct $name;
            impl Whole for $name {
                const DECLARED_NAME: &'static str = stringify!($name);
                type Home = Here;
            }
            impl Local for $name {}
        )*};
    }

    dims! { Vocab Hidden Heads KvHeads HeadDim Places }

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
    fn lookups_cost_nothing_and_attention_grows_with_the_sequence() {
        let comms = RankComms::unattended(MeshShape::SINGLE);
        let rank = Rank::new(comms, Box::new(CpuBackend::new(1).unwrap()), 0);
        let sizes = Sizes::new()
            .with(Vocab, 10)
            .with(Hidden, 4)
            .with(Heads, 6)
            .with(KvHeads, 3)
            .with(HeadDim, 5)
            .with(Places, 100);
        // A tied embedding is multiplied with as the head's weight.
        for tied in [false, true] {
            let sizes = sizes.clone().with_flag("tied", tied);
            let built = declare::<Tiny>(&rank, &sizes).unwrap();
            assert_eq!(built.global_len(), if tied { 440 } else { 480 });
            let expected = 6.0 * 40.0 + 12.0 * (6 * 5 * 7) as f64;
            assert_eq!(model_flops_per_token(&built, 7), expected, "tied: {tied}");
        }
    }

    /// Products of zeros are faster on a GPU than those of a model.
    #[test]
    fn the_peak_is_that_of_random_numbers() {
        let comms = RankComms::unattended(MeshShape::SINGLE);
        let rank = Rank::new(comms, Box::new(CpuBackend::new(1).unwrap()), 0);
        let meter = MemoryMeter::new();
        let [a, b] = [1, 2].map(|key| random_matrix(&rank, &meter, 64, key).view().to_vec::<f32>());
        let squares: f32 = a.iter().map(|x| x * x).sum();
        assert!((0.9..1.1).contains(&(squares / a.len() as f32)), "{squares}");
        assert_ne!(a, b);
    }

    #[test]
    fn the_peak_counts_each_core_once() {
        let comms = RankComms::unattended(MeshShape::SINGLE);
        let cores = std::thread::available_parallelism().unwrap().get();
        let rank = Rank::new(comms, Box::new(CpuBackend::new(cores * 2).unwrap()), 0);
        let peak = measure_peak(&rank);
        // Between a slow core's scalar arithmetic and more than any machine does.
        assert!((1e8..1e15).contains(&peak), "{peak}");
        assert_eq!(rank.meter().total_peak(), 0, "the measurement is no part of the run");
    }
}
