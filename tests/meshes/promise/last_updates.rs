//! The last updates, which no later step compares: they are compared when the ranks end, and before the parameters are
//! saved, exported or replaced by their average.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use meshwright::models::llama::Llama;
use meshwright::optim::{Ema, FlatSlice, Group, Sgd, SgdOptions, UpdateRule, Updated};
use meshwright::prelude::*;
use meshwright::tensor::Rank;
use meshwright::train::{Config, OptimizerEntry, Optimizers};

use super::harness::{MeshCase, ONE, built, on};
use super::net::*;
use super::updates::{Deviation, STEPS, train};

#[test]
fn the_last_update_is_compared() {
    let run = |mesh: &str, deviation: Deviation| {
        meshwright::run_on(mesh, 7, |rank| {
            train(rank, deviation, STEPS - 1);
            Ok(())
        })
        .map(drop)
        .map_err(|error| error.to_string())
    };
    for mesh in ["tp=2", "dp=2", "fsdp=2", "dp=2,tp=2", "dp=4"] {
        run(mesh, Deviation::None).unwrap();
        for (deviation, part) in [
            (Deviation::Skipped, "so far: 3, the last with learning rate 0.1"),
            (Deviation::Repeated, "so far: 3, the last with learning rate 0.1"),
            (Deviation::Faster, "3, the last with learning rate 0.2"),
        ] {
            let message = run(mesh, deviation).unwrap_err();
            let is_gathered = mesh.contains("fsdp") && message.contains("different calls");
            assert!(message.contains(part) || is_gathered, "{deviation:?} on {mesh}: {message}");
        }
    }
    let message = run("dp=2", Deviation::Clipped).unwrap_err();
    assert!(message.contains("ranks 0 and 1 have applied different updates so far"), "{message}");
}

/// An average is read in place of the parameters.
#[test]
fn the_last_update_is_compared_before_an_average_is_read() {
    let replicas = MeshCase { mesh: "dp=2", ..ONE };
    let was_read = AtomicBool::new(false);
    let run = |others: usize| {
        on(replicas, |rank| {
            let net = built::<Net>(rank, &sizes());
            let mut sgd = Sgd::new(rank, &net.units, SgdOptions::default());
            let mut average = Ema::new(rank, &net.units, 0.5);
            let x = net.model.embed.forward(&micro_batch(rank, (8, 6), (0, 1), true).tokens);
            let loss = Loss::mean_of(&(net.model.plain.forward(&x) * &net.model.gain));
            let gradients = loss.backward().reduce();
            if rank.index() < others {
                sgd.step_and_average(0.1, &gradients, &mut average);
            }
            average.with_average(|| was_read.store(true, Ordering::SeqCst));
        })
        .map(drop)
    };
    let message = run(1).unwrap_err();
    for part in ["so far: 1, the last with learning rate 0.1", "by sgd with", "; and none: every"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(!was_read.load(Ordering::SeqCst));
    run(2).unwrap();
    assert!(was_read.load(Ordering::SeqCst));
}

/// The comparison at the end waits for no rank that has failed, or has returned early.
#[test]
fn a_rank_that_ends_early_is_an_error() {
    type End = fn(&Rank) -> meshwright::Result<bool>;
    let early: [(End, &str); 3] = [
        (|_| Err(meshwright::Error::Input("no more data".into())), "no more data"),
        (|_| panic!("lost its way"), "rank 1 failed: panic: lost its way"),
        (|_| Ok(true), "has returned"),
    ];
    for mesh in ["tp=2", "dp=2", "dp=2,tp=2"] {
        for (end, part) in early {
            let outcome = meshwright::run_on(mesh, 7, |rank| {
                let net = built::<Net>(rank, &sizes());
                let mut sgd = Sgd::new(rank, &net.units, SgdOptions::default());
                for step in 0..STEPS {
                    rank.set_step(step);
                    let batch = micro_batch(rank, (8, 6), (0, 1), true);
                    let x = net.model.embed.forward(&batch.tokens);
                    sgd.step(0.1, Loss::mean_of(&net.model.plain.forward(&x)).backward().reduce());
                    if step + 2 == STEPS && rank.index() == 1 && end(rank)? {
                        return Ok(());
                    }
                }
                Ok(())
            });
            let message = outcome.unwrap_err().to_string();
            assert!(message.contains(part), "{mesh}: {message}");
        }
    }
}

/// A rule whose options are other ones for each optimizer, and so for each rank.
#[derive(Debug, Default)]
struct Unequal(AtomicU32);

impl UpdateRule for Unequal {
    fn name(&self) -> &str {
        "unequal"
    }

    fn state_kinds(&self, _: Group) -> &'static [&'static str] {
        &[]
    }

    fn update(&self, slice: FlatSlice<'_>) -> Updated {
        slice.update_elementwise([], |param, _, []| (param, []))
    }

    fn options(&self) -> Option<String> {
        Some(format!("option {}", self.0.fetch_add(1, Ordering::SeqCst)))
    }
}

#[test]
fn ranks_with_other_updates_save_and_export_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("text.txt"), "some text to train on ".repeat(20)).unwrap();
    let optimizers =
        Optimizers::default().with(OptimizerEntry::new("unequal", |_| Unequal::default()));
    for output in ["", "--save", "--export-hf", "--ema 0.9 --export-hf"] {
        let out = if output.is_empty() { String::new() } else { path("out").display().to_string() };
        let line = format!(
            "t --hidden 16 --layers 1 --heads 2 --ffn 16 --seq 8 --batch 4 --threads 1 --sample-tokens 0 --steps 1 \
             --optimizer unequal --mesh dp=2 --data {} {output} {out}",
            path("text.txt").display()
        );
        let config = Config::parse_with(line.split_whitespace(), &optimizers).unwrap();
        let message = Trainer::<Llama>::new(config).unwrap().train().unwrap_err().to_string();
        for part in ["have applied different updates so far: 1, ", "by unequal with option "] {
            assert!(message.contains(part), "{output}: {message}");
        }
        // The last calls of the ranks explain the failure.
        let entries = std::fs::read_dir(path("out")).into_iter().flatten().flatten();
        assert_eq!(entries.filter(|entry| entry.file_name() != "flight").count(), 0, "{output}");
        let _ = std::fs::remove_dir_all(path("out"));
    }
}
