//! Newton-Schulz iteration: the approximate orthogonal factor of a matrix, by GEMMs alone.

use std::sync::Arc;

use meshwright_backend::{Backend, Buffer, Category, DType, Expr, Gemm, Node};

/// Coefficients of the iteration `x -> a x + b x^3 + c x^5` on singular values (Jordan et al., 2024): small values grow
/// fast, at the price that values do not converge to 1.
const COEFFICIENTS: (f32, f32, f32) = (3.4445, -4.7750, 2.0315);
/// Number of iterations: five map singular values from 0.01 to 1 to values from 0.68 to 1.14.
const ITERATIONS: usize = 5;
/// Avoids a division by zero for a matrix of zeros.
const EPS: f64 = 1e-7;

/// Returns a matrix with the singular vectors of `x`, f32 of `rows x cols`, and singular values near 1: from 0.68 to
/// 1.14, up to rounding, for those that are at least a hundredth of the Frobenius norm.
///
/// Computes five Newton-Schulz iterations `X -> a X + (b A + c A A) X` on `x` divided by its norm, with `A = X X^T`, or
/// from the right with `A = X^T X` if that is smaller (Jordan et al., 2024,
/// <https://kellerjordan.github.io/posts/muon>).
///
/// The GEMMs are in `dtype`: f32, or bf16 as in Jordan et al., with singular values from 0.6 to 1.25.
///
/// # Panics
/// If the length of `x` is not `rows * cols`: a fault of the calling code.
pub fn orthogonalize(
    backend: &dyn Backend,
    mut x: Buffer,
    rows: usize,
    cols: usize,
    dtype: DType,
) -> Buffer {
    assert_eq!(x.len(), rows * cols, "a matrix of {rows} x {cols}");
    let norm = backend.sum_squares(x.view()).sqrt() + EPS;
    backend.scale(x.view_mut(), (1.0 / norm) as f32);
    let narrowed = cast_to(backend, x, dtype);
    cast_to(backend, iterate_newton_schulz(backend, narrowed, rows, cols), DType::F32)
}

/// Returns the FLOPs of [`orthogonalize`].
pub fn orthogonalization_flops(rows: usize, cols: usize) -> usize {
    let (side, long) = (rows.min(cols), rows.max(cols));
    ITERATIONS * 2 * side * side * (2 * long + side)
}

fn iterate_newton_schulz(backend: &dyn Backend, mut x: Buffer, rows: usize, cols: usize) -> Buffer {
    let (wide, side) = (rows <= cols, rows.min(cols));
    let (a, b, c) = COEFFICIENTS;
    let square =
        Gemm { m: side, n: side, k: side, trans_a: false, trans_b: false, accumulate: false };
    let gram = Gemm { k: rows.max(cols), trans_a: !wide, trans_b: wide, ..square };
    let apply = Gemm { m: rows, n: cols, accumulate: true, ..square };
    let (allocator, dtype) = (Arc::clone(x.allocator()), x.dtype());
    let alloc = |len| allocator.alloc(dtype, len, Category::Workspace);
    let mut next = alloc(x.len());
    let [mut first, mut second, mut sum] = [(); 3].map(|()| alloc(side * side));
    for _ in 0..ITERATIONS {
        backend.gemm(&gram, x.view(), x.view(), first.view_mut());
        backend.gemm(&square, first.view(), first.view(), second.view_mut());
        backend.map(&weighted_sum(b, c), &[first.view(), second.view()], sum.view_mut());
        backend.map(&scaled_by(a), &[x.view()], next.view_mut());
        if wide {
            backend.gemm(&apply, sum.view(), x.view(), next.view_mut());
        } else {
            backend.gemm(&apply, x.view(), sum.view(), next.view_mut());
        }
        std::mem::swap(&mut x, &mut next);
    }
    x
}

fn cast_to(backend: &dyn Backend, x: Buffer, dtype: DType) -> Buffer {
    if x.dtype() == dtype {
        return x;
    }
    let mut other = x.allocator().alloc(dtype, x.len(), Category::Workspace);
    backend.cast(x.view(), other.view_mut());
    other
}

/// Returns the expression `b * first + c * second`.
fn weighted_sum(b: f32, c: f32) -> Expr {
    let nodes =
        vec![Node::Leaf(0), Node::Scale(0, b), Node::Leaf(1), Node::Scale(2, c), Node::Add(1, 3)];
    Expr { nodes }
}

