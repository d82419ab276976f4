//! Optional and repeated fields of models: `Option<L>`, `Vec<L>`, `[L; N]`, and tuples of two or three, of anything
//! that can be a field itself.
//!
//! They have the attributes of `L`, which hold for each element: `#[sharded(tp = "col")] biases: [Bias<Ffn>; 2]` is a
//! `[Bias<Ffn, Col<Tp>>; 2]`. Parameters of an element have its index in their path, as in `biases.1.bias`.

use super::{Build, Builder, Layer, Recompute, RecomputeEvery, Shard};

/// Built if [`Sizes::with_optional`](super::Sizes::with_optional) says that the model has the field.
impl<L: Build + 'static> Build for Option<L> {
    fn build(builder: &mut Builder<'_>) -> Self {
        let is_present = !builder.contains_itself::<L>("an `Option`") && builder.is_present();
        is_present.then(|| L::build(&mut builder.optional::<L>()))
    }
}

/// Builds as many elements as [`Sizes::with_count`](super::Sizes::with_count) says.
impl<L: Build + 'static> Build for Vec<L> {
    fn build(builder: &mut Builder<'_>) -> Self {
        let count = if builder.contains_itself::<L>("a `Vec`") { 0 } else { builder.count() };
        let element = |index| L::build(&mut builder.repeated::<L>(index));
        (0..count).map(element).collect()
    }
}

impl<L: Build + 'static, const N: usize> Build for [L; N] {
    fn build(builder: &mut Builder<'_>) -> Self {
        builder.note_elements(N);
        std::array::from_fn(|index| L::build(&mut builder.repeated::<L>(index)))
    }
}

#[diagnostic::do_not_recommend]
impl<L: Build, M: Build> Build for (L, M) {
    fn build(builder: &mut Builder<'_>) -> Self {
        (L::build(&mut builder.tuple_element(0)), M::build(&mut builder.tuple_element(1)))
    }
}

#[diagnostic::do_not_recommend]
impl<L: Build, M: Build, N: Build> Build for (L, M, N) {
    fn build(builder: &mut Builder<'_>) -> Self {
        let (first, second) =
            (L::build(&mut builder.tuple_element(0)), M::build(&mut builder.tuple_element(1)));
        (first, second, N::build(&mut builder.tuple_element(2)))
    }
}

#[diagnostic::do_not_recommend]
impl<L: Shard<Style>, M: Shard<Style>, Style> Shard<Style> for (L, M) {
    type Sharded = (L::Sharded, M::Sharded);
}

#[diagnostic::do_not_recommend]
impl<L: Shard<Style>, M: Shard<Style>, N: Shard<Style>, Style> Shard<Style> for (L, M, N) {
    type Sharded = (L::Sharded, M::Sharded, N::Sharded);
}

#[diagnostic::do_not_recommend]
impl<L: Shard<Style>, Style> Shard<Style> for Option<L> {
    type Sharded = Option<L::Sharded>;
}

#[diagnostic::do_not_recommend]
impl<L: Shard<Style>, Style> Shard<Style> for Vec<L> {
    type Sharded = Vec<L::Sharded>;
}

#[diagnostic::do_not_recommend]
impl<L: Shard<Style>, Style, const N: usize> Shard<Style> for [L; N] {
    type Sharded = [L::Sharded; N];
}

#[diagnostic::do_not_recommend]
impl<L: Recompute> Recompute for Option<L> {
    type Recomputed = Option<L::Recomputed>;
    type Layer = L::Layer;
}

#[diagnostic::do_not_recommend]
impl<L: Recompute> Recompute for Vec<L> {
    type Recomputed = Vec<L::Recomputed>;
    type Layer = L::Layer;
}

#[diagnostic::do_not_recommend]
impl<L: Recompute, const N: usize> Recompute for [L; N] {
    type Recomputed = [L::Recomputed; N];
    type Layer = L::Layer;
}

#[diagnostic::do_not_recommend]
impl<L: RecomputeEvery> RecomputeEvery for Option<L> {
    type Recomputed = Option<L::Recomputed>;
    type Layer = L::Layer;
}

#[diagnostic::do_not_recommend]
impl<L: RecomputeEvery> RecomputeEvery for Vec<L> {
    type Recomputed = Vec<L::Recomputed>;
    type Layer = L::Layer;
}

#[diagnostic::do_not_recommend]
impl<L: RecomputeEvery, const N: usize> RecomputeEvery for [L; N] {
    type Recomputed = [L::Recomputed; N];
    type Layer = L::Layer;
}

/// Applies the layer if the model has it, and returns the input otherwise.
impl<X: Clone, L: ChainedLayer<X>> Layer<X> for Option<L> {
    type Out = X;

    #[track_caller]
    fn forward(&self, x: &X) -> X {
        apply_in_order(self.as_slice(), x)
    }
}

/// Applies the layers one after the other.
impl<X: Clone, L: ChainedLayer<X>> Layer<X> for Vec<L> {
    type Out = X;

    #[track_caller]
    fn forward(&self, x: &X) -> X {
        apply_in_order(self, x)
    }
}

/// Applies the layers one after the other.
impl<X: Clone, L: ChainedLayer<X>, const N: usize> Layer<X> for [L; N] {
    type Out = X;

    #[track_caller]
    fn forward(&self, x: &X) -> X {
        apply_in_order(self, x)
    }
}

/// A layer that takes and returns an `X`: it can be left out, and applied to the output of another one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not take and return `{X}`",
    label = "optional and repeated layers are applied in order, so their output has the type of their input",
    note = "write what replaces an optional layer: `match &self.layer {{ Some(layer) => layer.forward(x), None => .. \
            }}`",
    note = "layers that are applied side by side are elements: `self.layers.iter().map(|layer| layer.forward(x))`"
)]
pub trait ChainedLayer<X>: Layer<X, Out = X> {}

#[diagnostic::do_not_recommend]
impl<X, L: Layer<X, Out = X>> ChainedLayer<X> for L {}

#[track_caller]
fn apply_in_order<X: Clone, L: ChainedLayer<X>>(layers: &[L], x: &X) -> X {
    let mut x = x.clone();
    for layer in layers {
        x = layer.forward(&x);
    }
    x
}
