//! The router: chooses experts for each token.

use std::marker::PhantomData;
use std::panic::Location;

use crate::layout::{AxisSet, Dims, Ends, Here, OnEveryRank, Seal, Whole};
use crate::tensor::{Init, Operand, Param, ParamRef, Value, gradient_axes, note_expert_loads};
use meshwright_backend::{MAX_TOP_K, RouterOptions, RoutingShape};
use meshwright_comm::Site;
use meshwright_mesh::__internal::local_len;

use super::super::{Build, Builder};
use super::choices::Choices;
use super::logit_bias::add_logit_bias;
use super::logits::router_logits;
use super::routing::{RouterPenalties, TokenRouting};
use super::weights::choose_experts;
use crate::nn::debug::debug_layers;

/// A router: a linear layer from `I` to a logit for each of the experts `E`, and the top-k choice, the `C` best of them
/// for each token. The size of the dim `C` is the number of experts that a token chooses.
///
/// Shape: `[.., I]` to a routing of tokens `[..]`; `weight[I, E]`, optional `bias[E]` and `choice_bias[E]`.
///
/// Logits, scores and weights are f32 for every compute dtype. Of experts with equal logits, the lower ones are chosen.
/// [`Sizes::router`](crate::nn::Sizes::router) has the options, and [`Sizes::penalties`](crate::nn::Sizes::penalties)
/// the weights of auxiliary losses. The choice has no gradient; the weights have.
///
/// The logits have a bias if `Sizes::with_optional("router.bias", true)` names it by the field of the router. With
/// `"router.choice_bias"` tokens choose by the sum of score and a buffer, which does not enter the weights, and which
/// [`Sizes::choice_bias_rate`](crate::nn::Sizes::choice_bias_rate) changes after each step.
pub struct Router<I, E, C> {
    weight: ParamRef,
    bias: Option<ParamRef>,
    /// The bias of the choice, a buffer.
    choice_bias: Option<ParamRef>,
    /// Change of the bias of the choice after each step.
    rate: f32,
    options: RouterOptions,
    penalties: RouterPenalties,
    /// Number of experts that a token chooses.
    chosen: usize,
    site: Site,
    kind: PhantomData<(I, E, C)>,
}

impl<I, E, C> Router<I, E, C> {
    /// Chooses experts for each token of `x`. The host waits for the numbers of choices, which the sizes of the
    /// experts' rows follow from.
    #[track_caller]
    pub fn forward<T: Operand>(
        &self,
        x: &T,
    ) -> TokenRouting<<T::Shape as RouterInput<I>>::Lead, E, C>
    where
        T::Shape: RouterInput<I>,
    {
        let x = x.operand().value();
        let site = self.site.clone().at_location(Location::caller());
        let path = self.weight.path();
        let logits = self.logits(x, T::Shape::GRADIENT_AXES);
        let choice_bias = self.choice_bias.as_ref();
        let (weights, chosen) =
            choose_experts(&logits, self.chosen, self.options, choice_bias, path);
        let (tokens, experts) = logits.extents().split_at(logits.extents().len() - 1);
        let shape = RoutingShape { tokens: local_len(tokens), top_k: self.chosen };
        let tokens = tokens.to_vec();
        let choices =
            Choices::new(logits.rank(), tokens, (shape, experts[0].local), &chosen, &site);
        if let Some(bias) = choice_bias.filter(|_| self.rate > 0.0) {
            let axes = <T::Shape as RouterInput<I>>::Lead::VARIES;
            note_expert_loads(logits.rank(), bias, axes, self.rate, &choices.counts);
        }
        TokenRouting::new(choices, weights, logits.clone(), self.options.score, self.penalties)
    }

    #[track_caller]
    fn logits(&self, x: &Value, axes: AxisSet) -> Value {
        let logits = router_logits(x, &self.weight, axes);
        match &self.bias {
            Some(bias) => add_logit_bias(&logits, bias, axes),
            None => logits,
        }
    }
}

