//! MFU of an MLP by its width: small matmuls stay far below the peak of the machine, whatever trains them.
//! `cargo run --release --example wide_mlp` trains three widths.

use std::fs;
use std::path::Path;

use meshwright::optim::{Sgd, SgdOptions};
use meshwright::prelude::*;
use meshwright::train::{StepNumbers, StepReports};

dims! { Batch @ data, Wide, Inner }

#[model]
struct WideMlp {
    #[sharded(tp = "col")]
    up: Linear<Wide, Inner>,
    #[sharded(tp = "row")]
    down: Linear<Inner, Wide>,
}

#[forward]
impl WideMlp {
    fn forward(&self, x: &Tensor<(Batch, Wide)>) -> Tensor<(Batch, Wide)> {
        self.down.forward(&self.up.forward(x).relu())
    }
}

fn main() -> Result<()> {
    meshwright_examples::refuse_flags_and_processes();
    // The trainer counts FLOPs for its metrics.
    let folder = tempfile::tempdir().expect("a temporary folder");
    println!("width    MFU");
    for width in [16, 64, 256] {
        let mfu = train("1", width, 256, 30, &folder.path().join("metrics.jsonl"))?;
        println!("{width:5} {:5.1} %", 100.0 * mfu);
    }
    Ok(())
}

/// Trains an MLP of this width on batches of some rows, and returns the best MFU of its steps.
pub fn train(mesh: &str, width: usize, rows: usize, steps: u64, metrics: &Path) -> Result<f64> {
    let sizes = Sizes::new().with(Wide, width).with(Inner, 4 * width);
    // An earlier file would be kept beside the new one.
    let _ = fs::remove_file(metrics);
    run_on(mesh, 0, |rank| {
        let built = build::<WideMlp>(rank, &sizes)?;
        let mut optimizer = Sgd::new(rank, &built.units, SgdOptions::default());
        // A row counts as a sequence of one token, so the loss counts rows.
        let mut reports = StepReports::new(rank, 0..steps).with_metrics(metrics, &built, 1)?;
        let x = Tensor::<(Batch, Wide)>::normal(rank, &[rows, width], "rows");
        for _ in 0..steps {
            reports.begin_step();
            let loss = Loss::mean_of(&(built.model.forward(&x) - &x).square().mean(Wide));
            let mean = loss.reduce();
            let gradients = loss.backward().reduce();
            let numbers = StepNumbers { loss: mean, grad_norm: gradients.norm(), lr: 1e-3 };
            optimizer.step(numbers.lr, gradients);
            reports.end_step(&numbers)?;
        }
        reports.finish()
    })?;
    let text = fs::read_to_string(metrics).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
    let mfus = lines.filter_map(|line: serde_json::Value| line["mfu"].as_f64());
    Ok(mfus.fold(0.0, f64::max))
}
