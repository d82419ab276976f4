//! Traits of modules and layers, and of layers with a sharded form.

use super::chain::{StageValue, StageVisitor};

/// A model, or part of one, with one input type and one output type. Implemented by `#[forward]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no `forward` with `#[forward]`",
    label = "not a module",
    note = "a module is a struct with `#[model]`, and `#[forward]` on an impl block with its `fn forward(&self, x: \
            &In) -> Out`"
)]
pub trait Module: Layer<<Self as Module>::In> {
    /// The input of `forward`. Its output is that of the [`Layer`].
    type In;

    /// Visits the pipeline stages of the model; `None` if it has none.
    #[doc(hidden)]
    fn visit_stages<V: StageVisitor>(
        &self,
        _: &mut V,
        _: StageValue<V, Self::In>,
    ) -> Option<StageValue<V, Self::Out>>
    where
        Self: Sized,
    {
        None
    }
}

/// A layer that can be applied to an `X`. Layers are generic in their inputs; every [`Module`] is a layer of its one
/// input type.
#[diagnostic::on_unimplemented(
    message = "`{X}` does not fit `{Self}`",
    label = "not an input of this layer",
    note = "the input must have the dims that the layer reads, split as its sharding requires",
    note = "a struct of your own is a layer by `#[forward]` on the impl block with its `forward`"
)]
pub trait Layer<X: ?Sized> {
    /// The output.
    type Out;

    /// Applies the layer.
    fn forward(&self, x: &X) -> Self::Out;
}

/// Traits whose message lists the styles of all layers.
macro_rules! forms {
    ($($(#[$attribute:meta])* pub trait $name:ident<Style> { $($item:tt)* })*) => {$(
        $(#[$attribute])*
        #[diagnostic::on_unimplemented(
            message = "`{Self}` has no sharded form `{Style}`",
            label = "this layer does not support the sharding style",
            note = "`tp = ..`: `Linear`, `Affine`, `Conv1d` and a `Param` of two dims take \"col\" and \"row\", a \
                    `Param` of one dim, `Bias`, `CausalConv`, `AttentionSinks`, `RelativeBias` and an `RmsNorm` of a \
                    pair take \"col\", `Embedding`, `LmHead` and `CrossEntropy` take \"vocab\"; `scatter` applies to \
                    `Linear`, `Affine` and `Embedding`",
            note = "`cp = ..`: `Attention` takes \"ring\", \"ulysses\", \"gather\" and \"hybrid\"; `ep = ..`: \
                    `GroupedLinear` and `GroupedBias` take \"experts\", and whole experts need no other axis",
            note = "norms of one dim, `Router`, `Alibi` and models inside a model need no annotation: remove it; your \
                    own layer can be sharded once it implements `Shard<{Style}>`"
        )]
        pub trait $name<Style> { $($item)* }
    )*};
}

forms! {
    /// A layer, or parameter, that can be sharded in a style: `#[sharded(tp = "col")]` on a field of type `F` makes the
    /// field a `<F as Shard<Col<Tp>>>::Sharded`.
    ///
    /// Implement it for your own layer to allow the annotation.
    pub trait Shard<Style> {
        /// The sharded form.
        type Sharded;
    }

    /// Never implemented: the form of a layer of this library in a style that it does not have.
    pub trait HasForm<Style> {
        #[doc(hidden)]
        fn never_implemented() -> !;
    }
}
