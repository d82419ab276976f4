//! The loss of each row of a batch, beside the loss of all of them.

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::layout::Dims;
use meshwright_backend::{Buffer, GraphBuffer, GraphPool};

use super::Targets;

/// The sums of the losses of each row of a batch, in f32, once forward has computed them.
#[derive(Clone)]
pub(crate) struct RowLosses {
    sums: Rc<OnceCell<Arc<Buffer>>>,
    rows: usize,
}

impl RowLosses {
    /// Returns the place for the losses of the rows of `targets`, over their first dim; `None` if nothing reads them.
    pub(crate) fn of_targets<S: Dims>(targets: &Targets<S>) -> Option<RowLosses> {
        let rows = targets.local_extents().first()?.local;
        let keeps = targets.rank().keeps_row_losses() && targets.rank().records_operations();
        (keeps && rows > 0).then(|| RowLosses { sums: Rc::default(), rows })
    }

    /// Computes the sums by `compute` from the number of rows. A repeated forward pass computes the same ones.
    pub(crate) fn fill(&self, compute: impl FnOnce(usize) -> Buffer) {
        self.sums.get_or_init(|| Arc::new(compute(self.rows)));
    }
}

/// The sums of the losses of each row of a metric: those of all its terms, or none.
pub(super) struct RowSums {
    terms: Vec<Arc<Buffer>>,
}

impl RowSums {
    /// Returns the sums of the terms of a loss, which forward has computed.
    pub fn of_terms(terms: &[RowLosses]) -> RowSums {
        RowSums { terms: terms.iter().filter_map(|term| term.sums.get().cloned()).collect() }
    }

    /// Returns no sums.
    pub fn none() -> RowSums {
        RowSums { terms: Vec::new() }
    }

    /// Copies sums that a captured graph has written.
    pub fn of_buffers(terms: Vec<Buffer>) -> RowSums {
        RowSums { terms: terms.into_iter().map(Arc::new).collect() }
    }

    /// Returns the addresses to which a captured graph writes the sums, with their numbers.
    pub fn graph_buffers(&self, recordings: &Arc<GraphPool>) -> Vec<(GraphBuffer, usize)> {
        let place = |term: &Arc<Buffer>| (recordings.buffer(term.view()), term.len());
        self.terms.iter().map(place).collect()
    }

    /// Reads the sums; `None` if there are none.
    pub fn read(&self) -> Option<Vec<f64>> {
        let read = |term: &Arc<Buffer>| -> Vec<f64> {
            term.view().to_vec::<f32>().into_iter().map(f64::from).collect()
        };
        let add = |mut sums: Vec<f64>, term: Vec<f64>| {
            sums.iter_mut().zip(term).for_each(|(sum, term)| *sum += term);
            sums
        };
        self.terms.iter().map(read).reduce(add)
    }
}
