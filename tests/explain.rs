//! The collectives of a step, by the API of the trainer.

use meshwright::models::llama::Llama;
use meshwright::models::mixtral::Mixtral;
use meshwright::train::{Config, Trainer};

const SIZES: &str = "t --hidden 32 --layers 2 --heads 4 --ffn 48 --seq 16 --batch 4 --threads 1";

fn config(flags: &str) -> Config {
    Config::parse(format!("{SIZES} {flags}").split(' ')).unwrap()
}

#[test]
fn trainers_list_collectives_without_the_flag_too() {
    let listed = |flags: &str| Trainer::<Llama>::new(config(flags)).unwrap().explain().unwrap();
    let text = listed("--mesh tp=2");
    assert!(text.starts_with("collectives of a step on rank 1 of tp=2:\n"), "{text}");
    assert_eq!(text, listed("--mesh tp=2 --explain"));
    // A dry run leaves the trainer as it is.
    let trainer = Trainer::<Llama>::new(config("--mesh tp=2 --steps 1 --sample-tokens 0")).unwrap();
    trainer.explain().unwrap();
    assert_eq!(trainer.train().unwrap().losses.len(), 1);
}

/// Tokens count as evenly distributed: 32 rows of a rank, each to two experts; half of the experts are on the other
/// rank.
#[test]
fn experts_exchange_their_share_of_the_tokens() {
    let trainer = Trainer::<Mixtral>::new(config("--mesh ep=2")).unwrap();
    let text = trainer.explain().unwrap();
    let row = text.lines().find(|line| line.contains("moe.router")).unwrap();
    let cells: Vec<&str> = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(cells[..4], ["blocks.0-1.moe.router", "all_to_all", "ep", "2 x 4"]);
    // Rows are sent and come back, in both directions; two layers.
    let bytes = 2.0 * 2.0 * (32.0 * 2.0 / 2.0) * 32.0 * 4.0;
    assert_eq!(cells[4], format!("{:.1} kB", bytes / 1e3));
    assert_eq!(cells[6], cells[4]);
}

/// A Mixtral sends between its stages what a Llama sends, and gathers no auxiliary losses over `tp`.
#[test]
fn auxiliary_losses_have_no_collectives() {
    let messages = |text: String| -> Vec<String> {
        assert!(!text.contains("Tensor::gather"), "{text}");
        let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        lines.filter(|line| line.starts_with("stage ") || line.starts_with("all pp")).collect()
    };
    let flags = "--mesh pp=2,tp=2";
    let balanced = format!("{flags} --balance batch=0.01 --z-loss 0.001");
    let mixtral = Trainer::<Mixtral>::new(config(&balanced)).unwrap().explain().unwrap();
    let llama = Trainer::<Llama>::new(config(flags)).unwrap().explain().unwrap();
    assert_eq!(messages(mixtral), messages(llama));
}

#[test]
fn a_trainer_that_lists_collectives_does_not_train() {
    let trainer = Trainer::<Llama>::new(config("--mesh dp=2 --explain")).unwrap();
    let text = trainer.train().map(drop).unwrap_err().to_string();
    assert!(text.contains("--explain: lists collectives instead of training"), "{text}");
}
