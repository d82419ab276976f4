//! Embedding tables, whole or split by rows over ranks.

use crate::gpu::args;
use crate::kernels::EMBEDDING;
use crate::{CudaBackend, Grid};
use meshwright_backend::{DType, EmbeddingOps, View, ViewMut};

use super::launch::{THREADS, address, aligned, covering, float_name, vector_width};
use super::sort::SortSpace;

/// Occurrences of a token that one block sums; `SEGMENT` of the kernels.
const SEGMENT: usize = 64;

/// Maximum threads for the columns of a row of a gradient; more columns take more blocks.
const ROW_THREADS: u64 = 128;

impl EmbeddingOps for CudaBackend {
    fn embedding(&self, tokens: View, table: View, first_row: usize, out: ViewMut) {
        let gpu = self.gpu();
        let out = out.as_view();
        let cols = columns(tokens, out);
        assert_eq!(table.dtype(), out.dtype(), "rows are copied as they are");
        float_name(out.dtype());
        if cols == 0 {
            return;
        }
        let row_bytes = cols * out.dtype().bytes();
        let fits = |unit: usize| {
            row_bytes.is_multiple_of(unit)
                && [table, out].iter().all(|view| address(*view).is_multiple_of(unit as u64))
        };
        let unit = [16, 4].into_iter().find(|unit| fits(*unit)).unwrap_or(2);
        let units = (row_bytes / unit) as u64;
        // A row is copied by neighboring threads of one block.
        let width = units.next_power_of_two().min(u64::from(THREADS)) as u32;
        let n = tokens.len() as u64;
        let rows = (table.len() / cols) as u64;
        let name = format!("gather_{unit}");
        let grid = covering(gpu, n * u64::from(width));
        // SAFETY: `out` has a row for every token, and rows of the table are read only where it has them.
        unsafe {
            gpu.launch(
                (&EMBEDDING, &name),
                grid,
                args![
                    address(tokens),
                    n,
                    address(table),
                    first_row as u64,
                    rows,
                    address(out),
                    units,
                    width
                ],
            )
        };
    }

    /// Tokens are sorted by their rows. Each block sums a segment of up to `SEGMENT` occurrences of a token, then the
    /// sums of the segments of a token are added in order. This bounds the chain of additions of frequent tokens, and
    /// the order depends on the occurrences of the token alone.
    fn embedding_backward(
        &self,
        tokens: View,
        padding: Option<u32>,
        first_row: usize,
        dout: View,
        dtable: ViewMut,
    ) {
        let gpu = self.gpu();
        let dtable = dtable.as_view();
        let cols = columns(tokens, dout);
        assert_eq!(dtable.dtype(), DType::F32, "the gradient of a table is f32");
        let dtype = float_name(dout.dtype());
        if cols == 0 || dtable.len() < cols {
            return;
        }
        let rows = (dtable.len() / cols) as u64;
        assert!(rows < u64::from(u32::MAX), "rows of a table are counted in 32 bits");
        // No table has this row.
        let padding = padding.unwrap_or(u32::MAX);
        let n = tokens.len() as u64;
        let sort_bytes = SortSpace::bytes(tokens.len()).next_multiple_of(256);
        let segments = tokens.len().div_ceil(SEGMENT);
        let workspace = gpu.workspace(sort_bytes + segments * cols * DType::F32.bytes());
        let (space, partials) =
            (SortSpace::new(workspace, tokens.len()), workspace + sort_bytes as u64);
        // SAFETY: there is room for the key of every token.
        unsafe {
            gpu.launch(
                (&EMBEDDING, "local_rows"),
                covering(gpu, n),
                args![address(tokens), n, padding, first_row as u64, rows, space.keys],
            )
        };
        // SAFETY: the keys are written, and tokens beyond the table and the padding have the largest.
        let sorted = unsafe { space.sort(gpu, rows) };

        let vector = vector_width(dout.dtype());
        let vectors = cols.is_multiple_of(vector) && aligned(&[dout, dtable], vector);
        let (suffix, vector) = if vectors { ("_vectors", vector) } else { ("", 1) };
        let name = format!("add_rows_{dtype}{suffix}");
        // SAFETY: positions are numbers of tokens, each with a row of `dout`, and keys below `rows` are rows of
        // `dtable`; there is room for a row of every segment.
        unsafe {
            gpu.launch(
                (&EMBEDDING, &name),
                row_grid(n, cols, vector),
                args![
                    sorted.keys,
                    sorted.order,
                    n,
                    address(dout),
                    address(dtable),
                    partials,
                    rows,
                    cols as u64
                ],
            )
        };
        if segments < 2 {
            return;
        }
        let vector = vector_width(DType::F32);
        let vectors = cols.is_multiple_of(vector) && aligned(&[dtable], vector);
        let (name, vector) =
            if vectors { ("add_segments_vectors", vector) } else { ("add_segments", 1) };
        // SAFETY: as above, and the sums of all segments but the first of each row are written.
        unsafe {
            gpu.launch(
                (&EMBEDDING, name),
                row_grid(segments as u64, cols, vector),
                args![sorted.keys, n, partials, address(dtable), rows, cols as u64],
            )
        };
    }
}

/// Returns the columns of a matrix with a row for every token; 0 without tokens.
fn columns(tokens: View, matrix: View) -> usize {
    assert_eq!(tokens.dtype(), DType::U32, "tokens are u32");
    let cols = matrix.len().checked_div(tokens.len()).unwrap_or(0);
    assert!(tokens.is_empty() || matrix.len() == tokens.len() * cols, "one row per token");
    cols
}

/// Returns a grid with a block along x for each of `n` rows, and blocks along y for the columns, `vector` per thread.
fn row_grid(n: u64, cols: usize, vector: usize) -> Grid {
    let per_row = cols.div_ceil(vector) as u64;
    let threads = per_row.next_power_of_two().clamp(32, ROW_THREADS);
    let blocks = [n.min(i32::MAX as u64) as u32, per_row.div_ceil(threads).min(65535) as u32, 1];
    Grid { blocks, threads: threads as u32, shared: 0 }
}
