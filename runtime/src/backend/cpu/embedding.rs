//! Embedding tables, whole or cut by rows over ranks.

use super::float::Float;
use super::simd::dispatch;
use super::workers::{Rows, Workers};

/// The row of a token in a table that starts at `first_row`, if it is there.
fn local_row(token: u32, first_row: usize, rows: usize) -> Option<usize> {
    (token as usize).checked_sub(first_row).filter(|row| *row < rows)
}

pub(super) fn embedding<T: Float>(
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

/// Every thread owns some rows of the table and takes the tokens in order, so sums do not depend on threads. Frequent
/// tokens of a text are neighbours in most vocabularies, so the rows are cut by their tokens.
pub(super) fn embedding_backward<T: Float>(
    workers: &Workers,
    tokens: &[u32],
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
    let cuts = cuts(tokens, first_row, rows, workers.parts(tokens.len() * cols));
    let ranges = cuts.windows(2).map(|cut| cut[0]..cut[1]);
    workers.ranges(ranges, Rows(dtable, cols), |range, dtable| {
        for (token, dout) in tokens.iter().zip(dout.chunks_exact(cols)) {
            if let Some(row) = local_row(*token, first_row + range.start, range.len()) {
                add(&mut dtable.0[row * cols..][..cols], dout);
            }
        }
    });
}

/// Where to cut a table's rows, from 0 to `rows`, into `parts` parts that have about the same number of tokens.
fn cuts(tokens: &[u32], first_row: usize, rows: usize, parts: usize) -> Vec<usize> {
    let mut cuts = vec![0];
    if parts > 1 {
        let mut counts = vec![0; rows];
        let local = tokens.iter().filter_map(|token| local_row(*token, first_row, rows));
        local.for_each(|row| counts[row] += 1);
        let (total, mut before) = (counts.iter().sum::<usize>(), 0);
        for (row, count) in counts.into_iter().enumerate() {
            before += count;
            if cuts.len() < parts && before * parts >= total * cuts.len() {
                cuts.push(row + 1);
            }
        }
    }
    cuts.push(rows);
    cuts
}

dispatch! {
    fn add<const FMA: bool, T: Float>(sum: &mut [f32], row: &[T]) {
        for (sum, x) in sum.iter_mut().zip(row) {
            *sum += x.widen();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::cuts;

    #[test]
    fn parts_have_about_the_same_number_of_tokens() {
        // The i-th token occurs 4000 / i times.
        let tokens: Vec<u32> = (1..=1000).flat_map(|i| vec![i + 6; 4000 / i as usize]).collect();
        for parts in 1..9 {
            let cuts = cuts(&tokens, 7, 1000, parts);
            assert_eq!((cuts.len(), cuts[0], cuts[parts]), (parts + 1, 0, 1000));
            let of = |cut: &[usize]| {
                tokens.iter().filter(|t| (cut[0]..cut[1]).contains(&(**t as usize - 7))).count()
            };
            let most = cuts.windows(2).map(of).max().unwrap();
            assert!(most <= tokens.len() / parts + 4000, "{parts} parts: {most}");
        }
        assert_eq!(cuts(&[3, u32::MAX], 10, 5, 4), [0, 1, 2, 3, 5]);
    }
}
