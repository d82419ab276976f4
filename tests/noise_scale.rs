//! The squared norms of the gradients of micro-batches, against the formula of a model with known gradients of samples.

use std::ops::Range;

use meshwright::nn::{Layer, Linear, Sizes, build};
use meshwright::prelude::dims;
use meshwright::tensor::{Loss, Rank, Settings, Tensor, ZeroStage};
use meshwright::{forward, model};
use meshwright_tests::run::on_mesh_with;

dims! { Batch @ data, In, Mid, Out }

const SIZES: [usize; 3] = [3, 4, 2];
const ROWS: usize = 8;
/// Relative.
const TOLERANCE: f64 = 1e-5;

#[model]
struct Pair {
    #[sharded(tp = "col")]
    up: Linear<In, Mid>,
    #[sharded(tp = "row")]
    down: Linear<Mid, Out>,
}

#[forward]
impl Pair {
    fn forward(&self, x: &Tensor<(Batch, In)>) -> Tensor<(Batch, Out)> {
        self.down.forward(&self.up.forward(x))
    }
}

fn input(row: usize, column: usize) -> f32 {
    ((row * 7 + column * 3) as f32 * 0.9).sin()
}

/// A matrix `[rows][columns]` in f64.
type Matrix = Vec<Vec<f64>>;

/// Returns a weight that reads `inputs` and writes `outputs`, in the order of its dims or the other one.
fn matrix(values: &[f32], sizes: &[usize], inputs: usize, outputs: usize) -> Matrix {
    let at = |i: usize, o: usize| if sizes[0] == inputs { i * outputs + o } else { o * inputs + i };
    (0..inputs).map(|i| (0..outputs).map(|o| f64::from(values[at(i, o)])).collect()).collect()
}

/// Returns the squared norm of the gradient of the mean square of all outputs of some rows.
fn squares_of(rows: Range<usize>, [up, down]: &[Matrix; 2]) -> f64 {
    let [ins, mids, outs] = SIZES;
    let mut gradients = [vec![vec![0.0; mids]; ins], vec![vec![0.0; outs]; mids]];
    let count = (rows.len() * outs) as f64;
    for row in rows {
        let x: Vec<f64> = (0..ins).map(|i| f64::from(input(row, i))).collect();
        let mid: Vec<f64> = (0..mids).map(|m| (0..ins).map(|i| x[i] * up[i][m]).sum()).collect();
        let out = |o: usize| (0..mids).map(|m| mid[m] * down[m][o]).sum::<f64>();
        let of_out: Vec<f64> = (0..outs).map(|o| 2.0 * out(o) / count).collect();
        for m in 0..mids {
            let of_mid: f64 = (0..outs).map(|o| of_out[o] * down[m][o]).sum();
            (0..ins).for_each(|i| gradients[0][i][m] += x[i] * of_mid);
            (0..outs).for_each(|o| gradients[1][m][o] += mid[m] * of_out[o]);
        }
    }
    gradients.iter().flatten().flatten().map(|x| x * x).sum()
}

/// Returns the squared norms of a micro-batch and of the batch, and the weights.
fn measure(rank: &Rank, micro_batches: usize) -> ([f64; 2], [Matrix; 2]) {
    let [ins, mids, outs] = SIZES;
    let sizes = Sizes::new().with(In, ins).with(Mid, mids).with(Out, outs);
    let built = build::<Pair>(rank, &sizes).unwrap();
    let loss = |index: usize| {
        let rows = ROWS / micro_batches;
        let x = Tensor::from_fn(rank, &[rows, ins], |at| input(index * rows + at[0], at[1]));
        Loss::mean_of(&built.model.forward(&x).square())
    };
    let gradients = match micro_batches {
        1 => loss(0).backward(),
        count => (1..count - 1)
            .fold(loss(0).accumulate(), |gradients, index| gradients.accumulate(loss(index)))
            .backward(loss(count - 1)),
    };
    let gradients = gradients.reduce();
    let squares = [gradients.first_squares(micro_batches), gradients.norm().powi(2)];
    assert_eq!(gradients.first_squares(micro_batches), 0.0, "they are of one step");
    let params = built.params();
    let weight = |path: &str, inputs, outputs| {
        let param = params.iter().find(|param| param.path() == path).unwrap();
        matrix(&param.gather(rank), &param.sizes(), inputs, outputs)
    };
    (squares, [weight("up.weight", ins, mids), weight("down.weight", mids, outs)])
}

#[test]
fn norms_of_micro_batches_are_those_of_the_formula() {
    for (mesh, data_ranks, zero) in [
        ("1", 1, ZeroStage::Replicated),
        ("dp=2", 2, ZeroStage::Replicated),
        ("fsdp=2", 2, ZeroStage::Optimizer),
        ("fsdp=2", 2, ZeroStage::Gradients),
        ("fsdp=2,tp=2", 2, ZeroStage::Parameters),
        ("dp=2,fsdp=2,tp=2", 4, ZeroStage::Parameters),
        ("tp=2", 1, ZeroStage::Replicated),
    ] {
        for micro_batches in [1, 2] {
            let settings = Settings { zero, first_squares: true, ..Settings::new(7) };
            let results = on_mesh_with(mesh, 1, settings, |rank| measure(rank, micro_batches));
            for ([part, whole], weights) in results {
                let rows = ROWS / micro_batches / data_ranks;
                let parts = (0..data_ranks).map(|rank| rank * rows..(rank + 1) * rows);
                let squares: f64 = parts.map(|rows| squares_of(rows, &weights)).sum();
                for (found, expected) in
                    [(part, squares / data_ranks as f64), (whole, squares_of(0..ROWS, &weights))]
                {
                    assert!(
                        (found / expected - 1.0).abs() < TOLERANCE,
                        "{mesh} with {micro_batches}: {found}, not {expected}"
                    );
                }
            }
        }
    }
}

/// Without the setting nothing is summed.
#[test]
fn nothing_is_measured_unasked() {
    for ([part, whole], _) in on_mesh_with("dp=2", 1, Settings::new(7), |rank| measure(rank, 1)) {
        assert!(part == 0.0 && whole > 0.0);
    }
}
