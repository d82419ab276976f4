//! Layers of a stream that takes the documents of its tokens along.

use crate::layout::Dims;
use crate::tensor::{Documents, Tokens};

use super::chain::stage_layers;
use super::{Build, Builder, Layer, Shard, TiedWeight};

/// Applies a layer to tokens, and returns their documents with its result.
///
/// A model whose attention keeps documents apart begins with it. The documents pass with the stream through stacks and
/// pipeline stages; norms, [`Dropout`](super::Dropout) and [`LearnedPositions`](super::LearnedPositions) between them
/// take both and return both:
///
/// ```
/// # use meshwright::prelude::*;
/// # dims! { Batch @ data, Seq, Hidden, Heads, HeadDim, Vocab }
/// type Stream = Tensor<(Batch, Seq, Hidden)>;
/// type Flow = (Stream, Documents<(Batch, Seq)>);
/// # #[model]
/// # struct Block {
/// #     q: Linear<Hidden, (Heads, HeadDim)>,
/// #     core: Attention<Heads, Heads, HeadDim>,
/// #     o: Linear<(Heads, HeadDim), Hidden>,
/// # }
///
/// #[forward]
/// impl Block {
///     fn forward(&self, (x, documents): &Flow) -> Flow {
/// #       let q = self.q.forward(x);
/// #       let (k, v) = (&q, &q);
///         let attended = self.core.forward(&(q.clone(), k.clone(), v.clone(), documents));
///         (x + self.o.forward(&attended), documents.clone())
///     }
/// }
///
/// #[model]
/// struct Model {
///     #[pipeline_stage]
///     embed: WithDocuments<Embedding<Vocab, Hidden>>,
///     #[pipeline_stage]
///     blocks: Stack<Block>,
///     #[pipeline_stage]
///     norm: RmsNorm<Hidden>,
/// }
///
/// #[forward]
/// impl Model {
///     fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Flow;
/// }
/// ```
///
/// It has no parameters and no path of its own: parameters and sharding are the same as of a field without it.
pub struct WithDocuments<L> {
    layer: L,
}

/// Computes the output of the layer for `tokens`, and returns it with the documents of these.
impl<L: Layer<Tokens<S>>, S: Dims> Layer<Tokens<S>> for WithDocuments<L> {
    type Out = (L::Out, Documents<S>);

    #[track_caller]
    fn forward(&self, tokens: &Tokens<S>) -> Self::Out {
        (self.layer.forward(tokens), tokens.documents())
    }
}

impl<L> WithDocuments<L> {
    /// The layer.
    pub fn layer(&self) -> &L {
        &self.layer
    }
}

impl<L: Build> Build for WithDocuments<L> {
    fn build(builder: &mut Builder<'_>) -> Self {
        WithDocuments { layer: L::build(builder) }
    }
}

#[diagnostic::do_not_recommend]
impl<L: Shard<Style>, Style> Shard<Style> for WithDocuments<L> {
    type Sharded = WithDocuments<L::Sharded>;
}

#[diagnostic::do_not_recommend]
impl<L: TiedWeight> TiedWeight for WithDocuments<L> {
    type Weight = L::Weight;
}

stage_layers! {
    WithDocuments<L>;
}

/// Implements layers for tuples of a tensor and documents, which are passed on: `document_layers! { RmsNorm<H>; }`.
macro_rules! forward_with_documents {
    ($($layer:ident $(<$param:ident>)?;)+) => {$(
        /// Documents are returned as they are: no position is read from another one.
        #[diagnostic::do_not_recommend]
        impl<X, D, $($param)?>
            $crate::nn::Layer<($crate::tensor::Tensor<X>, $crate::tensor::Documents<D>)>
            for $layer $(<$param>)?
        where
            X: $crate::layout::Dims,
            D: $crate::layout::Dims,
            Self: $crate::nn::Layer<$crate::tensor::Tensor<X>>,
        {
            type Out = (
                <Self as $crate::nn::Layer<$crate::tensor::Tensor<X>>>::Out,
                $crate::tensor::Documents<D>,
            );

            #[track_caller]
            fn forward(
                &self,
                (x, documents): &($crate::tensor::Tensor<X>, $crate::tensor::Documents<D>),
            ) -> Self::Out {
                ($crate::nn::Layer::forward(self, x), documents.clone())
            }
        }
    )+};
}

pub(super) use forward_with_documents;
