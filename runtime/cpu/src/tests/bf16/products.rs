use half::bf16;

use super::{Kernel, Results, assert_rounds, input, on_every_backend, values, view, view_mut};
use crate::float::Float;
use meshwright_backend::{Backend, Gemm};

impl Kernel for Gemm {
    fn run<T: Float>(&self, cpu: &dyn Backend) -> Results<T> {
        let &Gemm { m, n, k, accumulate, .. } = self;
        let (a, b) = (input::<T>(m * k, 1, 1.0), input::<T>(k * n, 2, 1.0));
        let mut c = input::<T>(m * n, 3, 1.0);
        let mut wide = values(m * n, 4);
        if !accumulate {
            // Overwritten elements must not be read.
            c.fill(T::narrow_from_f32(f32::NAN));
            wide.fill(f32::NAN);
        }
        cpu.gemm(self, view(&a), view(&b), view_mut(&mut c));
        cpu.gemm(self, view(&a), view(&b), view_mut(&mut wide));
        Results { rounded: vec![("c", c)], wide: vec![("c in f32", wide)] }
    }
}

#[test]
fn products() {
    for [m, n, k] in [
        [1, 1, 1],
        [1, 33, 7],
        [65, 1, 40],
        [17, 30, 129],
        [130, 70, 65],
        [8, 8, 0],
        [33, 40, 1000],
        [200, 300, 500],
    ] {
        for bits in 0..8 {
            let (trans_a, trans_b, accumulate) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
            let g = Gemm { m, n, k, trans_a, trans_b, accumulate };
            assert_rounds(&format!("{g:?}"), &g, 2e-6);
        }
    }
}

#[test]
fn sums_are_kept_in_f32() {
    // In bf16, a sum of ones would not grow beyond 256.
    let (m, n, k) = (3, 40, 5000);
    let g = Gemm { m, n, k, trans_a: true, trans_b: false, accumulate: true };
    let (a, b) = (vec![bf16::ONE; k * m], vec![bf16::ONE; k * n]);
    on_every_backend(|cpu| {
        let mut c = vec![1f32; m * n];
        cpu.gemm(&g, view(&a), view(&b), view_mut(&mut c));
        assert_eq!(c, vec![5001.0; m * n]);
    });
}

#[test]
fn nan_and_infinity_reach_their_row_and_column() {
    let (m, n, k) = (40, 50, 60);
    let g = Gemm { m, n, k, trans_a: false, trans_b: false, accumulate: false };
    let (mut a, b) = (vec![bf16::ONE; m * k], vec![bf16::ONE; k * n]);
    (a[7 * k + 3], a[9 * k + 59]) = (bf16::NAN, bf16::INFINITY);
    on_every_backend(|cpu| {
        let (mut c, mut wide) = (vec![bf16::ZERO; m * n], vec![0f32; m * n]);
        cpu.gemm(&g, view(&a), view(&b), view_mut(&mut c));
        cpu.gemm(&g, view(&a), view(&b), view_mut(&mut wide));
        for (i, (c, wide)) in c.iter().zip(&wide).enumerate() {
            for c in [c.to_f32(), *wide] {
                match i / n {
                    7 => assert!(c.is_nan()),
                    9 => assert_eq!(c, f32::INFINITY),
                    _ => assert_eq!(c, 60.0),
                }
            }
        }
    });
}

#[test]
fn empty_contractions_write_zeros() {
    on_every_backend(|cpu| {
        for [m, n, k] in [[0, 9, 4], [9, 0, 4], [9, 8, 0]] {
            let g = Gemm { m, n, k, trans_a: true, trans_b: false, accumulate: false };
            let (a, b) = (vec![bf16::ONE; m * k], vec![bf16::ONE; k * n]);
            let (mut c, mut wide) = (vec![bf16::NAN; m * n], vec![f32::NAN; m * n]);
            cpu.gemm(&g, view(&a), view(&b), view_mut(&mut c));
            cpu.gemm(&g, view(&a), view(&b), view_mut(&mut wide));
            assert!(c.iter().all(|c| c.to_bits() == 0) && wide.iter().all(|c| c.to_bits() == 0));
        }
    });
}
