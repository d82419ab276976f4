//! Experts whose feed-forward is a mixture of experts itself, on a stream that is split over `tp`, with layers that all
//! experts share.

use meshwright::nn::{Sizes, build};
use meshwright::prelude::*;
use meshwright::random;
use meshwright::tensor::{ParamRef, Settings, ZeroStage};
use meshwright_tests::compare::{Report, Tensors};
use meshwright_tests::run::on_mesh_with;

dims! { Batch @ data, Seq @ cp, Hidden, Ffn, Experts, TopK }

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;
type Folded = Split<Experts, (Ep, Cp, Tp)>;
type Outer = Routed<(Batch, Split<Seq, Tp>), Folded>;
type Inner = Routed<(Outer,), Folded>;
type TokenLoss = Loss<(Batch, Split<Seq, Tp>)>;

#[model]
struct Within {
    router: Router<Hidden, Experts, TopK>,
    #[sharded(ep = "experts", fold = [cp, tp])]
    up: GroupedLinear<Experts, Hidden, Ffn>,
    bias: Bias<Ffn>,
    norm: LayerNorm<Ffn>,
    #[sharded(ep = "experts", fold = [cp, tp])]
    down: GroupedLinear<Experts, Ffn, Hidden>,
}

#[forward]
impl Within {
    fn forward(&self, x: &Tensor<(Outer, Hidden)>) -> Tensor<(Outer, Hidden)> {
        let routing = self.router.forward(x);
        let rows: Tensor<(Inner, Hidden)> = routing.dispatch(x, (Ep, Cp, Tp));
        let inside = self.norm.forward(&self.bias.forward(&self.up.forward(&rows)).tanh());
        routing.combine(&self.down.forward(&inside))
    }
}

#[model]
struct Net {
    router: Router<Hidden, Experts, TopK>,
    #[sharded(ep = "experts", fold = [cp, tp])]
    first: GroupedLinear<Experts, Hidden, Hidden>,
    dense: Linear<Hidden, Hidden>,
    #[recompute]
    within: Within,
    gain: Param<(Hidden,)>,
}

impl Net {
    /// Returns the loss of the mean square, and of the rows themselves; each row counts once on all ranks.
    fn losses(&self, x: &Stream) -> (TokenLoss, Loss<(Outer,)>) {
        let routing = self.router.forward(x);
        let rows = self.first.forward(&routing.dispatch(x, (Ep, Cp, Tp)));
        let rows = &rows + self.within.forward(&self.dense.forward(&rows)) * &self.gain;
        let of_rows = Loss::mean_of(&rows.tanh().mean(Hidden));
        let y = routing.combine(&rows);
        (Loss::mean_of(&y.square().mean(Hidden)), of_rows)
    }
}

fn run(mesh: &str, zero: ZeroStage) -> ([f64; 2], Tensors) {
    let settings = Settings { zero, ..Settings::new(7) };
    let mut outcomes = on_mesh_with(mesh, 1, settings, |rank| {
        let mut sizes = Sizes::new().with(Hidden, 6).with(Ffn, 5).with(Experts, 8).with(TopK, 2);
        sizes.init_std = 0.5;
        let net = build::<Net>(rank, &sizes).unwrap_or_else(|error| panic!("{error}"));
        let x: Stream = Tensor::from_fn(rank, &[4, 8, 6], |index| {
            let at = (index[0] * 8 + index[1]) * 6 + index[2];
            (random::key(at as u64, "x") % 1000) as f32 / 500.0 - 1.0
        });
        let (of_tokens, of_rows) = net.model.losses(&x);
        let values = [of_tokens.reduce().value(), of_rows.reduce().value()];
        let gradients = of_tokens.and(of_rows).backward().reduce();
        let of_param = |param: &ParamRef| (param.path().to_owned(), gradients.gather(param));
        (values, net.params().iter().map(of_param).collect())
    });
    outcomes.swap_remove(0)
}

#[test]
fn routings_of_routed_tokens() {
    let (losses, gradients) = run("1", ZeroStage::Replicated);
    let mut report = Report::default();
    for (mesh, zero) in [
        ("ep=2", ZeroStage::Replicated),
        ("tp=2", ZeroStage::Replicated),
        ("cp=2", ZeroStage::Optimizer),
        ("ep=2,tp=2", ZeroStage::Gradients),
        ("ep=2,cp=2,tp=2", ZeroStage::Replicated),
        ("fsdp=2,ep=2", ZeroStage::Parameters),
        ("fsdp=2,tp=4", ZeroStage::Parameters),
    ] {
        let (got, of_mesh) = run(mesh, zero);
        report.scalars("loss", mesh, &got, &losses, 1e-6);
        report.tensors("gradient", mesh, &of_mesh, &gradients, 1e-5);
    }
    report.print();
}
