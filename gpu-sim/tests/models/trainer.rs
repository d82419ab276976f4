//! The main job on a device: the trainer with its checkpoints, metrics and continuation.

use std::path::Path;

use meshwright::train::{Config, Gpus, Summary, Trainer};
use meshwright_examples::llama::Llama;
use meshwright_gpu_sim::drivers;

/// A short run, as a command line of these words would do it.
fn run(words: &str, folder: &Path) -> Summary {
    let (save, metrics) = (folder.join("run"), folder.join("steps.jsonl"));
    let text = folder.join("text.txt");
    std::fs::write(&text, "the quick brown fox jumps over the lazy dog. ".repeat(40)).unwrap();
    let common = format!(
        "train --device cuda --data {} --batch 4 --seq 16 --hidden 32 --layers 2 --heads 2 --sample-tokens 4 --save {} \
         --metrics {} {words}",
        text.display(),
        save.display(),
        metrics.display()
    );
    let config = Config::parse(common.split_whitespace()).unwrap();
    let ranks = config.mesh.world_size();
    let machine = Box::new(Gpus::new(drivers(3, ranks), 1));
    Trainer::<Llama>::on(config, machine).unwrap().train().unwrap()
}

#[test]
fn a_run_goes_on_where_it_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let mesh = "--mesh fsdp=2 --dtype bf16";
    let whole = run(&format!("{mesh} --steps 4"), folder.path());
    assert!(whole.losses[3] < whole.losses[0], "{:?}", whole.losses);
    assert_eq!(whole.sample.len() - whole.prompt_len, 4);

    let folder = tempfile::tempdir().unwrap();
    run(&format!("{mesh} --steps 2"), folder.path());
    let latest = folder.path().join("run/latest");
    let rest = run(&format!("{mesh} --steps 4 --resume {}", latest.display()), folder.path());
    assert_eq!(rest.losses, whole.losses[2..]);

    let lines = std::fs::read_to_string(folder.path().join("steps.jsonl")).unwrap();
    assert_eq!(lines.lines().count(), 4);
    let last: serde_json::Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert!(last["mfu"].as_f64().unwrap() > 0.0, "{last}");
    assert!(last["peak_bytes"]["parameters"].as_u64().unwrap() > 0, "{last}");
}
