//! Embedding tables, whole or split by rows over ranks.

use crate::{DryRunBackend, View, ViewMut};

/// Embedding kernels.
pub trait EmbeddingOps {
    /// Gathers rows of `table[rows, cols]`; a token outside `first_row..first_row + rows` gives zeros.
    ///
    /// `tokens`: u32, one per row of `out[tokens, cols]`.
    fn embedding(&self, tokens: View, table: View, first_row: usize, out: ViewMut);
    /// Computes the backward of [`embedding`](Self::embedding): rows of `dout[tokens, cols]` are accumulated into
    /// `dtable[rows, cols]` (f32), in the order of tokens, except for rows of the token `padding`. A backend may first
    /// add up parts of the occurrences of a frequent token.
    fn embedding_backward(
        &self,
        tokens: View,
        padding: Option<u32>,
        first_row: usize,
        dout: View,
        dtable: ViewMut,
    );
}

impl EmbeddingOps for DryRunBackend {
    fn embedding(&self, _: View, _: View, _: usize, _: ViewMut) {}
    fn embedding_backward(&self, _: View, _: Option<u32>, _: usize, _: View, _: ViewMut) {}
}
