//! Embedding tables, whole or split by rows over ranks.

use super::CpuBackend;
use super::float::{Float, by_float};
use super::simd::dispatch;
use super::workers::{Rows, Workers};
use meshwright_backend::{EmbeddingOps, View, ViewMut};

impl EmbeddingOps for CpuBackend {
    fn embedding(&self, tokens: View, table: View, first_row: usize, mut out: ViewMut) {
        by_float!(out.dtype() => T;
            embedding::<T>(&self.workers, tokens.typed(), table.typed(), first_row, out.typed()));
    }

    fn embedding_backward(
        &self,
        tokens: View,
        padding: Option<u32>,
        first_row: usize,
        dout: View,
        mut dtable: ViewMut,
    ) {
        let (workers, tokens) = (&self.workers, (tokens.typed(), padding));
        by_float!(dout.dtype() => T;
            embedding_backward::<T>(workers, tokens, first_row, dout.typed(), dtable.typed()));
    }
}

/// Returns the row of a token in a table that starts at `first_row`, if the table has it.
fn local_row(token: u32, first_row: usize, rows: usize) -> Option<usize> {
    (token as usize).checked_sub(first_row).filter(|row| *row < rows)
}

fn embedding<T: Float>(
    workers: &Workers,
    tokens: &[u32],
    table: &[T],
    first_row: usize,
    out: &mut [T],
) {
    if tokens.is_empty() {
        return;
    }
    let cols = out.len() / tokens.len();
    assert_eq!(out.len(), tokens.len() * cols, "embedding: one row per token");
    if cols == 0 {
        return;
    }
    let rows = table.len() / cols;
    workers.rows(tokens.len(), cols, Rows(out, cols), |range, out| {
        for (token, out) in tokens[range].iter().zip(out.0.chunks_exact_mut(cols)) {
            match local_row(*token, first_row, rows) {
                Some(row) => out.copy_from_slice(&table[row * cols..][..cols]),
                None => out.fill(T::ZERO),
            }
        }
    });
}

/// Accumulates gradients of rows, except that of the padding. Each thread owns some rows of the table and processes the
/// tokens in order, so sums do not depend on the number of threads.
fn embedding_backward<T: Float>(
    workers: &Workers,
    (tokens, padding): (&[u32], Option<u32>),
    first_row: usize,
    dout: &[T],
    dtable: &mut [f32],
) {
    if tokens.is_empty() {
        return;
    }
    let cols = dout.len() / tokens.len();
    assert_eq!(dout.len(), tokens.len() * cols, "embedding: one row per token");
    if cols == 0 {
        return;
    }
    let rows = dtable.len() / cols;
    workers.rows(rows, cols, Rows(dtable, cols), |range, dtable| {
        let rows = tokens.iter().zip(dout.chunks_exact(cols));
        for (token, dout) in rows.filter(|(token, _)| Some(**token) != padding) {
            if let Some(row) = local_row(*token, first_row + range.start, range.len()) {
                add_row(&mut dtable.0[row * cols..][..cols], dout);
            }
        }
    });
}

dispatch! {
    fn add_row<const FMA: bool, T: Float>(sum: &mut [f32], row: &[T]) {
        for (sum, x) in sum.iter_mut().zip(row) {
            *sum += x.widen_to_f32();
        }
    }
}
