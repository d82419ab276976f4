//! Mixtures of experts in generic code, in optional and repeated fields, and in stacks.

use meshwright::layout::{Dims, DispatchAxes, Shape, TokenRows, With};
use meshwright::nn::RouterInput;
use meshwright::prelude::*;

use super::on_mesh;

dims! { Batch @ data, Seq @ cp, Hidden, Ffn, Experts, TopK }

type Lead = (Batch, Split<Seq, Tp>);
type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;
type ExpertTokens<E> = Tensor<(Routed<Lead, E>, Hidden)>;
type Folded = Split<Experts, (Ep, Cp, Tp)>;

/// Dispatches over axes of the caller.
fn dispatched<A: DispatchAxes<Lead>>(
    routing: &TokenRouting<Lead, Experts, TopK>,
    x: &Stream,
    axes: A,
) -> ExpertTokens<Split<Experts, A>> {
    routing.dispatch(x, axes)
}

/// Applies an activation to the rows of any experts.
fn activated<L, E: Dim, F: Whole>(rows: &Tensor<(Routed<L, E>, F)>) -> Tensor<(Routed<L, E>, F)>
where
    (Routed<L, E>, F): Dims,
{
    rows.silu()
}

/// Routes tokens with any lead dims to experts that every rank has.
fn through<L, X>(
    router: &Router<Hidden, Experts, TopK>,
    experts: &GroupedLinear<Experts, Hidden, Hidden>,
    x: &Tensor<X>,
) -> Tensor<X>
where
    X: Shape + RouterInput<Hidden, Lead = L> + TokenRows<L, Feature = Hidden>,
    L: Dims + With<Hidden, Out = X>,
{
    let routing = router.forward(x);
    routing.combine(&experts.forward(&routing.group(x)))
}

#[model]
struct Networks {
    #[sharded(ep = "experts", fold = [tp, cp])]
    up: [GroupedLinear<Experts, Hidden, Ffn>; 2],
    #[sharded(ep = "experts", fold = [cp, tp])]
    down: Vec<GroupedLinear<Experts, Ffn, Hidden>>,
    norm: Option<RmsNorm<Hidden>>,
}

#[forward]
impl Networks {
    fn forward(&self, x: &ExpertTokens<Folded>) -> ExpertTokens<Folded> {
        let mut y = x.clone();
        for (up, down) in self.up.iter().zip(&self.down) {
            y += down.forward(&activated(&up.forward(x)));
        }
        self.norm.forward(&y)
    }
}

#[model]
struct Block {
    router: Router<Hidden, Experts, TopK>,
    #[recompute]
    experts: Networks,
    everywhere: GroupedLinear<Experts, Hidden, Hidden>,
}

#[forward]
impl Block {
    fn forward(&self, x: &Stream) -> Stream {
        let routing = self.router.forward(x);
        let rows = dispatched(&routing, x, (Ep, Cp, Tp));
        let y = routing.combine(&self.experts.forward(&rows));
        y + through(&self.router, &self.everywhere, x)
    }
}

#[model]
struct Net {
    blocks: Stack<Block>,
}

#[test]
fn generic_code_routes_tokens() {
    let sizes = Sizes::new()
        .with(Hidden, 4)
        .with(Ffn, 6)
        .with(Experts, 8)
        .with(TopK, 2)
        .with(Layers, 2)
        .with_count("down", 2)
        .with_optional("norm", true);
    on_mesh::<Net>("ep=2,cp=2,tp=2", &sizes, |rank, net| {
        let x: Stream = Tensor::from_fn(rank, &[4, 8, 4], |index| index[2] as f32 - 1.5);
        let loss = Loss::mean_of(&net.model.blocks.forward(&x).square().mean(Hidden));
        let value = loss.reduce().value();
        let norm = loss.backward().reduce().norm();
        assert!(value.is_finite() && norm.is_finite() && norm > 0.0, "{value} {norm}");
    });
}
