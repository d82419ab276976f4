use super::{
    CpuBackend, assert_close, assert_same_on_any_threads, at_every_isa, on_every_backend, values,
    wide,
};
use crate::gemm::{Matrix, RightOperand};
use meshwright_backend::{Backend, Gemm};

fn layouts() -> impl Iterator<Item = (bool, bool, bool)> {
    (0..8).map(|bits| (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0))
}

fn product(cpu: &dyn Backend, g: &Gemm) -> Vec<f32> {
    let (a, b) = (values(g.m * g.k, 1), values(g.k * g.n, 2));
    // Overwritten elements must not be read.
    let mut c = if g.accumulate { values(g.m * g.n, 3) } else { vec![f32::NAN; g.m * g.n] };
    cpu.gemm(g, (&a[..]).into(), (&b[..]).into(), (&mut c[..]).into());
    c
}

fn reference(g: &Gemm) -> Vec<f64> {
    let &Gemm { m, n, k, trans_a, trans_b, accumulate } = g;
    let (a, b) = (wide(&values(m * k, 1)), wide(&values(k * n, 2)));
    let mut c = if accumulate { wide(&values(m * n, 3)) } else { vec![0.0; m * n] };
    for (i, row) in c.chunks_exact_mut(n).enumerate() {
        for p in 0..k {
            let a = if trans_a { a[p * m + i] } else { a[i * k + p] };
            for (j, c) in row.iter_mut().enumerate() {
                *c += a * if trans_b { b[j * k + p] } else { b[p * n + j] };
            }
        }
    }
    c
}

#[test]
fn products_of_every_layout_follow_the_formula() {
    let of_tiles = [[17, 30, 129], [130, 70, 65], [8, 8, 0]];
    let skinny = [[1, 1, 1], [1, 33, 7], [65, 1, 40], [7, 300, 130], [600, 5, 70], [2, 3, 64]];
    for [m, n, k] in of_tiles.into_iter().chain(skinny) {
        for (trans_a, trans_b, accumulate) in layouts() {
            let g = Gemm { m, n, k, trans_a, trans_b, accumulate };
            let expected = reference(&g);
            on_every_backend(|cpu| {
                assert_close(&format!("{g:?}"), &product(cpu, &g), &expected, 1e-6)
            });
        }
    }
}

#[test]
fn products_are_the_same_on_any_number_of_threads() {
    for [m, n, k] in [[200, 300, 500], [3, 2000, 301], [2000, 1, 301]] {
        for (trans_a, trans_b, accumulate) in layouts() {
            let g = Gemm { m, n, k, trans_a, trans_b, accumulate };
            assert_same_on_any_threads(&format!("{g:?}"), |cpu| product(cpu, &g));
        }
    }
}

#[test]
fn operations_are_counted() {
    let cpu = CpuBackend::new(1).expect("one thread starts nothing");
    let (trans_a, trans_b, accumulate) = (false, false, false);
    product(&cpu, &Gemm { m: 3, n: 5, k: 7, trans_a, trans_b, accumulate });
    assert_eq!(cpu.flops(), 2 * 3 * 5 * 7);
}

/// The product of two parts of operands, in f64.
fn product_of_parts(a: Matrix, b: Matrix, [m, n, k]: [usize; 3]) -> Vec<f64> {
    let at = |x: Matrix, i: usize, j: usize| f64::from(x.data[i * x.row + j * x.col]);
    let element = |i: usize, j: usize| (0..k).map(|p| at(a, i, p) * at(b, p, j)).sum();
    (0..m).flat_map(|i| (0..n).map(move |j| element(i, j))).collect()
}

#[test]
fn packed_operands_give_the_products_of_parts() {
    // Sizes, and the steps and columns that are read.
    let parts = [
        ([5, 3], 0..5, 0..3),
        ([64, 100], 0..64, 32..100),
        ([70, 200], 3..70, 64..128),
        ([700, 40], 100..700, 0..40),
    ];
    for (sizes @ [k, n], steps, columns) in parts {
        let (b, m) = (values(k * n, 2), 13);
        let a = values(m * steps.len(), 1);
        for bits in 0..8 {
            let rows = if bits & 1 != 0 { Matrix::transposed(&b, k) } else { Matrix::rows(&b, n) };
            let left = if bits & 2 != 0 {
                Matrix::transposed(&a, m)
            } else {
                Matrix::rows(&a, steps.len())
            };
            let first = steps.start * rows.row + columns.start * rows.col;
            let part = Matrix { data: &b[first..], ..rows };
            let mut expected = product_of_parts(left, part, [m, columns.len(), steps.len()]);
            let accumulate = bits & 4 != 0;
            let c =
                if accumulate { values(expected.len(), 3) } else { vec![f32::NAN; expected.len()] };
            if accumulate {
                expected.iter_mut().zip(&c).for_each(|(sum, c)| *sum += f64::from(*c));
            }
            at_every_isa(|| {
                // More scratch than needed, with numbers that must not be read.
                let mut scratch = vec![f32::NAN; RightOperand::scratch_len([k + 2, n])];
                let mut operand = RightOperand::new(&mut scratch, 64);
                operand.pack(sizes, rows);
                let mut got = c.clone();
                operand.multiply(left, steps.clone(), columns.clone(), accumulate, &mut got);
                assert_close(&format!("{sizes:?} {steps:?} {columns:?}"), &got, &expected, 2e-6);
            });
        }
    }
}
