//! An MLP with a column-parallel, a row-parallel and a replicated layer. It learns `x * y` from points of the plane, on
//! four ranks: `cargo run --release --example mlp`.

use meshwright::optim::{AdamW, AdamWOptions};
use meshwright::prelude::*;

dims! { Batch @ data, Point, Hidden, Code, Height }

const POINTS: usize = 256;

#[model]
struct Mlp {
    #[sharded(tp = "col")]
    up: Linear<Point, Hidden>,
    #[sharded(tp = "col")]
    bias: Bias<Hidden>,
    #[sharded(tp = "row")]
    down: Linear<Hidden, Code>,
    head: Linear<Code, Height>,
}

#[forward]
impl Mlp {
    fn forward(&self, x: &Tensor<(Batch, Point)>) -> Tensor<(Batch, Height)> {
        let hidden = self.bias.forward(&self.up.forward(x)).tanh();
        self.head.forward(&self.down.forward(&hidden).tanh())
    }
}

fn main() -> Result<()> {
    meshwright_examples::refuse_flags_and_processes();
    for (step, loss) in train("dp=2,tp=2", 301)?.iter().enumerate().step_by(50) {
        println!("step {step:3}: loss {loss:.5}");
    }
    Ok(())
}

/// Trains for `steps` steps, and returns the loss before each.
pub fn train(mesh: &str, steps: usize) -> Result<Vec<f64>> {
    let mut sizes = Sizes::new().with(Point, 2).with(Hidden, 32).with(Code, 16).with(Height, 1);
    sizes.init_std = 0.5;
    let mut losses = run_on(mesh, 0, |rank| {
        let built = build::<Mlp>(rank, &sizes)?;
        let mut optimizer = AdamW::new(rank, &built.units, AdamWOptions::default());
        let points = Tensor::from_fn(rank, &[POINTS, 2], |at| point(at[0])[at[1]]);
        let step = || {
            let y = built.model.forward(&points);
            let heights = y.like(|at| point(at[0]).iter().product());
            let error = y - heights;
            let loss = Loss::mean_of(&(&error * &error));
            let mean = loss.reduce().value();
            optimizer.step(0.01, loss.backward().reduce());
            mean
        };
        Ok(std::iter::repeat_with(step).take(steps).collect())
    })?;
    // The loss is the same on every rank.
    Ok(losses.swap_remove(0))
}

/// Returns point `index` of a low-discrepancy sequence (multiples of the plastic number) in the square from -1 to 1.
fn point(index: usize) -> [f32; 2] {
    [0.754_877_7, 0.569_840_3].map(|step| 2.0 * (index as f32 * step).fract() - 1.0)
}
