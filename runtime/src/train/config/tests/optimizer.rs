//! Settings of optimizers.

use crate::optim::{AdamWOptions, MuonOptions, SgdOptions};

use super::*;

#[test]
fn each_optimizer_has_its_own_settings() {
    let rule = |line| rule_of(&parse(line).unwrap());
    let sgd = |momentum| SgdOptions { momentum, nesterov: false, weight_decay: 0.1 };
    assert_eq!(rule("--optimizer sgd"), format!("{:?}", sgd(0.9)));
    assert_eq!(rule("--optimizer sgd --momentum 0"), format!("{:?}", sgd(0.0)));
    let adamw = AdamWOptions { betas: (0.9, 0.95), eps: 1e-8, weight_decay: 0.1 };
    let muon = MuonOptions { momentum: 0.95, adamw };
    assert_eq!(rule("--optimizer muon"), format!("{muon:?}"));
    for (line, foreign) in [
        ("--optimizer sgd --betas 0.9,0.9 --eps 1e-6", "betas eps"),
        ("--momentum 0.9", "momentum"),
        ("--optimizer adamw --momentum 0.9", "momentum"),
    ] {
        let text = refusal(line);
        for flag in foreign.split(' ') {
            assert_contains(&text, &format!("--{flag}: is not a setting of --optimizer "));
        }
    }
    // One mistake, one message.
    let text = refusal("--optimizer adan --momentum 0.9");
    assert_eq!(
        text,
        "--optimizer: must be one of adamw, sgd, muon, not `adan`; did you mean adamw?"
    );
}

/// A registered optimizer: selected by name, with its own defaults, and checked.
#[test]
fn registered_optimizers_are_selected_by_name() {
    let plain = |flags: &OptimizerFlags| SgdOptions {
        momentum: flags.momentum(),
        nesterov: true,
        weight_decay: flags.weight_decay,
    };
    let own = |name| OptimizerEntry::new(name, plain).momentum(0.5);
    let parse = |optimizers: &Optimizers, line: &str| {
        let words = std::iter::once("train").chain(line.split_whitespace());
        Config::parse_with(words, optimizers).map_err(|error| error.to_string())
    };
    // In place of the one of the library, since a rule has one name.
    let nag = Optimizers::default().with(own("nag"));
    let message = parse(&nag, "--optimizer nag").unwrap_err();
    assert_eq!(message, "--optimizer: `nag` is registered for a rule named `sgd`");
    let message = parse(&nag, "--optimizer nga").unwrap_err();
    let known = "--optimizer: must be one of adamw, sgd, muon, nag, not `nga`";
    assert_contains(&message, known);
    let message = parse(&nag, "--optimizer adamw --momentum 0.9").unwrap_err();
    assert_contains(&message, "--optimizer adamw; sgd, muon and nag have it, so leave it out");
    let twice = Optimizers::default().with(own("sgd"));
    let message = parse(&twice, "").unwrap_err();
    assert_contains(&message, "--optimizer: two optimizers are registered as `sgd`");
    let out_of_range =
        OptimizerEntry::new("sgd", |_| SgdOptions { momentum: 1.5, ..SgdOptions::default() });
    let only = Optimizers { entries: vec![out_of_range] };
    let message = parse(&only, "--optimizer sgd").unwrap_err();
    let expected = "--optimizer: sgd: momentum must be at least 0 and below 1, not 1.5";
    assert_eq!(message, expected);
}
