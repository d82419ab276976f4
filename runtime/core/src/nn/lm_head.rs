//! Language-model head: projection onto the vocabulary, fused with the cross-entropy so that the logits of a whole
//! batch are never in memory together.

use std::marker::PhantomData;
use std::panic::Location;

use crate::layout::{
    Axis, AxisSet, Dims, Ends, Enter, Entry, ModelAxis, OnEveryRank, Seal, Split, Whole, With,
};
use crate::tensor::{
    Contraction, Init, Loss, Operand, Param, ParamRef, Reads, Targets, Tensor, Value, add_param,
    check_sizes, contract, enter_region, gradient_axes, note_number,
};

use super::debug::debug_layers;
use super::divergence::divergence;
use super::fused_loss::{HeadParams, fused_loss};
use super::log_probs::log_probs;
use super::{Build, Builder, HeadOptions, Plain, Shard, VocabSplit};

/// Projects the last dim `H` onto vocabulary `V`. Its weight is shaped like that of an [`Embedding`](super::Embedding),
/// so the two can be tied.
///
/// Shape: `[.., H]` and targets `[..]` to a loss, or `[.., H] -> [.., V]`; `weight[V, H]`, optional `bias[V]`.
///
/// `#[sharded(tp = "vocab")]` splits the vocabulary; a sequence-parallel stream is all-gathered on entry.
///
/// [`HeadOptions`] add a soft cap of the logits, label smoothing and a z-loss. A head has a bias, split with the
/// vocabulary, if `Sizes::with_optional("head.bias", true)` names it by the field of the head. A tied head shares its
/// weight only.
pub struct LmHead<H, V, Style = Plain> {
    weight: ParamRef,
    bias: Option<ParamRef>,
    options: HeadOptions,
    kind: PhantomData<(H, V, Style)>,
}

/// Input shapes of a head from `H` onto `V` in style `Style`.
#[diagnostic::on_unimplemented(
    message = "a head from `{H}` onto `{V}` cannot take an activation shaped `{Self}`",
    label = "does not end in a whole `{H}`, or its lead dims are split",
    note = "a plain head takes a stream that is whole; over a sequence-parallel stream make it `#[sharded(tp \
            = \"vocab\")]`; if the dims of the head are swapped, write `LmHead<{V}, {H}>`",
    note = "an activation that ends in a split dim must be reduced by a row-parallel layer first"
)]
pub trait HeadInput<H, V, Style>: Dims {
    /// Dims of the targets.
    type Lead: Dims;
    /// Dims of the logits.
    type Logits: Dims;
    /// The operation on the input as it enters the region.
    const ENTRY: Entry;
    /// The axes over which the weight's gradient is partial.
    const GRADIENT_AXES: AxisSet;
    /// The axes over which the vocabulary is split.
    const VOCAB_AXES: AxisSet;
    #[doc(hidden)]
    const SEAL: Seal;
}

/// Shapes of targets for an activation with lead dims `Lead`: the same dims.
#[diagnostic::on_unimplemented(
    message = "a head over an activation with lead dims `{Lead}` cannot take targets shaped `{Self}`",
    label = "the targets have other dims, or are split differently",
    note = "over a sequence-parallel stream make the head `#[sharded(tp = \"vocab\")]`: it gathers the stream, and \
            takes the targets of the whole sequence"
)]
pub trait TargetsOf<Lead> {}

#[diagnostic::do_not_recommend]
impl<Lead> TargetsOf<Lead> for Lead {}

#[diagnostic::do_not_recommend]
impl<X: Ends<H>, H: Whole, V: Whole> HeadInput<H, V, Plain> for X
where
    X::Lead: Dims + With<V>,
{
    type Lead = X::Lead;
    type Logits = <X::Lead as With<V>>::Out;
    const ENTRY: Entry = Entry::Stay;
    const GRADIENT_AXES: AxisSet = gradient_axes(X::VARIES, X::Lead::VARIES, AxisSet::NONE);
    const VOCAB_AXES: AxisSet = AxisSet::NONE;
    const SEAL: Seal = Seal::new();
}

