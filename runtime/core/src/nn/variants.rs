//! Kinds of layers of one stack: the variants of an enum with `#[model]`.

use super::Module;

/// The input of the layer of a variant `Variant`, if it is that of the first variant `First`.
#[diagnostic::on_unimplemented(
    message = "the variants of a model take and return the same: `{Variant}` takes `{Self}`, `{First}` takes `{T}`",
    label = "takes `{Self}`",
    note = "the layers of a stack run one after the other, so each takes what any other one returns"
)]
pub trait SameInput<T, Variant, First> {
    #[doc(hidden)]
    fn of_first(input: &T) -> &Self;
}

#[diagnostic::do_not_recommend]
impl<T, Variant, First> SameInput<T, Variant, First> for T {
    fn of_first(input: &T) -> &T {
        input
    }
}

/// The output of the layer of a variant `Variant`, if it is that of the first variant `First`.
#[diagnostic::on_unimplemented(
    message = "the variants of a model take and return the same: `{Variant}` returns `{Self}`, `{First}` returns `{T}`",
    label = "returns `{Self}`",
    note = "the layers of a stack run one after the other, so each takes what any other one returns"
)]
pub trait SameOutput<T, Variant, First> {
    #[doc(hidden)]
    fn into_first(output: Self) -> T;
}

#[diagnostic::do_not_recommend]
impl<T, Variant, First> SameOutput<T, Variant, First> for T {
    fn into_first(output: T) -> T {
        output
    }
}

/// Applies the layer of a variant to the input of the first variant.
#[doc(hidden)]
#[track_caller]
pub fn forward_variant<V: Module, F: Module>(layer: &V, input: &F::In) -> F::Out
where
    V::In: SameInput<F::In, V, F>,
    V::Out: SameOutput<F::Out, V, F>,
{
    SameOutput::into_first(layer.forward(SameInput::of_first(input)))
}
