//! Training runs of several processes, compared with ranks that are threads and share one device.

use std::path::Path;

use meshwright::models::llama::Llama;
use meshwright::train::{Config, Gpus, Summary, Trainer};
use meshwright_gpu_sim::{drivers, on_gpu};

use super::job::Job;

/// Returns the command line of a short run that writes to `folder`.
pub fn words(folder: &Path, more: &str) -> String {
    let text = folder.join("text.txt");
    std::fs::write(&text, "the quick brown fox jumps over the lazy dog. ".repeat(40)).unwrap();
    format!(
        "train --device cuda --data {} --batch 4 --seq 16 --hidden 32 --layers 2 --heads 2 --sample-tokens 4 --metrics \
         {} {more}",
        text.display(),
        folder.join("steps.jsonl").display()
    )
}

fn as_threads(words: &str) -> Summary {
    let config = Config::parse(words.split_whitespace()).unwrap();
    let ranks = config.mesh.world_size();
    let machine = Box::new(Gpus::new(drivers(3, ranks), 1));
    Trainer::<Llama>::on(config, machine).unwrap().train().unwrap()
}

/// Returns the losses that rank 0 has written.
pub fn losses(folder: &Path) -> Vec<f64> {
    let text = std::fs::read_to_string(folder.join("steps.jsonl")).unwrap_or_default();
    let loss = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok()?["loss"].as_f64();
    text.lines().filter_map(loss).collect()
}

/// Returns the parameters that a run has exported.
fn exported(folder: &Path) -> Vec<u8> {
    std::fs::read(folder.join("hf/model.safetensors")).unwrap()
}

#[track_caller]
fn assert_near(got: &[f64], expected: &[f64], what: &str) {
    // NCCL sums in another order than ranks that share a device.
    let tolerance = if on_gpu() { 2e-5 } else { 0.0 };
    let is_near = |(a, b): (&f64, &f64)| (a - b).abs() <= tolerance * b.abs();
    assert!(got.len() == expected.len(), "{what}: {got:?} and {expected:?}");
    assert!(got.iter().zip(expected).all(is_near), "{what}: {got:?} and {expected:?}");
}

#[test]
fn processes_train_as_threads_do() {
    for (mesh, ranks) in
        [("dp=2", 2), ("tp=2 --dtype f32", 2), ("fsdp=2 --zero 3", 2), ("dp=2,tp=2", 4)]
    {
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [threads, processes] = folders.each_ref().map(|folder| {
            let export = folder.path().join("hf");
            words(
                folder.path(),
                &format!("--mesh {mesh} --steps 3 --export-hf {}", export.display()),
            )
        });
        let expected = as_threads(&threads);
        let ends = Job::start(ranks, "train", &processes, |_, _| {}).succeed();
        assert_near(&losses(folders[1].path()), &expected.losses, mesh);
        if !on_gpu() {
            let [expected, got] = folders.each_ref().map(|folder| exported(folder.path()));
            assert!(got == expected, "{mesh}: parameters differ");
        }
        // Only rank 0 prints.
        assert!(ends[0].stderr.contains("loss"), "{mesh}: {}", ends[0].stderr);
        for end in &ends[1..] {
            assert_eq!(end.stderr.trim(), "", "{mesh}");
        }
    }
}

#[test]
fn a_run_of_processes_goes_on_where_it_stopped() {
    let run = |folder: &Path, more: &str| {
        let save = folder.join("run");
        let more = format!("--mesh fsdp=2 --save {} {more}", save.display());
        Job::start(2, "train", &words(folder, &more), |_, _| {}).succeed();
    };
    let whole = tempfile::tempdir().unwrap();
    run(whole.path(), "--steps 4");
    let parts = tempfile::tempdir().unwrap();
    run(parts.path(), "--steps 2");
    let latest = parts.path().join("run/latest");
    run(parts.path(), &format!("--steps 4 --resume {}", latest.display()));
    let (whole, parts) = (losses(whole.path()), losses(parts.path()));
    assert_eq!(whole.len(), 4);
    assert_near(&parts, &whole, "losses");

    // Threads load the checkpoint of processes.
    let folder = tempfile::tempdir().unwrap();
    let save = folder.path().join("run");
    run(folder.path(), "--steps 2");
    let more = format!("--mesh dp=2 --steps 4 --resume {}", save.join("latest").display());
    let rest = as_threads(&words(folder.path(), &more));
    for (got, expected) in rest.losses.iter().zip(&whole[2..]) {
        assert!((got - expected).abs() < 2e-2 * expected, "{:?} and {whole:?}", rest.losses);
    }
}

/// Copies are in page-locked memory, and the rank that completes a checkpoint finds the files of other processes in its
/// folder.
#[test]
fn processes_save_while_they_train() {
    let files = |more: &str| {
        let folder = tempfile::tempdir().unwrap();
        let save = folder.path().join("run");
        let more =
            format!("--mesh fsdp=2 --steps 5 --save {} --save-every 2 {more}", save.display());
        Job::start(2, "train", &words(folder.path(), &more), |_, _| {}).succeed();
        let file = |(step, rank): (usize, usize)| {
            let name = format!("step-{step:08}/rank-{rank:05}.safetensors");
            std::fs::read(save.join(&name)).unwrap_or_else(|error| panic!("{name}: {error}"))
        };
        [(2, 0), (2, 1), (4, 0), (4, 1)].map(file)
    };
    let (waits, goes_on) = (files(""), files("--save-async"));
    assert!(waits == goes_on, "checkpoints differ");
}
