//! The routing of tokens: dispatch to the experts, combination of their results, and auxiliary losses.

use std::marker::PhantomData;
use std::rc::Rc;

use crate::layout::{
    AxisSet, Dims, DispatchAxes, Here, Routed, RowsOf, Split, TokenRows, Whole, With,
};
use crate::tensor::{Tensor, Value, check_sizes, fail};
use meshwright_backend::RouterScore;
use meshwright_mesh::__internal::shape_name;

use super::auxiliary_loss::auxiliary_losses;
use super::choices::Choices;
use super::combine::combine_rows;
use super::dispatch::dispatch_rows;

/// The experts `E` that tokens shaped `L` have chosen, `C` for each token, and the weights of these choices.
///
/// ```text
/// let routing = self.router.forward(x);
/// let rows = routing.dispatch(x, Ep);
/// routing.combine(&self.experts.forward(&rows))
/// ```
#[must_use = "a routing does nothing until it dispatches rows, and combines the results of the experts"]
pub struct TokenRouting<L, E, C> {
    choices: Rc<Choices>,
    /// Weights of the choices, f32 `[.., C]`.
    weights: Value,
    /// Logits, f32 `[.., E]`.
    logits: Value,
    score: RouterScore,
    penalties: RouterPenalties,
    kind: PhantomData<(L, E, C)>,
}

/// Weights of the auxiliary losses of a router.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RouterPenalties {
    /// Weight of the load-balancing loss, [`TokenRouting::load_balancing_loss`].
    pub balance: f32,
    /// Weight of the z-loss, [`TokenRouting::z_loss`].
    pub z_loss: f32,
}

/// Rows of `F`, of tokens shaped `L` at the ranks of the axes `A` that have the chosen ones of the experts `E`.
type Dispatched<L, E, A, F> = Tensor<(Routed<L, Split<E, A>>, F)>;

impl<L: Dims, E, C> TokenRouting<L, E, C> {
    pub(super) fn new(
        choices: Choices,
        weights: Value,
        logits: Value,
        score: RouterScore,
        penalties: RouterPenalties,
    ) -> Self {
        let choices = Rc::new(choices);
        TokenRouting { choices, weights, logits, score, penalties, kind: PhantomData }
    }

    /// Returns the rows of tokens, permuted by expert: one row for each of a token's top-k experts. It is for experts
    /// that every rank has, and sends nothing.
    ///
    /// Shape: `[.., F] -> [rows, F]`.
    ///
    /// # Panics
    /// If `x` has other tokens than the router has routed.
    #[track_caller]
    pub fn group<X: TokenRows<L>>(&self, x: &Tensor<X>) -> Tensor<(Routed<L, E>, X::Feature)>
    where
        E: Whole<Home = Here>,
    {
        self.rows_of(x, AxisSet::NONE)
    }

    /// Returns the rows that the ranks of `axes` have routed to the experts of this rank: for layers of experts that
    /// are split over these axes, `Ep` for `#[sharded(ep = "experts")]`. One all-to-all, of as many rows as tokens have
    /// chosen experts of other ranks; its backward is another one.
    ///
    /// Shape: `[.., F] -> [rows, F]`.
    ///
    /// It does not compile for an axis over which the tokens do not vary: its ranks have the same tokens, and each
    /// expert would get them once for each rank.
    ///
    /// # Panics
    /// If `x` has other tokens than the router has routed.
    #[track_caller]
    pub fn dispatch<X: TokenRows<L>, A: DispatchAxes<L>>(
        &self,
        x: &Tensor<X>,
        axes: A,
    ) -> Dispatched<L, E, A, X::Feature>
    where
        E: Whole<Home = Here>,
    {
        let _: A = axes;
        self.rows_of(x, A::AXES)
    }

    /// Brings the results of experts back to the tokens, and adds them up by the weights of the choices. After
    /// [`dispatch`](Self::dispatch), one all-to-all.
    ///
    /// Shape: `[rows, F] -> [.., F]`.
    ///
    /// # Panics
    /// If another routing has dispatched the rows.
    #[track_caller]
    pub fn combine<R: RowsOf<L, E>>(&self, rows: &Tensor<R>) -> Tensor<<L as With<R::Feature>>::Out>
    where
        L: With<R::Feature>,
    {
        let rows = rows.value();
        rows.rank().check_same(&self.choices.rank);
        assert!(
            rows.extents()[0].routing() == self.choices.routing,
            "`combine` is given rows that another routing has dispatched: each call of a router is another \
             routing, so rows go back by the one that has dispatched them"
        );
        let exchange = self.choices.exchange(R::EXPERT_AXES);
        Tensor::from_untyped(combine_rows(&self.choices, &exchange, rows, &self.weights))
    }

