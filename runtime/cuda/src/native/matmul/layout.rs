//! Row-major matmuls as the column-major matmuls that cuBLASLt computes.

use crate::MatMul;
use meshwright_backend::DType;

/// A column-major matrix: element `(i, j)` at `i + j * ld`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatrixLayout {
    pub dtype: DType,
    pub rows: u64,
    pub cols: u64,
    pub ld: i64,
    /// Distance to the next matrix of a batch, in elements.
    pub stride: i64,
}

/// `result (+)= op(left) * op(right)` of column-major matrices, for each element of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnMajorMatMul {
    pub left: MatrixLayout,
    pub transpose_left: bool,
    pub right: MatrixLayout,
    pub transpose_right: bool,
    pub result: MatrixLayout,
    /// Number of matmuls.
    pub count: i32,
}

impl ColumnMajorMatMul {
    /// Returns the column-major matmul over the same memory.
    ///
    /// A row-major matrix is the transpose of a column-major one, and `c = a * b` is `c^T = b^T * a^T`: the inputs
    /// change places, and each stays transposed if it was.
    pub fn from_shape(shape: &MatMul) -> ColumnMajorMatMul {
        let (gemm, all) = (&shape.gemm, shape.batched_gemm());
        let [_, batch] = all.batch;
        let layout = |operand: usize, dtype| {
            let [rows, cols] = all.stored()[operand];
            let (ld, stride) = (all.lead[operand] as i64, batch.strides[operand] as i64);
            MatrixLayout { dtype, rows: cols as u64, cols: rows as u64, ld, stride }
        };
        ColumnMajorMatMul {
            left: layout(1, shape.inputs),
            transpose_left: gemm.trans_b,
            right: layout(0, shape.inputs),
            transpose_right: gemm.trans_a,
            result: layout(2, shape.result),
            count: batch.count as i32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MatMulEpilogue;
    use meshwright_backend::Gemm;

    /// Returns element `(i, j)` of a column-major matrix, transposed or not.
    fn element(data: &[f32], layout: &MatrixLayout, transposed: bool, i: u64, j: u64) -> f32 {
        let (i, j) = if transposed { (j, i) } else { (i, j) };
        assert!(i < layout.rows && j < layout.cols);
        data[(i + j * layout.ld as u64) as usize]
    }

    #[test]
    fn column_major_matmul_gives_the_row_major_result() {
        let (m, n, k) = (3, 5, 4);
        let a: Vec<f32> = (0..m * k).map(|i| (i * 7 % 11) as f32 - 5.0).collect();
        let b: Vec<f32> = (0..k * n).map(|i| (i * 5 % 13) as f32 - 6.0).collect();
        for (trans_a, trans_b) in [(false, false), (true, false), (false, true), (true, true)] {
            let gemm = Gemm { m, n, k, trans_a, trans_b, accumulate: false };
            let (inputs, result) = (DType::Bf16, DType::F32);
            let shape = MatMul {
                gemm,
                inputs,
                result,
                epilogue: MatMulEpilogue::Plain,
                is_grouped: false,
                batch: None,
            };
            let matmul = ColumnMajorMatMul::from_shape(&shape);
            assert_eq!((matmul.left.dtype, matmul.result.dtype), (DType::Bf16, DType::F32));
            for row in 0..m {
                for col in 0..n {
                    let expected: f32 = (0..k)
                        .map(|i| {
                            let a = if trans_a { a[i * m + row] } else { a[row * k + i] };
                            a * if trans_b { b[col * k + i] } else { b[i * n + col] }
                        })
                        .sum();
                    // Element (row, col) of the row-major result is element (col, row) of the column-major one.
                    let result: f32 = (0..k as u64)
                        .map(|i| {
                            let (row, col) = (row as u64, col as u64);
                            element(&b, &matmul.left, matmul.transpose_left, col, i)
                                * element(&a, &matmul.right, matmul.transpose_right, i, row)
                        })
                        .sum();
                    let offset = col + row * matmul.result.ld as usize;
                    assert_eq!((result, offset), (expected, row * n + col));
                }
            }
        }
    }
}
