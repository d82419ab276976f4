//! Kinds of layers of one stack: the variants of an enum with `#[model]`.

use super::Module;

/// A variant whose layer takes `I` and returns `O`, if these are the types `J` and `P` of the first variant `First`.
#[diagnostic::on_unimplemented(
    message = "the variants of a model take and return the same: `{Self}` takes `{I}` and returns `{O}`, `{First}` \
               takes `{J}` and returns `{P}`",
    label = "takes `{I}` and returns `{O}`",
    note = "the layers of a stack run one after the other, so each takes what any other one returns"
)]
pub trait SameTypes<First, I, O, J, P> {
    #[doc(hidden)]
    fn of_first(input: &J) -> &I;
    #[doc(hidden)]
    fn into_first(output: O) -> P;
}

#[diagnostic::do_not_recommend]
impl<Variant, First, I, O> SameTypes<First, I, O, I, O> for Variant {
    fn of_first(input: &I) -> &I {
        input
    }

    fn into_first(output: O) -> O {
        output
    }
}

/// Applies the layer of a variant to the input of the first variant.
#[doc(hidden)]
#[track_caller]
pub fn forward_variant<V, F>(layer: &V, input: &F::In) -> F::Out
where
    V: Module,
    F: Module,
    V: SameTypes<F, V::In, V::Out, F::In, F::Out>,
{
    V::into_first(layer.forward(V::of_first(input)))
}
