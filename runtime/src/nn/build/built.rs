//! What has been built, or why it cannot be.

use std::collections::BTreeSet;
use std::rc::Rc;

use crate::tensor::{ParamRef, Unit};

/// A model, and what is known of it as a whole.
pub struct Built<M> {
    /// The model.
    pub model: M,
    /// Its parameters, unit by unit.
    pub units: Vec<Rc<Unit>>,
    /// Heads and head dim (global) of every attention, for the count of FLOPs.
    pub attentions: Vec<(usize, usize)>,
    /// Whether attributes of the model say that some of it is recomputed.
    pub recomputes: bool,
    pub(super) params: Vec<ParamRef>,
    /// Paths of the tables that products are computed with.
    pub(super) products: BTreeSet<String>,
}

impl<M> Built<M> {
    /// Every parameter, in the order in which the model declares them.
    pub fn params(&self) -> Vec<ParamRef> {
        self.params.clone()
    }

    /// Whether a product is computed with a [table](ParamRef::is_table), as the head does with its own.
    pub(crate) fn has_product(&self, table: &ParamRef) -> bool {
        self.products.contains(table.path())
    }

    /// Number of elements of the global model.
    pub fn global_len(&self) -> usize {
        self.params.iter().map(ParamRef::global_len).sum()
    }
}

/// Sizes that the model, or the mesh, does not allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildError {
    /// One line each, with the field at its start.
    pub problems: Vec<String>,
}

impl std::fmt::Display for BuildError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.problems.as_slice() {
            [problem] => write!(f, "the model cannot be built: {problem}"),
            problems => {
                write!(f, "the model cannot be built, for {} reasons:", problems.len())?;
                problems.iter().try_for_each(|problem| write!(f, "\n  - {problem}"))
            }
        }
    }
}

impl std::error::Error for BuildError {}
