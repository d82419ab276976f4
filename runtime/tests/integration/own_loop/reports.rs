//! Reports of a training loop: the metrics file, observers and evaluations.

use std::cell::RefCell;
use std::fs;
use std::thread::sleep;
use std::time::Duration;

use meshwright::Error;
use meshwright::optim::{AdamW, AdamWOptions};
use meshwright::prelude::*;
use meshwright::tensor::Mean;
use meshwright::train::{StepNumbers, StepObserver, StepReport, StepReports};

dims! { Batch @ data, Hidden, Ffn }

/// Keeps the evaluations, and adds a metric.
struct Keeper<'a>(&'a RefCell<Vec<Option<f64>>>);

impl StepObserver for Keeper<'_> {
    fn end(&mut self, report: &StepReport<'_>) -> Result<()> {
        let evaluation = report.evaluation;
        self.0.borrow_mut().push(evaluation.map(|evaluation| evaluation.loss));
        assert!(evaluation.is_none_or(|evaluation| evaluation.seconds >= 0.2));
        assert!(report.seconds < 0.2, "{}", report.seconds);
        report.metric("doubled", 2.0 * report.loss)
    }
}

#[test]
fn loops_report_as_the_trainer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.jsonl");
    let train = |steps: std::ops::Range<u64>| {
        run_on("fsdp=2", 0, |rank| {
            let kept = RefCell::default();
            let sizes = Sizes::new().with(Hidden, 8).with(Ffn, 12);
            let built = build::<Linear<Hidden, Ffn>>(rank, &sizes)?;
            let mut optimizer = AdamW::new(rank, &built.units, AdamWOptions::default());
            let reports = StepReports::new(rank, steps.clone()).on_step(Keeper(&kept));
            let mut reports = reports.with_metrics(&path, &built, 1)?;
            for step in steps.clone() {
                reports.begin_step();
                let x: Tensor<(Batch, Hidden)> = Tensor::from_fn(rank, &[4, 8], |at| at[1] as f32);
                let y = built.model.forward(&x);
                let loss = Loss::mean_of(&(&y * &y));
                let mean = loss.reduce();
                let gradients = loss.backward().reduce();
                let numbers = StepNumbers { loss: mean, grad_norm: gradients.norm(), lr: 0.01 };
                optimizer.step(numbers.lr, gradients);
                if step == 1 {
                    reports.evaluate(|| {
                        assert!(!rank.is_recording());
                        sleep(Duration::from_millis(200));
                        Ok(Mean::default())
                    })?;
                }
                reports.metric("own", f64::NAN)?;
                reports.end_step(&numbers)?;
            }
            reports.finish()?;
            drop(reports);
            Ok(kept.into_inner())
        })
    };
    assert_eq!(train(0..4).unwrap(), [[None, Some(0.0), None, None]; 2]);
    // A loop that continues after two steps.
    train(2..4).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.iter().map(|line| line["step"].as_u64().unwrap()).sum::<u64>(), 10);
    for line in &lines {
        assert_eq!(line["doubled"].as_f64().unwrap(), 2.0 * line["loss"].as_f64().unwrap());
        assert!(line["own"].is_null() && line.get("epoch").is_none());
        assert_eq!(line["tokens"], 4 * 12);
        assert!(line["comm_bytes"]["fsdp"].as_u64().unwrap() > 0);
        assert!((0.0..=1.0).contains(&line["mfu"].as_f64().unwrap()));
        assert_eq!(line.get("eval_loss").is_some(), line["step"] == 2);
    }
}

#[test]
fn files_and_names_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let note = dir.path().join("note");
    fs::write(&note, "a note\n").unwrap();
    let report = |path: &std::path::Path, name: &str| {
        run_on("dp=2", 0, |rank| {
            let built =
                build::<Linear<Hidden, Ffn>>(rank, &Sizes::new().with(Hidden, 8).with(Ffn, 4))?;
            let mut reports = StepReports::new(rank, 0..1).with_metrics(path, &built, 1)?;
            reports.begin_step();
            reports.metric(name, 1.0)?;
            reports.end_step(&StepNumbers::default())?;
            reports.finish()
        })
    };
    let error = report(&note, "own").unwrap_err();
    assert!(matches!(error, Error::Metrics(_)), "{error}");
    let expected = format!("metrics file: cannot replace {}: its line 1 has no", note.display());
    assert!(error.to_string().starts_with(&expected), "{error}");
    let error = report(&dir.path().join("m.jsonl"), "loss").unwrap_err().to_string();
    assert!(error.starts_with("metric `loss`: the trainer reports"), "{error}");
    // A disk that is full.
    let error = report(std::path::Path::new("/dev/full"), "own").unwrap_err();
    assert!(error.to_string().contains("cannot write /dev/full: No space left"), "{error}");
    assert_eq!(error.exit_code(), meshwright::exit_code::LOST);
}