/// Returns the expression `a * x`.
fn scaled_by(a: f32) -> Expr {
    Expr { nodes: vec![Node::Leaf(0), Node::Scale(0, a)] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random;
    use meshwright_backend::CachingAllocator;
    use meshwright_cpu::CpuBackend;

    #[test]
    fn flops_are_those_of_the_gemms() {
        let backend = CpuBackend::new(1).unwrap();
        for (rows, cols) in [(8, 8), (4, 16), (16, 4)] {
            let x = CachingAllocator::new().copy_of(&vec![1f32; rows * cols], Category::Workspace);
            let before = backend.flops();
            orthogonalize(&backend, x, rows, cols, DType::F32);
            assert_eq!(backend.flops() - before, orthogonalization_flops(rows, cols) as u64);
        }
    }

    #[test]
    fn singular_values_near_one_and_same_vectors() {
        let backend = CpuBackend::new(1).unwrap();
        for (rows, cols, smallest) in
            [(8, 8, 0.05), (12, 40, 0.02), (40, 12, 0.02), (1, 7, 1.0), (7, 1, 1.0), (33, 64, 0.1)]
        {
            let side = rows.min(cols);
            let (left, right) = (orthonormal(rows, side, 1), orthonormal(cols, side, 2));
            // Evenly spaced from 1 down to `smallest`; the norm is less than the root of their number.
            let fraction = |index: usize| index as f64 / (side - 1).max(1) as f64;
            let values: Vec<f64> =
                (0..side).map(|index| 1.0 - (1.0 - smallest) * fraction(index)).collect();
            let x = composed(&left, &values, &right);
            let allocator = CachingAllocator::new();
            let narrow: Vec<f32> = x.iter().map(|x| *x as f32).collect();
            for (dtype, band, tolerance) in
                [(DType::F32, 0.68..=1.14, 1e-5), (DType::Bf16, 0.6..=1.25, 0.05)]
            {
                let x = allocator.copy_of(&narrow, Category::Workspace);
                let got = orthogonalize(&backend, x, rows, cols, dtype);
                let got: Vec<f64> = got.typed::<f32>().iter().copied().map(f64::from).collect();
                // Singular values along the vectors of `x`, and a residual of zero.
                let found = along(&got, &left, &right);
                let case = format!("{rows} x {cols}, {dtype}");
                assert!(found.iter().all(|value| band.contains(value)), "{case}: {found:?}");
                let residual = composed(&left, &found, &right);
                let residual = got.iter().zip(residual).map(|(x, y)| (x - y).abs());
                let residual = residual.fold(0.0, f64::max);
                assert!(residual < tolerance, "{case}: {residual}");
            }
        }
    }

    #[test]
    fn zeros_stay_zeros() {
        let backend = CpuBackend::new(1).unwrap();
        let x = CachingAllocator::new().zeros(DType::F32, 20, Category::Workspace);
        assert_eq!(orthogonalize(&backend, x, 4, 5, DType::F32).typed::<f32>(), [0.0; 20]);
    }

    /// `left^T x right` for each pair of vectors.
    fn along(x: &[f64], left: &[Vec<f64>], right: &[Vec<f64>]) -> Vec<f64> {
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let image = |right: &[f64]| -> Vec<f64> {
            x.chunks_exact(right.len()).map(|row| dot(row, right)).collect()
        };
        left.iter().zip(right).map(|(left, right)| dot(left, &image(right))).collect()
    }

    /// `count` vectors of `len`, each of norm 1 and orthogonal to the others.
    fn orthonormal(len: usize, count: usize, seed: u64) -> Vec<Vec<f64>> {
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let mut vectors: Vec<Vec<f64>> = Vec::new();
        for index in 0..count {
            let number = |element: usize| {
                let key =
                    random::subkey(random::key(seed, "vectors"), (index * 100 + element) as u64);
                (key >> 11) as f64 / (1u64 << 52) as f64 - 1.0
            };
            let mut vector: Vec<f64> = (0..len).map(number).collect();
            // Twice, against rounding.
            for other in vectors.iter().chain(&vectors) {
                let along = dot(&vector, other);
                vector.iter_mut().zip(other).for_each(|(x, y)| *x -= along * y);
            }
            let norm = dot(&vector, &vector).sqrt();
            vectors.push(vector.iter().map(|x| x / norm).collect());
        }
        vectors
    }

    fn composed(left: &[Vec<f64>], values: &[f64], right: &[Vec<f64>]) -> Vec<f64> {
        let (rows, cols) = (left[0].len(), right[0].len());
        let element = |row: usize, col: usize| -> f64 {
            (0..values.len()).map(|i| values[i] * left[i][row] * right[i][col]).sum()
        };
        (0..rows * cols).map(|index| element(index / cols, index % cols)).collect()
    }
}
