//! Configuration files.

use super::*;

#[test]
fn flags_override_the_file() {
    let text = "
        mesh = { dp = 2, tp = 2 }
        lr-schedule = 'cosine'  # kebab-case
        min_lr = 1e-5           # snake_case
        lr = 1
        batch = 1_024
        betas = [0.9, 0.99]
        tied = true
        save = 'out'
        memory-limit = '2GB'
        recompute = 'every=2'
        zero = 0
        ema = 0.99
    ";
    let config = with_file(text, "--batch 4").unwrap();
    assert_eq!(config, {
        let flags = "--mesh dp=2,tp=2 --lr-schedule cosine --min-lr 1e-5 --lr 1 --batch 4 \
                     --betas 0.9,0.99 --tied --save out --memory-limit 2GB --recompute every=2 --zero 0 --ema 0.99";
        parse(flags).unwrap()
    });
    assert_eq!(with_file(text, "").unwrap().batch, 1024);
}

#[test]
fn files_have_integers_of_any_base() {
    let text = "
        batch = 0x10
        seq = 0b1000
        steps = 0o17
        lr = 0x1
        memory-limit = 0xff_ff
        mesh = { dp = 0x2 }
    ";
    let line = "--batch 16 --seq 8 --steps 15 --lr 1 --memory-limit 65535 --mesh dp=2";
    assert_eq!(with_file(text, "").unwrap(), parse(line).unwrap());
    let largest = with_file("steps = 0xfffffffffffffffff", "").unwrap_err();
    assert_contains(&largest, "run.toml:1: steps: must be at most 4294967295, not `295147905");
}

#[test]
fn files_may_turn_switches_off() {
    let text = "pack = false\nmask-borders = false";
    assert_eq!(with_file(text, "").unwrap(), parse("").unwrap());
    let documents = with_file(text, "--documents 7").unwrap().documents;
    assert_eq!(documents, Some(DocumentOptions { end: 7, packs: false, masks_borders: false }));
    let local = "--mesh dp=2 --steps 24 --local-steps 8";
    assert_eq!(with_file("noise-scale = false", local).unwrap(), parse(local).unwrap());
    let off = "save-async = false\nkeep-best = false\nnew-data = false\nquiet = false";
    assert_eq!(with_file(off, "--preflight").unwrap(), parse("--preflight").unwrap());
    let text = with_file("pack = true", "").unwrap_err();
    assert_eq!(text, "run.toml:1: pack: needs --documents ID");
}

#[test]
fn problems_in_files_have_lines() {
    for (text, message) in [
        ("\nbacth = 4", "run.toml:2: unknown key `bacth`; did you mean `batch`?"),
        (
            "\n\n[train]\nbatch = 4",
            "run.toml:3: unknown table `train`; keys must be at the top level",
        ),
        (
            "batch = 'four'",
            "run.toml:1: `batch` must be a whole number, or \"auto\", not the text \"four\"",
        ),
        (
            "batch = 4.5",
            "run.toml:1: `batch` must be a whole number, or \"auto\", not the number 4.5",
        ),
        ("lr = true", "run.toml:1: `lr` must be a number, not true"),
        ("betas = 0.9", "run.toml:1: `betas` must be two numbers, such as [0.9, 0.95], not the"),
        ("zero = '1'", "run.toml:1: `zero` must be a whole number, not the text \"1\""),
        ("ema = '1'", "run.toml:1: `ema` must be a number, not the text"),
        ("recompute = 1", "run.toml:1: `recompute` must be text in quotes, not the number 1"),
        (
            "recompute = { every = 2 }",
            "run.toml:1: `recompute` must be text in quotes, not a table",
        ),
        (
            "memory-limit = 1.5",
            "run.toml:1: `memory-limit` must be a number of bytes, such as 1_000_000 or",
        ),
        ("memory-limit = -1", "run.toml:1: memory-limit: must be a number of bytes such as 2GB"),
        ("betas = [0.9]", "run.toml:1: betas: must be two numbers in [0, 1)"),
        ("order = 1", "`order` must be one of \"sequential\", \"shuffled\", not the number 1"),
        ("tied = 1", "run.toml:1: `tied` must be true or false, not the number 1"),
        ("mesh = 4", "run.toml:1: `mesh` must be text such as \"dp=2,tp=2\", not the number 4"),
        ("mesh = { dp = 0 }", "run.toml:1: mesh: entry `dp=0`"),
        ("data = ['a']", "run.toml:1: `data` must be a path in quotes, not this list"),
        ("# one\nbatch = 0", "run.toml:2: batch: must be a whole number of at least 1, not `0`"),
        ("min-lr = 1\nmin_lr = 2", "run.toml:2: `min_lr` is set twice"),
        ("config = 'other.toml'", "run.toml:1: `config` cannot be set in a file"),
        ("seq = 4\nbatch = ", "run.toml:2: not valid TOML"),
    ] {
        assert_contains(&with_file(text, "").unwrap_err(), message);
    }
    let text = with_file("bacth = 4\nlr = 'x'", "").unwrap_err();
    assert_contains(&text, "2 problems\n  - run.toml:1: unknown key");
    let missing = refusal("--config /no/such/run.toml");
    assert_contains(&missing, "--config: cannot read /no/such/run.toml: No such file");
}
