//! Documents of packed sequences: queries attend to the keys of their own document.

use std::rc::Rc;
use std::sync::Arc;

use crate::layout::{Dims, Seal};
use crate::tensor::Documents;

use super::extras::{AttentionExtra, Extras, KeysOfQueries, SameSequence};

/// Shapes of documents of queries shaped `(B, S, ..)`.
#[diagnostic::on_unimplemented(
    message = "the documents belong to `{Self}`, but the queries to `({B}, {S})`",
    label = "mismatched documents (the fourth element)",
    note = "take the documents of the tokens that the queries are computed from: `tokens.documents()`",
    note = "they have the dims of the tokens, also when the stream is split: `type Flow = (Tensor<(Batch, Split<Seq, \
            Tp>, Hidden)>, Documents<(Batch, Seq)>)`"
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
        let (own, queries) = (self.local_extents(), &extras.queries[..2]);
        assert!(
            own == queries,
            "`{}`: the documents belong to {} rows of {} tokens, from row {} on, but the queries have {} rows of {}, \
             from row {} on: take the documents of the tokens that they are computed from",
            extras.path,
            own[0].local,
            own[1].local,
            own[0].offset,
            queries[0].local,
            queries[1].local,
            queries[0].offset
        );
        // A row of one document needs no limits.
        if let Some(documents) = self.ids() {
            extras.ranges = Some([&documents.starts, &documents.ends].map(Arc::clone));
            extras.visible = Some(Rc::clone(&documents.rows));
        }
    }
}
