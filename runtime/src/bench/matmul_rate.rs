//! Times of matmuls on the device of a rank.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::{BlockIndex, Buffer, CachingAllocator, Category, DType, Gemm, StreamKind};
use crate::tensor::Rank;

/// The sizes of a matmul: `[m, k]` times `[k, n]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatmulSize {
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// Terms of each element of the result.
    pub k: usize,
}

impl MatmulSize {
    /// Creates the size of a product of square matrices.
    pub fn square(size: usize) -> MatmulSize {
        MatmulSize { m: size, n: size, k: size }
    }

    /// FLOPs, two for each multiply-add.
    pub fn flops(self) -> f64 {
        2.0 * self.m as f64 * self.n as f64 * self.k as f64
    }

    /// Bytes of the three matrices.
    pub fn bytes(self, dtype: DType) -> f64 {
        let [m, n, k] = [self.m, self.n, self.k].map(|size| size as f64);
        (m * k + k * n + m * n) * dtype.bytes() as f64
    }
}

/// Returns the seconds of the fastest of several matmuls: at least `runs` of them, for at least `duration`. Other work
/// on the machine only makes them slower.
pub fn measure_matmul(
    rank: &Rank,
    size: MatmulSize,
    dtype: DType,
    (runs, duration): (u32, Duration),
) -> f64 {
    // A separate allocator: these buffers are not part of the memory of training.
    let device = rank.allocator().device();
    let allocator = CachingAllocator::on(device.cloned(), usize::MAX);
    let finish = || {
        device
            .iter()
            .for_each(|device| device.synchronize(&device.mark_stream(StreamKind::Compute)))
    };
    let MatmulSize { m, n, k } = size;
    let matrix = |rows, columns, key| random_matrix(rank, &allocator, [rows, columns], dtype, key);
    let (a, b, mut c) = (matrix(m, k, 1), matrix(k, n, 2), matrix(m, n, 3));
    let gemm = Gemm { m, n, k, trans_a: false, trans_b: false, accumulate: false };
    // The first one touches the memory, and on a GPU chooses an algorithm.
    rank.backend().gemm(&gemm, a.view(), b.view(), c.view_mut());
    finish();
    let begin = Instant::now();
    let (mut done, mut best) = (0, Duration::MAX);
    while done < runs || begin.elapsed() < duration {
        let start = Instant::now();
        rank.backend().gemm(&gemm, a.view(), b.view(), c.view_mut());
        finish();
        best = best.min(start.elapsed());
        done += 1;
    }
    best.as_secs_f64()
}

/// Creates a matrix of normal random numbers, as in a model. A GPU draws less power for zeros, and runs at a higher
/// clock.
fn random_matrix(
    rank: &Rank,
    allocator: &Arc<CachingAllocator>,
    [rows, columns]: [usize; 2],
    dtype: DType,
    key: u64,
) -> Buffer {
    let mut numbers = allocator.alloc(DType::F32, rows * columns, Category::Workspace);
    let index = BlockIndex::whole(&[rows, columns]);
    rank.backend().fill_normal(key, 1.0, &index, numbers.view_mut());
    let mut matrix = allocator.alloc(dtype, rows * columns, Category::Workspace);
    rank.backend().cast(numbers.view(), matrix.view_mut());
    matrix
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::CpuBackend;
    use crate::comm::RankComms;
    use crate::mesh::MeshShape;

    /// A GPU multiplies zeros faster than the numbers of a model.
    #[test]
    fn matrices_have_random_numbers() {
        let comms = RankComms::unattended(MeshShape::SINGLE);
        let rank = Rank::new(comms, Box::new(CpuBackend::new(1).unwrap()), 0);
        let allocator = CachingAllocator::new();
        let [a, b] = [1, 2].map(|key| {
            let matrix = random_matrix(&rank, &allocator, [64, 32], DType::F32, key);
            matrix.view().to_vec::<f32>()
        });
        let squares: f32 = a.iter().map(|x| x * x).sum();
        assert!((0.9..1.1).contains(&(squares / a.len() as f32)), "{squares}");
        assert_ne!(a, b);
    }

    #[test]
    fn matmuls_count_multiply_adds_twice() {
        let size = MatmulSize { m: 3, n: 5, k: 7 };
        assert_eq!(size.flops(), 210.0);
        assert_eq!(size.bytes(DType::Bf16), 2.0 * (21 + 35 + 15) as f64);
        let comms = RankComms::unattended(MeshShape::SINGLE);
        let rank = Rank::new(comms, Box::new(CpuBackend::new(1).unwrap()), 0);
        assert!(measure_matmul(&rank, size, DType::Bf16, (3, Duration::ZERO)) > 0.0);
        // The warm-up and three runs.
        assert_eq!(rank.backend().flops(), 4 * 210);
        assert_eq!(rank.allocator().total_peak(), 0, "the measurement is not part of a run");
    }
}
