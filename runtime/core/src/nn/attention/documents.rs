//! Documents of packed sequences: queries attend to the keys of their own document.

use std::rc::Rc;
use std::sync::Arc;

use crate::layout::{Dims, Seal};
use crate::tensor::{DocumentIds, Documents};

use super::extras::{AttentionExtra, Extras, KeysOfQueries, SameSequence};
use super::inputs::AttentionInputs;

/// Shapes of documents of queries shaped `(B, S, ..)`.
#[diagnostic::on_unimplemented(
    message = "the documents belong to `{Self}`, but the queries to `({B}, {S})`",
    label = "mismatched documents (the fourth element)",
    note = "take the documents of the tokens that the queries are computed from: `tokens.documents()`",
    note = "they have the dims of the tokens, also when the stream is split; attention finds the documents of its own \
            tokens without an operand"
)]
pub trait DocumentsOf<B, S> {
    #[doc(hidden)]
    const SEAL: Seal;
}

impl<B, S> DocumentsOf<B, S> for (B, S) {
    const SEAL: Seal = Seal::new();
}

/// Queries attend to the keys of their own document.
impl<P, B, S, H, D, C, T, K, E> AttentionExtra<(B, S, H, D), (C, T, K, E)> for Documents<P>
where
    P: Dims + DocumentsOf<B, S>,
    T: SameSequence<S, Documents<P>>,
{
    type First = KeysOfQueries;
    type Last = KeysOfQueries;
    const SEAL: Seal = Seal::new();

    #[track_caller]
    fn add_to_extras<'a>(&'a self, extras: &mut Extras<'a>) {
        extras.rank.check_same(self.rank());
        extras.has_documents = true;
        if let Some(documents) = self.ids() {
            extras.keep_apart(documents);
        }
    }
}

impl Extras<'_> {
    /// Keeps the documents of the keys apart, as far as no operand and no exception states otherwise.
    #[track_caller]
    pub(super) fn find_documents(&mut self, inputs: &AttentionInputs<'_>) {
        let is_stated = self.has_documents || inputs.core.ignores_documents;
        if is_stated {
            self.rank.note_use_of_documents();
            return;
        }
        let Some(documents) = inputs.rank.documents_of(inputs.rows) else { return };
        let path = self.path;
        assert!(
            !inputs.is_cross(),
            "`{path}`: the rows of the keys hold several documents, and the queries are along another sequence: if \
             each query sees the keys of all documents, call `ignoring_documents()` on the attention"
        );
        assert!(
            self.ranges.is_none() && self.visible.is_none(),
            "`{path}`: the rows have padding and hold several documents: make the padding a document of its own, and \
             leave the operand `Padding` out"
        );
        self.rank.note_use_of_documents();
        self.keep_apart(documents);
    }

    #[track_caller]
    fn keep_apart(&mut self, documents: &Rc<DocumentIds>) {
        let (own, queries) = (&documents.extents[..], &self.queries[..2]);
        assert!(
            own == queries,
            "`{}`: the documents belong to {} rows of {} tokens, from row {} on, but the queries have {} rows of {}, \
             from row {} on: take the documents of the tokens that they are computed from",
            self.path,
            own[0].local,
            own[1].local,
            own[0].offset,
            queries[0].local,
            queries[1].local,
            queries[0].offset
        );
        self.has_documents = true;
        self.ranges = Some([&documents.starts, &documents.ends].map(Arc::clone));
        self.visible = Some(Rc::clone(&documents.rows));
    }
}
