//! The task of a language model: the next token.

use std::marker::PhantomData;

use crate::data::{Example, RowStreams, RowWriter};
use crate::tensor::{Loss, Targets, Tokens};
use crate::train::LanguageModel;
use crate::train::continuation::{Continuation, ContinuedModel};
use crate::train::micro_batch::tokens_and_targets;
use meshwright_core::__internal::InputCapture;

use super::{CapturedOf, OutputOf, Rows, Task, TaskSetup};

/// Predicts the next token, in the rows of files of tokens: the task of [`Trainer`](crate::train::Trainer).
pub struct NextToken<M> {
    seq: usize,
    model: PhantomData<fn() -> M>,
}

/// Tokens, or targets, of a language model.
type TokensOf<M> = Tokens<(<M as LanguageModel>::Batch, <M as LanguageModel>::Seq)>;

impl<M: LanguageModel> Task for NextToken<M> {
    type Model = M;
    type Extra = TokensOf<M>;
    type Over = (M::Batch, M::Seq);
    type Flags = ();
    const NAME: &'static str = "next-token";

    fn open(setup: &TaskSetup<'_, <M as LanguageModel>::Config, ()>) -> Result<Self, String> {
        Ok(NextToken { seq: setup.seq(), model: PhantomData })
    }

    fn streams(&self) -> RowStreams {
        RowStreams::new()
    }

    fn row(&self, _: &Example, _: u64, _: &mut RowWriter<'_>) -> Result<(), String> {
        unreachable!("rows are read from files of tokens")
    }

    fn input(&self, rows: &Rows<'_>) -> (TokensOf<M>, TokensOf<M>) {
        tokens_and_targets(rows.rank(), &rows.sizes(self.seq), rows.data())
    }

    fn loss(
        &self,
        model: &M,
        output: &OutputOf<Self>,
        targets: &Targets<(M::Batch, M::Seq)>,
    ) -> Loss<(M::Batch, M::Seq)> {
        model.loss_of_output(output, targets)
    }

    const READS_TOKENS: bool = true;

    fn capture(capture: &InputCapture<'_>) -> Option<CapturedOf<Self>> {
        let ([tokens, targets], captured) = capture.tokens_and_targets();
        Some(((tokens, targets), captured))
    }

    fn continuation<'a>(model: ContinuedModel<'a, M>) -> Option<Continuation<'a>> {
        Some(Continuation::new(model))
    }
}
