//! The gradients of the queries that see some keys.

use std::ops::Range;

/// Gradients of the queries of one head, accumulated over a moving range of rows.
///
/// Sections of the keys see queries whose ranges never move back. So a row that a range no longer contains is complete.
pub(super) struct QuerySums<'a> {
    /// Row by row, from the first one of `rows` on.
    sums: &'a mut [f32],
    row_len: usize,
    /// Queries whose gradients are in `sums`.
    rows: Range<usize>,
}

impl<'a> QuerySums<'a> {
    /// Creates an empty range of sums, with memory for the longest range.
    pub fn new(sums: &'a mut [f32], row_len: usize) -> Self {
        QuerySums { sums, row_len, rows: 0..0 }
    }

    /// Moves on to a range of queries, and calls `put` for each complete gradient; `None` is zero.
    pub fn advance_to(&mut self, to: Range<usize>, mut put: impl FnMut(usize, Option<&[f32]>)) {
        let (len, rows) = (self.row_len, self.rows.clone());
        for query in rows.start..to.start {
            let row = (query < rows.end).then(|| &self.sums[(query - rows.start) * len..][..len]);
            put(query, row);
        }
        let kept = to.start.max(rows.start).min(rows.end)..rows.end;
        let from = (kept.start - rows.start) * len;
        self.sums.copy_within(from..from + kept.len() * len, 0);
        self.sums[kept.len() * len..to.len().max(kept.len()) * len].fill(0.0);
        self.rows = to.start..to.end.max(kept.end);
    }

    /// Calls `put` for the gradients of all remaining queries, out of `queries`, and resets the range.
    pub fn finish_rows(&mut self, queries: usize, put: impl FnMut(usize, Option<&[f32]>)) {
        self.advance_to(queries..queries, put);
        self.rows = 0..0;
    }

    /// Returns the gradients of some of the queries.
    pub fn sums_of(&mut self, queries: &Range<usize>) -> &mut [f32] {
        let start = (queries.start - self.rows.start) * self.row_len;
        &mut self.sums[start..start + queries.len() * self.row_len]
    }
}
