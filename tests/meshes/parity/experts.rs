//! Weights of experts that are split over axes whose ranks read other samples, against one rank.

use std::rc::Rc;
use std::sync::Arc;

use meshwright::layout::{Shape, Stacked};
use meshwright::nn::build;
use meshwright::optim::MuonOptions;
use meshwright::prelude::*;
use meshwright::tensor::function::{Backward, Forward, Function, apply};
use meshwright::tensor::{Settings, Unit, ZeroStage};
use meshwright_tests::compare::Report;
use meshwright_tests::data::{Turn, numbers};
use meshwright_tests::run::{Setup, on_mesh, train};

use super::table::report_parity;

dims! {
    /// Samples, distributed over `fsdp` alone, so that experts can be split over `ep`.
    Group @ fsdp,
    /// Positions.
    Seq @ cp,
    /// Input of the experts.
    Hidden,
    /// Output of the experts.
    Ffn,
    Experts,
}

/// The weight of each expert, applied to every token.
struct PerExpert;

type Weight<A> = Stacked<Split<Experts, A>, Hidden, Ffn>;

/// Implements the function for tokens with some dims, and experts split over some axes.
macro_rules! per_expert {
    ($axes:ty; $($lead:ident),+) => {
        impl Function<(($($lead,)+ Hidden),), (Weight<$axes>,)> for PerExpert {
            type Output = Tensor<($($lead,)+ Split<Experts, $axes>, Ffn)>;
            type Saved = ();

            fn path(&self) -> &str {
                "per_expert"
            }

            fn forward_pass(&self, call: Forward<'_, (($($lead,)+ Hidden),), (Weight<$axes>,)>) {
                let Forward { inputs: [x], params: [weight], mut output, .. } = call;
                let [experts, inputs, outputs] = [0, 1, 2].map(|dim| weight.local_extents()[dim].local);
                let (x, weight) = (x.to_f32(), weight.to_f32());
                let element = |index: usize| {
                    let (row, expert) = (index / outputs / experts, index / outputs % experts);
                    let terms = (0..inputs).map(|input| {
                        let at = (expert * inputs + input) * outputs + index % outputs;
                        x[row * inputs + input] * weight[at]
                    });
                    terms.sum::<f32>()
                };
                output.write_f32(&(0..output.len()).map(element).collect::<Vec<_>>());
            }

            fn backward_pass(
                &self,
                call: Backward<'_, (($($lead,)+ Hidden),), (Weight<$axes>,), ()>,
            ) {
                let ([dx], [dweight]) = (call.input_gradients, call.param_gradients);
                let ([x], [weight]) = (call.inputs, call.params);
                let [experts, inputs, outputs] = [0, 1, 2].map(|dim| weight.local_extents()[dim].local);
                let (x, weight) = (x.to_f32(), weight.to_f32());
                let dy = call.output_gradient.to_f32();
                let dy_of = |row: usize, expert: usize| {
                    &dy[(row * experts + expert) * outputs..][..outputs]
                };
                if let Some(mut dx) = dx.target() {
                    let element = |index: usize| {
                        let (row, input) = (index / inputs, index % inputs);
                        let terms = (0..experts).flat_map(|expert| {
                            let weight = &weight[(expert * inputs + input) * outputs..][..outputs];
                            weight.iter().zip(dy_of(row, expert)).map(|(w, dy)| w * dy)
                        });
                        terms.sum::<f32>()
                    };
                    dx.write_f32(&(0..dx.len()).map(element).collect::<Vec<_>>());
                }
                if let Some(mut dweight) = dweight.target() {
                    let element = |index: usize| {
                        let (expert, rest) = (index / (inputs * outputs), index % (inputs * outputs));
                        let (input, output) = (rest / outputs, rest % outputs);
                        let rows = 0..x.len() / inputs;
                        rows.map(|row| x[row * inputs + input] * dy_of(row, expert)[output]).sum::<f32>()
                    };
                    dweight.write_f32(&(0..dweight.len()).map(element).collect::<Vec<_>>());
                }
            }
        }
    };
}

per_expert!(Ep; Group, Seq);
per_expert!((Ep, Tp); Group, Seq);
per_expert!((Ep, Cp, Tp); Group);

/// Experts between dense layers.
#[model]
struct Block {
    before: Linear<Hidden, Hidden>,
    over_ep: Param<Weight<Ep>>,
    over_ep_and_tp: Param<Weight<(Ep, Tp)>>,
    folded: Param<Weight<(Ep, Cp, Tp)>>,
    after: Bias<Ffn>,
}

/// A model with one layer, so that dense parameters and experts are of one field.
#[model]
struct Net {
    blocks: Stack<Block>,
}

type Tokens = Tensor<(Group, Seq, Hidden)>;
type OverEpAndTp = (Group, Seq, Split<Experts, (Ep, Tp)>, Ffn);
type Folded = (Group, Split<Experts, (Ep, Cp, Tp)>, Ffn);

