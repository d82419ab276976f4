//! The result of building a model, or the problems that prevent it.

use std::collections::BTreeSet;
use std::rc::Rc;

use crate::tensor::{ParamRef, Unit};

/// A built model with its parameters and properties.
pub struct Built<M> {
    /// The model.
    pub model: M,
    /// The FSDP units that hold its parameters.
    pub units: Vec<Rc<Unit>>,
    /// Global number of heads and head dim of every attention, for the FLOP count.
    pub attentions: Vec<(usize, usize)>,
    /// True if an attribute of the model declares recomputation.
    pub recomputes: bool,
    pub(super) params: Vec<ParamRef>,
    /// Paths of the tables that a matmul reads.
    pub(super) matmuls: BTreeSet<String>,
}

impl<M> Built<M> {
    /// All parameters, in the order of declaration.
    pub fn params(&self) -> Vec<ParamRef> {
        self.params.clone()
    }

    /// Returns true if a matmul reads this [table](ParamRef::is_table), as that of the language-model head does.
    pub(crate) fn has_matmul(&self, table: &ParamRef) -> bool {
        self.matmuls.contains(table.path())
    }

    /// Number of elements of all global parameters.
    pub fn global_len(&self) -> usize {
        self.params.iter().map(ParamRef::global_len).sum()
    }
}

/// The problems of a model that cannot be built with its sizes on this mesh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildError {
    /// One line per problem, beginning with the field.
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
