//! A trainer with flags, a metric and a report of its own:
//! `cargo run --release --example own_trainer -- --steps 100 --metrics m.jsonl --tag first --warn-above 20`.

use meshwright::models::llama::Llama;
use meshwright::prelude::*;
use meshwright::train::{Optimizers, StepObserver, StepReport};

/// Flags besides those of the trainer.
#[derive(clap::Args, Debug, Clone)]
pub struct Flags {
    /// Name of the run in its warnings
    #[arg(long, value_name = "NAME", default_value = "run")]
    pub tag: String,
    /// Norm of the gradient above which a step is reported
    #[arg(long, value_name = "X")]
    pub warn_above: Option<f64>,
}

/// Adds the smoothed loss to the metrics, and warns of large gradients.
pub struct Watch {
    flags: Flags,
    smooth_loss: Option<f64>,
}

impl Watch {
    /// Creates the observer of a rank.
    pub fn new(flags: &Flags) -> Watch {
        Watch { flags: flags.clone(), smooth_loss: None }
    }
}

impl StepObserver for Watch {
    fn end(&mut self, report: &StepReport<'_>) -> Result<()> {
        let before = self.smooth_loss.unwrap_or(report.loss);
        let smooth = before + 0.1 * (report.loss - before);
        self.smooth_loss = Some(smooth);
        report.metric("smooth_loss", smooth)?;
        let is_large = self.flags.warn_above.is_some_and(|limit| report.grad_norm > limit);
        if is_large && report.rank.index() == 0 {
            let Flags { tag, .. } = &self.flags;
            eprintln!("{tag}: step {} has a gradient of norm {}", report.step, report.grad_norm);
        }
        Ok(())
    }
}

fn main() -> Result<()> {
    let (trainer, flags) = Trainer::<Llama>::from_args_and::<Flags>(&Optimizers::default())?;
    trainer.on_step(move |_| Ok(Watch::new(&flags))).run()
}
