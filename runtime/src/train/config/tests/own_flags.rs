//! Flags of a program besides the settings.

use clap::{Args, ValueEnum};

use super::*;
use crate::train::config::RunSettings;

#[derive(ValueEnum, Clone, Debug, PartialEq)]
enum Kind {
    Plain,
    Fancy,
}

/// The text of the struct is not that of `--help`.
#[derive(Args, Debug)]
struct Flags {
    /// Number of probes
    #[arg(long, short, alias = "probe-count")]
    probes: Option<u32>,
    #[arg(long, default_value_t = 0.5)]
    ratio: f64,
    #[arg(long)]
    loud: bool,
    #[arg(long, value_enum, default_value = "plain", conflicts_with = "loud")]
    kind: Kind,
}

fn read<A: Args>(line: &str) -> Result<(RunSettings, A), String> {
    let words = format!("train {line}");
    let words = words.split_whitespace().map(Into::into);
    RunSettings::read_and(words, &Optimizers::default()).map_err(|error| error.to_string())
}

fn refusal_of<A: Args>(line: &str) -> String {
    read::<A>(line).map(drop).unwrap_err()
}

#[test]
fn own_flags_are_read_beside_the_settings() {
    let (settings, own) =
        read::<Flags>("--steps 7 --probes 3 --lr 0.5 --ratio -1.5 --loud").unwrap();
    assert_eq!((settings.steps, settings.lr), (7, 0.5));
    assert_eq!((own.probes, own.ratio, own.loud, own.kind), (Some(3), -1.5, true, Kind::Plain));
    let (_, own) = read::<Flags>("--probe-count 4 --kind fancy").unwrap();
    assert_eq!((own.probes, own.kind), (Some(4), Kind::Fancy));
    assert_eq!(read::<Flags>("-p 2").unwrap().1.probes, Some(2));
    assert_eq!(read::<Flags>("").unwrap().1.ratio, 0.5);
}

#[test]
fn help_lists_own_flags_under_their_heading() {
    let text = refusal_of::<Flags>("--help");
    let (ours, own) = text.split_once("Flags of this program:\n").unwrap();
    assert!(ours.starts_with("Trains a model on the ranks of a mesh."), "{ours}");
    assert!(!text.contains("The text of the struct"), "{text}");
    for flag in ["-p, --probes <PROBES>", "Number of probes", "--ratio", "--loud", "--kind"] {
        assert!(own.contains(flag) && !ours.contains(flag), "{flag}: {text}");
    }
    // As without them.
    let without = refusal_of::<()>("--help");
    assert!(!without.contains("Flags of this program"));
    assert_eq!(ours.trim_end(), without.trim_end());
}

#[test]
fn slips_of_own_flags_are_explained() {
    for (line, message) in [
        ("--probs 3", "unknown flag `--probs`; did you mean `--probes`?"),
        ("--batch-size 3", "unknown flag `--batch-size`; here it is `--batch B`"),
        ("--stepz 3", "unknown flag `--stepz`; did you mean `--steps`?"),
        ("--probes x", "invalid value 'x' for '--probes <PROBES>': invalid digit found in string"),
        ("--probes", "--probes needs a value, written as --probes <PROBES>"),
        ("--probes 1 --probes 2", "--probes was given twice"),
        (
            "--kind odd",
            "invalid value 'odd' for '--kind <KIND>'\n  [possible values: plain, fancy]",
        ),
        ("--loud --kind fancy", "the argument '--loud' cannot be used with '--kind <KIND>'"),
        ("--steps", "--steps needs a value, written as --steps <N>"),
        ("stray", "`stray` is not a flag; every setting is written as --name value"),
    ] {
        let text = refusal_of::<Flags>(line);
        assert!(text.starts_with(message) && !text.contains("Usage"), "{line}: {text}");
    }
}

#[test]
fn own_flags_are_no_keys_of_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.toml");
    std::fs::write(&path, "steps = 3\nprobes = 2\n").unwrap();
    let text = refusal_of::<Flags>(&format!("--config {}", path.display()));
    let part =
        "run.toml:2: `probes` is a flag of this program, and no setting; pass --probes on the";
    assert_contains(&text, part);
}

#[derive(Args, Debug)]
struct Required {
    #[arg(long)]
    name: String,
}

#[test]
fn required_flags_are_named() {
    assert_eq!(refusal_of::<Required>("--steps 3"), "--name <NAME> is missing");
}

#[derive(Args, Debug)]
struct Clashes {
    #[arg(long)]
    steps: u64,
    #[arg(long = "other", alias = "mesh")]
    one: u64,
    #[arg(long = "own-batch")]
    batch: u64,
    #[arg(long = "assist", short = 'h')]
    two: bool,
    forgotten: String,
    #[arg(long)]
    fine: bool,
}

#[test]
fn clashes_are_errors_at_the_start() {
    let text = refusal_of::<Clashes>("--steps 3");
    for message in [
        "the settings have 5 problems",
        "the program's flag --steps has the name of a flag of the trainer",
        "the program's flag --mesh has the name of a flag of the trainer",
        "the program's field `batch` has the name of a flag of the trainer",
        "the program's flag -h is one of the trainer",
        "the program's field `forgotten` is no flag; put #[arg(long)] on it",
    ] {
        assert!(text.contains(message), "{text}");
    }
}
