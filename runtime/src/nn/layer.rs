//! What a forward function is, to its author and to whoever calls it.

/// A model or part of one, as its author writes it: one input, one output. Implemented by `#[forward]`.
pub trait Module {
    /// What `forward` takes.
    type In;
    /// What `forward` gives.
    type Out;

    /// The forward function.
    fn forward(&self, x: &Self::In) -> Self::Out;
}

/// Something that can be applied to an `X`. Layers are generic in what they take; every [`Module`] is a layer of its
/// one input.
#[diagnostic::on_unimplemented(
    message = "`{X}` does not fit `{Self}`",
    label = "this layer cannot take it",
    note = "the dims must be those the layer reads, and be split as its sharding says"
)]
pub trait Layer<X: ?Sized> {
    /// What comes out.
    type Out;

    /// Applies the layer.
    fn forward(&self, x: &X) -> Self::Out;
}

#[diagnostic::do_not_recommend]
impl<M: Module> Layer<M::In> for M {
    type Out = M::Out;

    fn forward(&self, x: &M::In) -> M::Out {
        Module::forward(self, x)
    }
}

/// A layer, or parameter, that can be sharded in a style: `#[sharded(tp = "col")]` on a field of type `F` makes the
/// field a `<F as Shard<Col<Tp>>>::Sharded`.
///
/// Implement it for a layer of your own to let it be annotated.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no sharded form `{Style}`",
    label = "this layer cannot be sharded so",
    note = "`Linear` and `Param` take \"col\" and \"row\", `Bias` takes \"col\", `Embedding`, `LmHead` and `CrossEntropy` take \"vocab\"; `scatter` goes with `Linear` and `Embedding`; norms and models inside a model need no annotation",
    note = "a layer of your own can be sharded once it implements `Shard<{Style}>`"
)]
pub trait Shard<Style> {
    /// The sharded form.
    type Sharded;
}