impl Block {
    /// Experts over `ep`, whose mean leaves the axis.
    fn loss_over_ep(&self, x: &Tokens) -> Loss<(Group, Seq, Ffn)> {
        let y = apply(PerExpert, (&self.before.forward(x).tanh(),), (&self.over_ep,));
        let mean = y.tanh().mean(Experts).all_reduce();
        Loss::mean_of(&self.after.forward(&mean).exp())
    }

    /// Experts over `ep` and `tp`.
    fn loss_over_ep_and_tp(&self, x: &Tokens) -> Loss<OverEpAndTp> {
        let y = apply(PerExpert, (&self.before.forward(x).tanh(),), (&self.over_ep_and_tp,));
        Loss::mean_of(&self.after.forward(&y).tanh().exp())
    }

    /// Experts over `ep`, `cp` and `tp`, of the mean of each sequence.
    fn folded_loss(&self, x: &Tokens) -> Loss<Folded> {
        let x = self.before.forward(x).tanh().mean(Seq).all_reduce();
        let y = apply(PerExpert, (&x,), (&self.folded,));
        Loss::mean_of(&self.after.forward(&y).tanh().exp())
    }
}

const MESHES: [&str; 9] = [
    "ep=2",
    "ep=4",
    "ep=2,tp=2",
    "dp=2,ep=2",
    "fsdp=2,ep=2",
    "ep=2,cp=2",
    "fsdp=2,ep=2,tp=2",
    "dp=2,fsdp=2,ep=2",
    "ep=2,cp=2,tp=2",
];

fn setup() -> Setup {
    let mut sizes = Sizes::new().with(Hidden, 6).with(Ffn, 5).with(Experts, 8).with(Layers, 1);
    sizes.init_std = 0.4;
    Setup { steps: 3, ..Setup::new(sizes) }
}

fn tokens(rank: &Rank, turn: Turn) -> Tokens {
    numbers(rank, &format!("x {} {}", turn.step, turn.index), &[4, 6, 6])
}

/// Trains with a loss on every mesh at every stage, and compares with one rank.
#[track_caller]
fn check<S: Shape>(what: &str, setup: &Setup, loss: fn(&Block, &Tokens) -> Loss<S>) {
    let loss = |net: &Net, rank: &Rank, turn| loss(&net.blocks.layers()[0], &tokens(rank, turn));
    let mut report = Report::default();
    for micro_batches in [1, 2] {
        let setup = Setup { micro_batches, ..setup.clone() };
        let one = train("1", &setup, loss);
        for (mesh, zero) in MESHES.iter().flat_map(|mesh| ZeroStage::ALL.map(|zero| (mesh, zero))) {
            let settings = Settings { zero, ..setup.settings };
            let got = train(mesh, &Setup { settings, ..setup.clone() }, loss);
            let label = format!("{what} on {mesh} with {zero}, {micro_batches} micro-batches");
            report_parity(&label, &got, &one, &mut report);
        }
    }
    report.print();
}

#[test]
fn experts_over_ep() {
    check("experts over ep", &setup(), Block::loss_over_ep);
}

#[test]
fn experts_over_ep_and_tp() {
    check("experts over ep and tp", &setup(), Block::loss_over_ep_and_tp);
}

#[test]
fn experts_over_ep_and_cp_and_tp() {
    check("experts over ep, cp and tp", &setup(), Block::folded_loss);
}

/// Muon orthogonalizes the dense matrices, and leaves stacked weights to AdamW.
#[test]
fn dense_matrices_beside_experts_with_muon() {
    let optimizer = Arc::new(MuonOptions::default());
    let setup = Setup { optimizer, lr: 1e-2, ..setup() };
    check("experts with Muon", &setup, Block::loss_over_ep);
}

#[test]
fn experts_are_a_unit_of_their_own() {
    let found = on_mesh("fsdp=2,ep=2,cp=2", 1, |rank| {
        let built = build::<Net>(rank, &setup().sizes).unwrap_or_else(|error| panic!("{error}"));
        let paths =
            |unit: &Unit| unit.params().iter().map(|param| param.path().to_owned()).collect();
        let unit = |unit: &Rc<Unit>| (unit.name().to_owned(), paths(unit));
        built.units.iter().map(unit).collect::<Vec<(String, Vec<String>)>>()
    });
    let expected = [
        ("blocks.0", vec!["blocks.0.before.weight", "blocks.0.after.bias"]),
        ("blocks.0 (split over ep)", vec!["blocks.0.over_ep", "blocks.0.over_ep_and_tp"]),
        ("blocks.0 (split over ep x cp)", vec!["blocks.0.folded"]),
    ];
    let expected = expected.map(|(name, paths)| {
        (name.to_owned(), paths.into_iter().map(str::to_owned).collect::<Vec<_>>())
    });
    assert!(found.iter().all(|units| *units == expected), "{:?}", found[0]);
}