#[diagnostic::do_not_recommend]
impl<X: Ends<H>, H: Whole, V: Whole, A: Axis> HeadInput<H, V, VocabSplit<A>> for X
where
    X::Lead: Enter<A>,
    <X::Lead as Enter<A>>::Inside: Dims + With<Split<V, A>>,
{
    type Lead = <X::Lead as Enter<A>>::Inside;
    type Logits = <Self::Lead as With<Split<V, A>>>::Out;
    const ENTRY: Entry = <X::Lead as Enter<A>>::ENTRY;
    const GRADIENT_AXES: AxisSet = gradient_axes(Self::Lead::VARIES, Self::Lead::VARIES, A::AXES);
    const VOCAB_AXES: AxisSet = A::AXES;
    const SEAL: Seal = Seal::new();
}

impl<H, V, Style> LmHead<H, V, Style> {
    /// Computes the mean cross-entropy of `x` shaped `[.., H]` for targets shaped `[..]`, chunk by chunk.
    ///
    /// While the tape records, the gradients are computed here too, from the logits of each chunk; backward only passes
    /// them on.
    #[track_caller]
    pub fn loss<T: Operand, G>(&self, x: &T, targets: &Targets<G>) -> Loss<G>
    where
        T::Shape: HeadInput<H, V, Style>,
        G: Dims + TargetsOf<<T::Shape as HeadInput<H, V, Style>>::Lead>,
    {
        let x = self.entered(x, targets);
        fused_loss(&x, self.params::<T::Shape>(), targets)
    }

    /// Computes the log-probability of each target, `[..]`, of `x` shaped `[.., H]`, chunk by chunk; 0 if it is
    /// ignored. Soft cap and bias of the head apply, label smoothing and z-loss do not.
    ///
    /// Backward computes the logits of each chunk again.
    #[track_caller]
    pub fn log_probs<T: Operand, G>(&self, x: &T, targets: &Targets<G>) -> Tensor<G>
    where
        T::Shape: HeadInput<H, V, Style>,
        G: Dims + TargetsOf<<T::Shape as HeadInput<H, V, Style>>::Lead>,
    {
        let x = self.entered(x, targets);
        Tensor::from_untyped(log_probs(&x, self.params::<T::Shape>(), targets))
    }

    /// Computes the Kullback-Leibler divergence of each token, `sum(q log(q / p))` over the vocabulary, of the
    /// probabilities `p = softmax(logits / temperature)` of this head for `x` from those of a teacher, `q`, for
    /// `teacher_x`, chunk by chunk ([Hinton et al. 2015](https://arxiv.org/abs/1503.02531), without their factor
    /// `temperature^2`). Logits are f32, and have the soft cap and the bias of their head.
    ///
    /// Nothing is differentiated through the teacher. Backward computes the logits of each chunk again.
    ///
    /// # Panics
    /// If `temperature` is not above 0, or the streams have other sizes.
    #[track_caller]
    pub fn kl<T: Operand, U: Operand, K>(
        &self,
        x: &T,
        teacher: &LmHead<K, V, Style>,
        teacher_x: &U,
        temperature: f32,
    ) -> Tensor<<T::Shape as HeadInput<H, V, Style>>::Lead>
    where
        T::Shape: HeadInput<H, V, Style>,
        U::Shape: HeadInput<K, V, Style, Lead = <T::Shape as HeadInput<H, V, Style>>::Lead>,
    {
        let site = self.weight.site().clone().at_location(Location::caller());
        let x = enter_region(x.operand().value(), T::Shape::ENTRY, &site);
        let teacher_x = teacher_x.operand();
        note_number::<U::Shape>(teacher_x.rank(), "compared at temperature", temperature);
        let teacher_x = enter_region(teacher_x.value(), U::Shape::ENTRY, &site);
        let lead = |x: &Value| x.extents()[..x.extents().len() - 1].to_vec();
        check_sizes(
            <T::Shape as HeadInput<H, V, Style>>::Lead::DIMS,
            ("the stream that a head reads", &lead(&x)),
            ("that of its teacher", &lead(&teacher_x)),
        );
        x.rank().check_same(teacher_x.rank());
        x.rank().check_same(self.weight.rank());
        let (head, teacher) = (self.params::<T::Shape>(), teacher.params::<U::Shape>());
        Tensor::from_untyped(divergence(&x, head, &teacher_x, teacher, temperature))
    }

