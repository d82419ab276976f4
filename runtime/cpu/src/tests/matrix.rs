//! Parts of packed operands.

use crate::gemm::{Matrix, RightOperand};
use crate::simd::at_every_isa;
use meshwright_conformance::{assert_near, values};

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
                assert_near(
                    &format!("{sizes:?} {steps:?} {columns:?}"),
                    &got,
                    &expected,
                    2e-6,
                    0.1,
                );
            });
        }
    }
}
