//! Projection of a chunk of tokens onto the vocabulary, with the bias and the soft cap of a head.

use std::sync::Arc;

use crate::tensor::{Extent, ParamUse, Rank, SavedInput, TapeGradients};
use meshwright_backend::ops::head::FinishLogitsArgs;
use meshwright_backend::{Buffer, DType, Gemm, MiddleDim, View, ViewMut};

use super::HeadOptions;

/// The parameters of a head on this rank.
pub(super) struct HeadProjection<'a> {
    rank: &'a Rank,
    pub(super) weight: View<'a>,
    /// In f32.
    bias: Option<Buffer>,
    /// Elements of a row of the input.
    pub(super) hidden: usize,
    /// This rank's range of the vocabulary.
    vocab: Extent,
    options: HeadOptions,
}

impl<'a> HeadProjection<'a> {
    /// Creates the projection from the values of the weight, and of the bias if there is one.
    pub(super) fn new(
        rank: &'a Rank,
        params: &[View<'a>],
        hidden: usize,
        vocab: Extent,
        options: HeadOptions,
    ) -> HeadProjection<'a> {
        let bias = params.get(1).map(|bias| {
            let mut wide = rank.alloc_scratch(DType::F32, bias.len());
            rank.backend().cast(*bias, wide.view_mut());
            wide
        });
        HeadProjection { rank, weight: params[0], bias, hidden, vocab, options }
    }

    /// Returns the dtype of logits.
    pub(super) fn logits_dtype(&self) -> DType {
        if self.options.f32_logits { DType::F32 } else { self.rank.compute_dtype() }
    }

    /// Writes the logits of the rows of `input`.
    pub(super) fn write_logits(&self, input: View<'_>, mut logits: ViewMut<'_>) {
        let (k, n) = (self.hidden, self.vocab.local);
        let m = input.len() / k;
        let gemm = Gemm { m, n, k, trans_a: false, trans_b: true, accumulate: false };
        self.rank.backend().gemm(&gemm, input, self.weight, logits.reborrow());
        let (bias, soft_cap) = (self.bias.as_ref().map(Buffer::view), self.options.soft_cap);
        if bias.is_some() || soft_cap.is_some() {
            let args = FinishLogitsArgs { cols: n, logits, bias, soft_cap };
            self.rank.backend().finish_logits(args);
        }
    }
}

/// Gradients by input, weight and bias from the gradients of logits, chunk by chunk.
pub(super) struct ProjectionGradients {
    /// `None` if the input requires no gradient.
    pub(super) dx: Option<Buffer>,
    /// In f32. `None` if the weight is frozen, or its gradient is computed from the logits of a single chunk later.
    pub(super) dweight: Option<Buffer>,
    /// In f32. `None` without a trained bias.
    pub(super) dbias: Option<Buffer>,
}

/// The gradients that are computed.
#[derive(Clone, Copy)]
pub(super) struct WantedGradients {
    pub(super) input: bool,
    pub(super) weight: bool,
    pub(super) bias: bool,
}

impl WantedGradients {
    /// Returns the gradients of a recorded operation that are required.
    pub(super) fn of(x: &SavedInput, uses: &[ParamUse]) -> WantedGradients {
        let is_trained = |index: usize| uses.get(index).is_some_and(ParamUse::is_trained);
        WantedGradients { input: x.requires_grad(), weight: is_trained(0), bias: is_trained(1) }
    }
}

impl ProjectionGradients {
    /// Allocates gradients for `tokens` tokens.
    pub(super) fn new(
        head: &HeadProjection<'_>,
        tokens: usize,
        wanted: WantedGradients,
    ) -> ProjectionGradients {
        let rank = head.rank;
        ProjectionGradients {
            dx: wanted.input.then(|| rank.alloc_activation(tokens * head.hidden)),
            dweight: wanted.weight.then(|| rank.alloc_scratch(DType::F32, head.weight.len())),
            dbias: wanted.bias.then(|| rank.alloc_zeros(head.vocab.local)),
        }
    }

    /// Adds the gradients of the chunk of tokens that begins at `first`; `dlogits` are in the compute dtype.
    pub(super) fn add_chunk(
        &mut self,
        head: &HeadProjection<'_>,
        first: usize,
        input: View<'_>,
        dlogits: View<'_>,
    ) {
        let (backend, k, n) = (head.rank.backend(), head.hidden, head.vocab.local);
        let m = input.len() / k;
        if let Some(dx) = &mut self.dx {
            let dx = dx.view_mut().into_slice(first * k..(first + m) * k);
            let gemm = Gemm { m, n: k, k: n, trans_a: false, trans_b: false, accumulate: false };
            backend.gemm(&gemm, dlogits, head.weight, dx);
        }
        if let Some(dweight) = &mut self.dweight {
            // The first chunk overwrites the gradient, and later chunks accumulate.
            let gemm = weight_gemm(n, k, m, first > 0);
            backend.gemm(&gemm, dlogits, input, dweight.view_mut());
        }
        if let Some(dbias) = &mut self.dbias {
            let mut of_chunk = head.rank.alloc_scratch(DType::F32, n);
            let dim = MiddleDim { outer: 1, len: m, inner: n };
            backend.sum_dim(dim, dlogits, of_chunk.view_mut(), 1.0);
            backend.add_assign(dbias.view_mut(), of_chunk.view());
        }
    }

    /// Adds the gradients of a chunk from `dlogits` in the dtype of logits; `rounded` is memory for them in the compute
    /// dtype, if that is another one.
    pub(super) fn add_logits(
        &mut self,
        head: &HeadProjection<'_>,
        first: usize,
        input: View<'_>,
        dlogits: ViewMut<'_>,
        rounded: Option<ViewMut<'_>>,
    ) {
        match rounded {
            None => self.add_chunk(head, first, input, dlogits.as_view()),
            Some(mut rounded) => {
                head.rank.backend().cast(dlogits.as_view(), rounded.reborrow());
                self.add_chunk(head, first, input, rounded.as_view());
            }
        }
    }

    /// Passes the gradients on: to the parameters, the weight first, and to the input.
    pub(super) fn finish(
        self,
        gradients: &mut TapeGradients<'_>,
        uses: &[ParamUse],
        x: &SavedInput,
    ) {
        if let Some(dweight) = &self.dweight {
            uses[0].finish_with(gradients, dweight);
        }
        if let (Some(bias), Some(dbias)) = (uses.get(1), &self.dbias) {
            bias.finish_with(gradients, dbias);
        }
        if let Some(dx) = self.dx {
            x.add_gradient(gradients, Arc::new(dx));
        }
    }

    /// Clears the gradient of the weight, if there are no chunks.
    pub(super) fn clear_without_chunks(&mut self, chunks: usize) {
        if let (Some(dweight), 0) = (&mut self.dweight, chunks) {
            dweight.view_mut().clear();
        }
    }
}

/// The GEMM for the weight's gradient, `[vocab, hidden]`, from the gradient of the logits of `tokens` tokens and the
/// input.
pub(super) fn weight_gemm(vocab: usize, hidden: usize, tokens: usize, accumulate: bool) -> Gemm {
    Gemm { m: vocab, n: hidden, k: tokens, trans_a: true, trans_b: false, accumulate }
}