    /// Returns the input of the head inside of its region, for these targets.
    #[track_caller]
    fn entered<T: Operand, G: Dims>(&self, x: &T, targets: &Targets<G>) -> Value
    where
        T::Shape: HeadInput<H, V, Style>,
    {
        let site = self.weight.site().clone().at_location(Location::caller());
        let x = enter_region(x.operand().value(), T::Shape::ENTRY, &site);
        x.rank().check_same(self.weight.rank());
        x.rank().check_same(targets.rank());
        let lead = &x.extents()[..x.extents().len() - 1];
        check_sizes(
            G::DIMS,
            ("the stream that a head reads", lead),
            ("its targets", targets.local_extents()),
        );
        x
    }

    /// Returns the parameters, as an input shaped `S` reads them.
    fn params<S: HeadInput<H, V, Style>>(&self) -> HeadParams<'_> {
        HeadParams {
            weight: &self.weight,
            bias: self.bias.as_ref(),
            axes: S::GRADIENT_AXES,
            vocab_axes: S::VOCAB_AXES,
            options: self.options,
        }
    }

    /// Computes the logits `[.., V]` of `x` shaped `[.., H]`, with the vocabulary split like that of the head, and with
    /// its bias and soft cap.
    #[track_caller]
    pub fn logits<T: Operand>(&self, x: &T) -> Tensor<<T::Shape as HeadInput<H, V, Style>>::Logits>
    where
        T::Shape: HeadInput<H, V, Style>,
    {
        let how = Contraction {
            reads: Reads::Last(1),
            entry: T::Shape::ENTRY,
            gradient_axes: T::Shape::GRADIENT_AXES,
            leaves: None,
        };
        let site = self.weight.site().clone().at_location(Location::caller());
        let mut logits = Tensor::<<T::Shape as HeadInput<H, V, Style>>::Logits>::from_untyped(
            contract(x.operand().value(), &self.weight, how, &site),
        );
        if let Some(bias) = &self.bias {
            logits = add_param(&logits, bias, T::Shape::GRADIENT_AXES);
        }
        match self.options.soft_cap {
            Some(cap) => logits.scale(1.0 / cap).tanh().scale(cap),
            None => logits,
        }
    }
}

impl<H: Whole, V: Whole> Build for LmHead<H, V, Plain>
where
    H::Home: OnEveryRank<H>,
    V::Home: OnEveryRank<V>,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        LmHead::new::<(V, H), (V,)>(builder)
    }
}

impl<H: Whole, V: Whole, A: ModelAxis> Build for LmHead<H, V, VocabSplit<A>>
where
    H::Home: OnEveryRank<H>,
    V::Home: OnEveryRank<V>,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        LmHead::new::<(Split<V, A>, H), (Split<V, A>,)>(builder)
    }
}

impl<H, V, Style> LmHead<H, V, Style> {
    /// Declares the parameters: a weight shaped `S`, and a bias shaped `B`.
    fn new<S: Dims, B: Dims>(builder: &mut Builder<'_>) -> Self {
        let std = builder.sizes().init_std;
        let weight: Param<S> = builder.table("weight", Init::Normal(std));
        builder.note_matmul(weight.handle());
        let bias = builder.has_inner("bias").then(|| {
            let bias: Param<B> = builder.untied_param("bias", Init::Zeros);
            bias.handle().clone()
        });
        let options = builder.head_options();
        LmHead { weight: weight.handle().clone(), bias, options, kind: PhantomData }
    }
}

#[diagnostic::do_not_recommend]
impl<H, V, A> Shard<VocabSplit<A>> for LmHead<H, V> {
    type Sharded = LmHead<H, V, VocabSplit<A>>;
}

debug_layers! {
    LmHead<H, V, Style>: weight;
}
