//! Loss, auxiliary losses and every gradient of a mixture of experts, against the dense computation and its
//! differences.

use meshwright::nn::build;
use meshwright::nn::layers::{RouterOptions, RouterScore};
use meshwright::prelude::*;
use meshwright::tensor::Gradients;
use meshwright_tests::data::numbers;
use meshwright_tests::run::on_mesh;

use super::dense::{self, Dense, Params};

dims! { Batch @ data, Hidden, Ffn, Experts, TopK }

type Stream = Tensor<(Batch, Hidden)>;

#[model]
struct Moe {
    before: Param<(Hidden,)>,
    router: Router<Hidden, Experts, TopK>,
    #[sharded(ep = "experts")]
    up: GroupedLinear<Experts, Hidden, Ffn>,
    #[sharded(ep = "experts")]
    down: GroupedLinear<Experts, Ffn, Hidden>,
}

impl Moe {
    /// Returns the outputs, and the auxiliary loss of each token.
    fn outputs(&self, x: &Stream, balance: f32, z: f32) -> (Stream, Tensor<(Batch,)>) {
        let x = &(x * &self.before);
        let routing = self.router.forward(x);
        let rows = routing.dispatch(x, Ep);
        let y = routing.combine(&self.down.forward(&self.up.forward(&rows).tanh()));
        (y, routing.load_balancing_loss() * balance + routing.z_loss() * z)
    }
}

const SIZES: dense::Sizes = dense::Sizes { tokens: 12, hidden: 5, ffn: 3, experts: 4, chosen: 2 };

/// Loss, auxiliary loss, gradients and parameters by path.
type Outcome = (f64, f64, Vec<(String, Vec<f32>)>, Vec<(String, Vec<f32>)>);

fn run(mesh: &str, options: RouterOptions, [balance, z]: [f32; 2]) -> Outcome {
    let outcomes = on_mesh(mesh, 1, |rank| {
        let mut sizes = meshwright::nn::Sizes::new()
            .with(Hidden, SIZES.hidden)
            .with(Ffn, SIZES.ffn)
            .with(Experts, SIZES.experts)
            .with(TopK, SIZES.chosen);
        sizes.init_std = 0.7;
        sizes.router = options;
        let net = build::<Moe>(rank, &sizes).unwrap_or_else(|error| panic!("{error}"));
        let x: Stream = numbers(rank, "x", &[SIZES.tokens, SIZES.hidden]);
        let (y, losses) = net.model.outputs(&x, balance, z);
        let of_tokens = |y: Stream| Loss::mean_of(&y.square().mean(Hidden));
        let penalized = of_tokens(y.clone()).with_penalty(&losses).backward().reduce();
        let params = net.params();
        let penalized: Vec<_> = params.iter().map(|param| penalized.gather(param)).collect();
        let (y, losses) = net.model.outputs(&x, balance, z);
        let loss = of_tokens(y.with_auxiliary_loss(&losses));
        let auxiliary = Loss::mean_of(&losses).reduce().value();
        let value = loss.reduce().value();
        let gradients: Gradients<_> = loss.backward().reduce();
        let attached: Vec<_> = params.iter().map(|param| gradients.gather(param)).collect();
        assert_eq!(attached, penalized, "attached on {mesh}");
        let gather = |of: &dyn Fn(&meshwright::tensor::ParamRef) -> Vec<f32>| {
            params.iter().map(|param| (param.path().to_owned(), of(param))).collect::<Vec<_>>()
        };
        let of_params = gather(&|param| param.gather(rank));
        (value, auxiliary, gather(&|param| gradients.gather(param)), of_params)
    });
    outcomes.into_iter().next().expect("there is a rank")
}

fn wide(numbers: &[f32]) -> Vec<f64> {
    numbers.iter().map(|x| f64::from(*x)).collect()
}

/// Returns `x` as one rank has it.
fn input() -> Vec<f64> {
    let x = on_mesh("1", 1, |rank| {
        let x: Stream = numbers(rank, "x", &[SIZES.tokens, SIZES.hidden]);
        x.to_local_vec()
    });
    wide(&x[0])
}

fn check(options: RouterOptions, mesh: &str) {
    let weights = [0.3, 0.02];
    let (loss, auxiliary, gradients, params) = run(mesh, options, weights);
    let [balance, z] = weights.map(f64::from);
    let dense = Dense { sizes: SIZES, options, balance, z };
    let of = |path: &str| {
        let found = params.iter().find(|(name, _)| name == path);
        wide(&found.unwrap_or_else(|| panic!("no {path}")).1)
    };
    let before = of("before");
    let scaled = |before: &[f64]| -> Vec<f64> {
        input().iter().zip(before.iter().cycle()).map(|(x, gain)| x * gain).collect()
    };
    let exact =
        Params { router: of("router.weight"), up: of("up.weight"), down: of("down.weight") };
    let [expected, expected_auxiliary] = dense.loss(&exact, &scaled(&before));
    let label = format!("{options:?} on {mesh}");
    assert!((loss - expected).abs() < 1e-5 * expected, "{label}: {loss} and not {expected}");
    assert!(
        (auxiliary - expected_auxiliary).abs() < 1e-5 * expected_auxiliary,
        "{label}: an auxiliary loss of {auxiliary} and not {expected_auxiliary}"
    );
    let objective = |params: &Params, before: &[f64]| -> f64 {
        dense.loss(params, &scaled(before)).iter().sum()
    };
    let mut largest = 0.0f64;
    for (path, gradient) in &gradients {
        for (index, got) in gradient.iter().enumerate() {
            let at = |delta: f64| {
                let (mut params, mut before) = (exact.clone(), before.clone());
                let changed = match path.as_str() {
                    "before" => &mut before,
                    "router.weight" => &mut params.router,
                    "up.weight" => &mut params.up,
                    "down.weight" => &mut params.down,
                    other => panic!("{other} is no parameter"),
                };
                changed[index] += delta;
                objective(&params, &before)
            };
            let delta = 1e-6;
            let expected = (at(delta) - at(-delta)) / (2.0 * delta);
            let apart = (f64::from(*got) - expected).abs();
            assert!(apart < 2e-5, "{label}: {path}[{index}] is {got} and not {expected}");
            largest = largest.max(expected.abs());
        }
    }
    assert!(largest > 0.01, "{label}: the gradients are small");
}

#[test]
fn gradients_are_those_of_the_dense_computation() {
    for score in [RouterScore::Softmax, RouterScore::Sigmoid] {
        for normalize in [false, true] {
            let options = RouterOptions { score, normalize, scale: 1.7, ..Default::default() };
            for mesh in ["1", "ep=2", "ep=4", "dp=2,ep=2"] {
                check(options, mesh);
            }
        }
    }
}
