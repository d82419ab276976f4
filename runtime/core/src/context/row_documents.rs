//! The documents in the rows of the tokens that a tensor is computed from.

use std::rc::Rc;

use crate::layout::DimInfo;

use super::document_ids::DocumentIds;

/// The documents of all tokens that a tensor is computed from. A clone shares them.
///
/// There is one [`DocumentIds`] for rows with the same dims. Two of them are a contradiction, which the layers refuse
/// that read documents.
#[derive(Clone, Default)]
pub(crate) struct RowDocuments(Option<Rc<[Rc<DocumentIds>]>>);

impl RowDocuments {
    /// Returns the documents of rows with these dims, whole or split.
    pub fn of_rows<'a, 'd>(
        &'a self,
        dims: &'d [DimInfo],
    ) -> impl Iterator<Item = &'a Rc<DocumentIds>> + Clone + use<'a, 'd> {
        self.all().iter().filter(|documents| are_same_rows(documents.dims, dims))
    }

    /// Returns these documents, with `documents` instead of others of the same rows.
    pub fn replaced_by(&self, documents: DocumentIds) -> RowDocuments {
        let is_other = |other: &&Rc<DocumentIds>| !are_same_rows(other.dims, documents.dims);
        let others: Vec<_> = self.all().iter().filter(is_other).cloned().collect();
        RowDocuments(Some(others.into_iter().chain([Rc::new(documents)]).collect()))
    }

    /// Returns the documents of a tensor that is computed from tensors with these and with `other` documents.
    pub fn union(&self, other: &RowDocuments) -> RowDocuments {
        let is_new = |documents: &&Rc<DocumentIds>| {
            let mut known = self.of_rows(documents.dims);
            // Two of the same rows are enough to be refused.
            known.clone().count() < 2 && !known.any(|known| known.are_equal(documents))
        };
        let added: Vec<_> = other.all().iter().filter(is_new).cloned().collect();
        match (&self.0, added.len()) {
            (_, 0) => self.clone(),
            (None, _) => other.clone(),
            (Some(own), _) => RowDocuments(Some(own.iter().cloned().chain(added).collect())),
        }
    }

    /// Returns true if `other` has the same documents of rows whose dims a tensor with `dims` begins with.
    pub fn agree_on(&self, other: &RowDocuments, dims: &[DimInfo]) -> bool {
        let own = |documents: &&Rc<DocumentIds>| {
            let rows = dims.get(..documents.dims.len());
            rows.is_some_and(|rows| are_same_rows(documents.dims, rows))
        };
        let [mut all, others] = [self, other].map(|each| each.all().iter().filter(own));
        all.clone().count() == others.clone().count()
            && all.all(|documents| others.clone().any(|other| documents.are_equal(other)))
    }

    /// Returns true if there are any.
    pub fn any(&self) -> bool {
        !self.all().is_empty()
    }

    fn all(&self) -> &[Rc<DocumentIds>] {
        self.0.as_deref().unwrap_or_default()
    }
}

/// Returns true if both are the same declared dims, in whatever way they are split.
fn are_same_rows(own: &[DimInfo], other: &[DimInfo]) -> bool {
    own.len() == other.len() && own.iter().zip(other).all(|(a, b)| (a.key)() == (b.key)())
}
