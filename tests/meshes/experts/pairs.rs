//! Experts that write pairs of dims, with biases, and parts of these dims.

use meshwright::layout::{AxisId, AxisSet};
use meshwright::nn::{Built, Sizes, build};
use meshwright::prelude::*;
use meshwright::tensor::{ParamRef, Settings};
use meshwright_tests::compare::{Report, Tensors};
use meshwright_tests::data::numbers;
use meshwright_tests::run::{on_mesh, on_mesh_with};

dims! { Batch @ data, Seq, Hidden, Ffn, Two, One, First, Others, Experts, TopK }

type Stream = Tensor<(Batch, Seq, Hidden)>;

#[model]
struct Net {
    before: Linear<Hidden, Hidden>,
    router: Router<Hidden, Experts, TopK>,
    #[sharded(ep = "experts")]
    up: GroupedLinear<Experts, Hidden, (Ffn, Two)>,
    #[sharded(ep = "experts")]
    up_bias: GroupedBias<Experts, (Ffn, Two)>,
    down: Linear<(Ffn, Two), Hidden>,
    #[sharded(ep = "experts")]
    first: GroupedLinear<Experts, First, Hidden>,
    #[sharded(ep = "experts")]
    others: GroupedLinear<Experts, Others, Hidden>,
    #[sharded(ep = "experts")]
    down_bias: GroupedBias<Experts, Hidden>,
}

impl Net {
    fn loss(&self, x: &Stream) -> Loss<(Batch, Seq)> {
        let x = self.before.forward(x);
        let routing = self.router.forward(&x);
        let rows = self.up.forward(&routing.dispatch(&x, Ep));
        let rows = self.up_bias.forward(&rows).tanh();
        // Parts of the dims beside that of the rows.
        let gated = rows.select(Two, 0) * rows.range(Two, 1..2, One).select(One, 0);
        let (first, others) = gated.cut(Ffn, (First, Others), 1);
        let parts = self.first.forward(&first) + self.others.forward(&others);
        let rows = self.down_bias.forward(&(self.down.forward(&rows) + parts));
        let y = routing.combine(&rows);
        Loss::mean_of(&y.square().mean(Hidden))
    }
}

fn built(rank: &Rank) -> Built<Net> {
    let sizes =
        Sizes::new().with(Hidden, 6).with(Ffn, 3).with(Two, 2).with(Experts, 4).with(TopK, 2);
    let mut sizes = sizes.with(First, 1).with(Others, 2);
    sizes.init_std = 0.5;
    let built = build::<Net>(rank, &sizes).unwrap_or_else(|error| panic!("{error}"));
    for param in built.params().iter().filter(|param| param.path().ends_with("bias.bias")) {
        let len = param.to_local_vec().len();
        // Other numbers for each element of the global biases.
        let is_split = rank.degree_of(AxisSet::of(AxisId::Ep)) > 1;
        let first = if is_split { rank.index() * len } else { 0 };
        let values = (first..first + len).map(|at| 0.3 * (at as f32 * 1.7).sin());
        param.write(&values.collect::<Vec<_>>());
    }
    built
}

fn run(mesh: &str) -> (f64, Tensors) {
    let mut outcomes = on_mesh_with(mesh, 1, Settings::new(7), |rank| {
        let net = built(rank);
        let loss = net.model.loss(&numbers(rank, "x", &[8, 3, 6]));
        let value = loss.reduce().value();
        let gradients = loss.backward().reduce();
        let of = |param: &ParamRef| (param.path().to_owned(), gradients.gather(param));
        (value, net.params().iter().map(of).collect())
    });
    outcomes.swap_remove(0)
}

#[test]
fn pairs_and_biases_of_experts_on_meshes() {
    let (loss, gradients) = run("1");
    let mut report = Report::default();
    for mesh in ["ep=2", "ep=4"] {
        let (got, of_mesh) = run(mesh);
        report.scalars("loss", mesh, &[got], &[loss], 1e-6);
        report.tensors("gradient", mesh, &of_mesh, &gradients, 1e-5);
    }
    report.print();
}

/// The gradient of each bias is that of its values.
#[test]
fn biases_of_experts_have_the_gradients_of_their_values() {
    const STEP: f32 = 1.0 / 64.0;
    on_mesh("1", 1, |rank| {
        let net = built(rank);
        let x: Stream = numbers(rank, "x", &[8, 3, 6]);
        let gradients = net.model.loss(&x).backward().reduce();
        for param in net.params().iter().filter(|param| param.path().contains("bias")) {
            let values = param.to_local_vec();
            for (index, slope) in gradients.gather(param).iter().enumerate() {
                let at = |step: f32| {
                    let mut moved = values.clone();
                    moved[index] += step;
                    param.write(&moved);
                    net.model.loss(&x).reduce().value()
                };
                let found = (at(STEP) - at(-STEP)) / f64::from(2.0 * STEP);
                param.write(&values);
                let close = (found - f64::from(*slope)).abs() < 1e-4;
                assert!(close, "`{}` {index}: {slope}, not {found}", param.path());
            }
        }
    });
}
