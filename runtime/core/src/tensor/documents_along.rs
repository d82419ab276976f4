//! Documents in the rows of tensors that elementwise operations read: as masks, and as positions.

use std::rc::Rc;

use crate::autograd::{Binary, Pointwise, Value};
use crate::context::{DocumentIds, Rank};
use crate::layout::{DimInfo, Dims};
use meshwright_backend::{Category, Comparison};
use meshwright_mesh::__internal::{local_len, shape_name};
use meshwright_mesh::Extent;

use super::Tensor;

/// A tensor in whose rows documents are looked for.
#[derive(Clone, Copy)]
pub(super) struct InRows<'a> {
    pub(super) rank: &'a Rank,
    dims: &'static [DimInfo],
    pub(super) extents: &'a [Extent],
}

/// Documents of the rows along one dim of a tensor.
struct Rows {
    documents: Rc<DocumentIds>,
    /// Position of the dim of the samples.
    samples: usize,
}

impl<'a> InRows<'a> {
    pub(super) fn of<S: Dims>(tensor: &'a Tensor<S>) -> InRows<'a> {
        InRows { rank: tensor.rank(), dims: S::DIMS, extents: tensor.local_extents() }
    }

    /// Returns the documents along the dim at `sequence`; `None` if no tokens that the tensor is computed from have
    /// several in a row.
    ///
    /// # Panics
    /// If they have several, but the documents of these rows are not known.
    #[track_caller]
    fn find(&self, sequence: usize, reader: &str) -> Option<Rows> {
        let InRows { rank, dims, extents } = *self;
        rank.note_use_of_documents();
        let found = (0..dims.len()).filter(|samples| *samples != sequence).find_map(|samples| {
            let documents = rank.documents_of(&[dims[samples], dims[sequence]])?;
            Some(Rows { documents: Rc::clone(documents), samples })
        });
        let Some(rows) = found else {
            assert!(
                !rank.has_documents(),
                "`{reader}` along `{}` of a tensor shaped {}: the tokens that it is computed from have documents in \
                 their rows, but not along this dim; name the sequence of the tokens first, and keep the dim of their \
                 samples",
                dims[sequence].name,
                shape_name(dims)
            );
            return None;
        };
        let [own_rows, own_sequence] = [rows.documents.extents[0], rows.documents.extents[1]];
        assert!(
            extents[rows.samples] == own_rows && extents[sequence].global == own_sequence.global,
            "`{reader}` along `{}` of a tensor shaped {} of {} rows of {}: the documents are those of {} rows of {}; \
             take the documents of the tokens that the tensor is computed from",
            dims[sequence].name,
            shape_name(dims),
            extents[rows.samples].local,
            extents[sequence].global,
            own_rows.local,
            own_sequence.global
        );
        Some(rows)
    }

    /// Returns 1 where the positions along the dims `queries` and `keys` are in one document, else 0.
    #[track_caller]
    pub(super) fn same_document(&self, [queries, keys]: [usize; 2]) -> Pointwise {
        let Some(rows) = self.find(queries, "Mask::documents") else {
            return Pointwise::number(1.0);
        };
        let visible = &rows.documents.rows;
        assert!(
            self.extents[keys].global == visible.seq,
            "`Mask::documents` of {} positions along `{}` and {} along `{}`: both are those of one sequence",
            visible.seq,
            self.dims[queries].name,
            self.extents[keys].global,
            self.dims[keys].name
        );
        let numbers: Vec<u32> =
            visible.starts.chunks(visible.seq.max(1)).flat_map(numbers_of_documents).collect();
        // Digits that are exact in bf16.
        const BASE: u32 = 256;
        let (mut place, mut same) = (1, None);
        let most = numbers.iter().copied().max().unwrap_or(0);
        loop {
            let [a, b] = [queries, keys].map(|dim| {
                let digits = numbers.iter().map(|number| number / place % BASE);
                self.along_rows(digits.map(|digit| digit as f32), (rows.samples, dim))
            });
            let equal = a.binary(b, Binary::Compare(Comparison::Eq));
            let all = match same.take() {
                Some(lower) => equal.binary(lower, Binary::Min),
                None => equal,
            };
            match place.checked_mul(BASE) {
                Some(next) if most >= next => (place, same) = (next, Some(all)),
                _ => return all,
            }
        }
    }

    /// Returns 1 where the element `by` positions before one along the dim is in the same document, or after it, for a
    /// negative number. `None` if each row is one document.
    #[track_caller]
    pub(super) fn same_document_before(&self, dim: usize, by: isize) -> Option<Pointwise> {
        let rows = self.find(dim, "Tensor::shift_in_documents")?;
        let visible = &rows.documents.rows;
        let same = visible.starts.chunks(visible.seq.max(1)).flat_map(|starts| {
            (0..starts.len()).map(move |position| {
                let other = position.checked_add_signed(-by).and_then(|other| starts.get(other));
                f32::from(other == Some(&starts[position]))
            })
        });
        Some(self.along_rows(same, (rows.samples, dim)))
    }

    /// Returns numbers of the positions of whole rows, repeated along the other dims. They are exact in every compute
    /// dtype.
    #[track_caller]
    fn along_rows(
        &self,
        whole: impl Iterator<Item = f32>,
        (samples, dim): (usize, usize),
    ) -> Pointwise {
        let InRows { rank, extents, .. } = *self;
        // A captured graph would keep the numbers of the first step.
        rank.note_host_input();
        let (rows, sequence) = (extents[samples], extents[dim]);
        let own = if samples < dim { vec![rows, sequence] } else { vec![sequence, rows] };
        let mut data = rank.alloc_activation(local_len(&own));
        if !rank.leaves_out_numbers(data.len()) {
            let whole: Vec<f32> = whole.collect();
            let number = |row: usize, at: usize| whole[row * sequence.global + at];
            let by_row =
                || (0..rows.local).flat_map(|row| sequence.positions().map(move |at| (row, at)));
            let block: Vec<f32> = if samples < dim {
                by_row().map(|(row, at)| number(row, at)).collect()
            } else {
                let columns = sequence.positions();
                columns
                    .flat_map(|at| (0..rows.local).map(move |row| (row, at)))
                    .map(|(row, at)| number(row, at))
                    .collect()
            };
            let block = rank.allocator().copy_of(&block, Category::Activations);
            rank.backend().cast(block.view(), data.view_mut());
        }
        let places = if samples < dim { [samples, dim] } else { [dim, samples] };
        Value::constant(rank, own, data).to_pointwise_along(&places, extents)
    }
}

/// Returns the number of the document of each position in its row.
fn numbers_of_documents(starts: &[u32]) -> impl Iterator<Item = u32> {
    let begins = |(position, start): (usize, &u32)| position > 0 && *start as usize == position;
    starts.iter().enumerate().scan(0, move |number, at| {
        *number += u32::from(begins(at));
        Some(*number)
    })
}