impl<I: Whole, E: Whole, C: Whole> Build for Router<I, E, C>
where
    I::Home: OnEveryRank<I>,
    E::Home: OnEveryRank<E>,
    C::Home: OnEveryRank<C>,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        let (experts, mut chosen) = (builder.size::<E>(), builder.size::<C>());
        if chosen > experts.min(MAX_TOP_K) {
            builder.problem(format_args!(
                "{} = {chosen}, but a token can choose at most {}: there are {experts} of {}, and no more than \
                 {MAX_TOP_K} are chosen",
                C::DECLARED_NAME,
                experts.min(MAX_TOP_K),
                E::DECLARED_NAME
            ));
            chosen = 1;
        }
        builder.note_router::<E>(chosen);
        let options = builder.sizes().router;
        if !options.scale.is_finite() {
            builder.problem(format_args!(
                "`Sizes::router` has the scale {}, but the weights of choices are finite numbers",
                options.scale
            ));
        }
        if !(options.sum_epsilon.is_finite() && options.sum_epsilon >= 0.0) {
            builder.problem(format_args!(
                "`Sizes::router` adds {} to sums of scores, but adds a finite number of at least 0",
                options.sum_epsilon
            ));
        }
        if let Some(mistake) = options.groups.and_then(|groups| groups.mistake(experts, chosen)) {
            builder.problem(format_args!("the groups of `Sizes::router` do not fit: {mistake}"));
        }
        let penalties = builder.sizes().penalties;
        if ![penalties.balance, penalties.z_loss].iter().all(|weight| weight.is_finite()) {
            builder.problem(format_args!(
                "`Sizes::penalties` is {penalties:?}, but the weights of auxiliary losses are finite numbers"
            ));
        }
        let std = builder.sizes().init_std;
        let weight: Param<(I, E)> = builder.param("weight", Init::Normal(std));
        let (weight, site) = (weight.handle().clone(), builder.site());
        let bias = builder.has_inner("bias").then(|| {
            let bias: Param<(E,)> = builder.param("bias", Init::Zeros);
            bias.handle().clone()
        });
        let choice_bias = builder.has_inner("choice_bias").then(|| {
            let bias: Param<(E,)> = builder.buffer("choice_bias", Init::Zeros);
            bias.handle().clone()
        });
        let rate = builder.sizes().choice_bias_rate;
        if !(rate.is_finite() && rate >= 0.0) {
            builder.problem(format_args!(
                "`Sizes::choice_bias_rate` is {rate}, but is a finite number of at least 0"
            ));
        }
        if rate > 0.0 && choice_bias.is_none() {
            builder.problem(format_args!(
                "`Sizes::choice_bias_rate` is {rate}, but the router has no bias of the choice: add it by \
                 `Sizes::with_optional(\"router.choice_bias\", true)`, with the name of this field"
            ));
        }
        Router {
            weight,
            bias,
            choice_bias,
            rate,
            options,
            penalties,
            chosen,
            site,
            kind: PhantomData,
        }
    }
}

/// Input shapes of a router that reads `I`.
#[diagnostic::on_unimplemented(
    message = "a router over `{I}` cannot take an activation shaped `{Self}`",
    label = "its input must end in a whole `{I}`, after the dims of the tokens",
    note = "if the activation is split along `{I}`, gather it first: the logits of a shard are partial sums"
)]
pub trait RouterInput<I>: Dims {
    /// The dims of the tokens.
    type Lead: Dims;
    /// The axes over which the weight's gradient is partial.
    const GRADIENT_AXES: AxisSet;
    #[doc(hidden)]
    const SEAL: Seal;
}

#[diagnostic::do_not_recommend]
impl<X: Ends<I>, I: Whole<Home = Here>> RouterInput<I> for X
where
    X::Lead: Dims,
{
    type Lead = X::Lead;
    const GRADIENT_AXES: AxisSet = gradient_axes(X::VARIES, X::VARIES, AxisSet::NONE);
    const SEAL: Seal = Seal::new();
}

debug_layers! {
    Router<I, E, C>: weight;
}