    /// Returns the auxiliary loss of each token: the sum of the load-balancing loss and the z-loss by the weights of
    /// [`Sizes::penalties`](crate::nn::Sizes::penalties), which a run can set. A loss of weight 0 is left out.
    ///
    /// ```text
    /// routing.combine(&rows).with_auxiliary_loss(&routing.auxiliary_loss())
    /// ```
    #[track_caller]
    pub fn auxiliary_loss(&self) -> Tensor<L> {
        match self.penalties {
            RouterPenalties { balance: 0.0, z_loss: 0.0 } => {
                self.loss_of_tokens(&vec![0.0; self.choices.counts.len()], 0.0)
            }
            RouterPenalties { balance, z_loss: 0.0 } => self.load_balancing_loss() * balance,
            RouterPenalties { balance: 0.0, z_loss } => self.z_loss() * z_loss,
            RouterPenalties { balance, z_loss } => {
                self.load_balancing_loss() * balance + self.z_loss() * z_loss
            }
        }
    }

    /// Returns the load-balancing loss with a number for each token. Their mean over all tokens is
    /// `E * sum of f[e] * P[e]` over the experts `e`, where `f` is the fraction of the choices, and `P` the mean
    /// probability, of an expert; over all ranks (Fedus et al., "Switch Transformers", 2021, equation 4). It is 1 if
    /// both are even, its minimum for `f = P`; gradients flow through `P`.
    ///
    /// [`x.with_auxiliary_loss(&(routing.load_balancing_loss() * 0.01))`](Tensor::with_auxiliary_loss) adds it to what
    /// is differentiated. One small all-reduce. Of several micro-batches, each has its own `f`.
    #[track_caller]
    pub fn load_balancing_loss(&self) -> Tensor<L> {
        let Choices { rank, counts, site, .. } = &*self.choices;
        let mut totals: Vec<f64> = counts.iter().map(|count| f64::from(*count)).collect();
        let group = rank.group(L::VARIES);
        group.all_reduce_f64(site, &mut totals).unwrap_or_else(|error| fail(error));
        let choices = totals.iter().sum::<f64>().max(1.0);
        let factor = |count: &f64| (counts.len() as f64 * count / choices) as f32;
        let factors: Vec<f32> = totals.iter().map(factor).collect();
        self.loss_of_tokens(&factors, 0.0)
    }

    /// Returns the router z-loss of each token: the square of the log-sum-exp of its logits, which keeps them small
    /// (Zoph et al., "ST-MoE", 2022, equation 5). [`x.with_auxiliary_loss(&(routing.z_loss() *
    /// 0.001))`](Tensor::with_auxiliary_loss) adds it to what is differentiated.
    #[track_caller]
    pub fn z_loss(&self) -> Tensor<L> {
        self.loss_of_tokens(&vec![0.0; self.choices.counts.len()], 1.0)
    }

    /// Returns the number of tokens of this rank that have chosen each expert.
    pub fn local_counts(&self) -> &[u32] {
        &self.choices.counts
    }

    #[track_caller]
    fn loss_of_tokens(&self, factors: &[f32], z: f32) -> Tensor<L> {
        let path = self.choices.site.field();
        Tensor::from_untyped(auxiliary_losses(&self.logits, self.score, factors, z, path))
    }

    #[track_caller]
    fn rows_of<X: TokenRows<L>, S: Dims>(&self, x: &Tensor<X>, axes: AxisSet) -> Tensor<S> {
        let (x, tokens) = (x.value(), &self.choices.tokens);
        x.rank().check_same(&self.choices.rank);
        let own = &x.extents()[..tokens.len()];
        check_sizes(L::DIMS, ("the tensor that is dispatched", own), ("the routing", tokens));
        let exchange = self.choices.exchange(axes);
        Tensor::from_untyped(dispatch_rows(&self.choices, &exchange, x))
    }
}

impl<L: Dims, E, C> std::fmt::Debug for TokenRouting<L, E, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (tokens, experts) = (shape_name(L::DIMS), self.choices.counts.len());
        write!(f, "Routing({} of {experts} experts of tokens {tokens})", self.choices.shape.top_k)
    }
}
