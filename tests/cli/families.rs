//! Training of a GPT-2 by the command line: model folders, sizes, maximum sequence length.

use crate::training::{floats, reference};
use crate::{Workspace, assert_close, assert_contains, fixture, numbers};

/// Flags for a model that trains in milliseconds.
const SMALL: &str =
    "--hidden 32 --layers 2 --heads 4 --data text.txt --seq 16 --batch 4 --threads 1";

#[test]
fn a_gpt2_trains_as_in_pytorch_on_every_mesh() {
    let workspace = Workspace::new();
    for (case, meshes) in [
        ("gpt2", &["1", "tp=4", "dp=2,tp=2", "fsdp=2,tp=2", "pp=2,fsdp=2"][..]),
        ("gpt2_masked_sharded", &["dp=2,fsdp=2", "fsdp=4 --recompute full"]),
    ] {
        let (line, expected) = reference(case);
        for mesh in meshes {
            let finished = workspace.run_gpt2(&format!("{line} --mesh {mesh} --metrics m.jsonl"));
            assert_eq!(finished.code, Some(0), "{case} on {mesh}\n{}", finished.stderr);
            let steps = workspace.metrics("m.jsonl");
            let exact = &expected["f64"];
            assert_close(&numbers(&steps, "loss"), &floats(&exact["train_losses"]), 1e-4);
            assert_close(&numbers(&steps, "grad_norm"), &floats(&exact["train_grad_norms"]), 1e-4);
        }
    }
}

/// Weights whose stored layout differs from the model's survive import and export on sharded meshes.
#[test]
fn import_and_export_round_trip_on_every_mesh() {
    let workspace = Workspace::new();
    for (case, mesh) in [
        ("gpt2", "1"),
        ("gpt2", "tp=2"),
        ("gpt2", "tp=4,fsdp=2"),
        ("gpt2_masked_sharded", "fsdp=4"),
        ("gpt2_masked_sharded", "dp=2,fsdp=2"),
    ] {
        let (line, _) = reference(case);
        let again = |from: &str, to: &str, mesh: &str| {
            let line = line.replacen(&fixture(case).display().to_string(), from, 1);
            let (before, after) = line.split_once("--steps ").unwrap();
            let (_, after) = after.split_once("--betas").unwrap();
            let line = format!("{before} --steps 1 --lr 0 --betas {after}");
            let finished = workspace.run_gpt2(&format!("{line} --mesh {mesh} --export-hf {to}"));
            assert_eq!(finished.code, Some(0), "{case} on {mesh}\n{}", finished.stderr);
        };
        let original = fixture(case).display().to_string();
        let folders = ["alone", "sharded"].map(|name| format!("{name}-{case}"));
        again(&original, &folders[0], "1");
        again(&folders[0], &folders[1], mesh);
        for file in ["config.json", "model.safetensors"] {
            let [alone, sharded] =
                folders.each_ref().map(|folder| workspace.read(&format!("{folder}/{file}")));
            assert!(alone == sharded, "{file} of {case} from {mesh}");
        }
    }
}

#[test]
fn a_new_gpt2_trains_saves_and_resumes() {
    let workspace = Workspace::new();
    let finished = workspace.run_gpt2("--steps 8 --sample-tokens 20 --metrics m.jsonl");
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert_contains(&finished.stderr, "4 query and 4 key-value heads, vocabulary 256");
    assert_contains(&finished.stdout, "\n--- continuation ---\n");
    let losses = numbers(&workspace.metrics("m.jsonl"), "loss");
    assert!((losses[0] - 256f64.ln()).abs() < 0.3 && losses[7] < 5.0, "{losses:?}");

    let train = |flags: &str| {
        let line = format!("{SMALL} --sample-tokens 0 --metrics m.jsonl {flags}");
        let finished = workspace.run_gpt2(&line);
        assert_eq!(finished.code, Some(0), "{line}\n{}", finished.stderr);
        numbers(&workspace.metrics("m.jsonl"), "loss")
    };
    let whole = train("--steps 4");
    train("--steps 2 --save out --mesh tp=2");
    assert_close(&train("--steps 4 --resume out/latest --mesh fsdp=2")[2..], &whole[2..], 1e-5);
    // In bf16, with the optimizer that updates matrices only.
    let bf16 = train("--steps 4 --dtype bf16 --optimizer muon --mesh fsdp=2,tp=2");
    assert!(bf16[3] < bf16[0], "{bf16:?}");
}

#[test]
fn folders_of_other_families_are_refused() {
    let workspace = Workspace::new();
    let from = |case: &str| {
        let folder = fixture(case).display().to_string();
        format!("--init-from {folder} --data {folder}/tokens.bin --batch 4 --save out")
    };
    let before = workspace.listing();
    for (finished, parts) in [
        (
            workspace.run(&from("gpt2")),
            &[
                "error: --init-from: ",
                "gpt2/config.json: model_type is \"gpt2\", and this program trains a \"llama\", \"mistral\",",
            ][..],
        ),
        (
            workspace.run_gpt2(&from("tied_gqa")),
            &[
                "tied_gqa/config.json: model_type is \"llama\", and this program trains a \"gpt2\"; the program \
                 `train`",
            ],
        ),
        (
            workspace.run_gpt2(&format!("{SMALL} --kv-heads 2 --save out")),
            &[
                "error: --kv-heads: 2 differs from --heads 4, but a gpt2 has one key-value head per query head; leave \
                 --kv-heads out",
            ],
        ),
        (
            workspace.run(&format!("{SMALL} --hidden 12 --save out").replacen(
                "--hidden 32",
                "",
                1,
            )),
            &["error: --heads: 4 makes heads 3 wide; rotary positions need an even width"],
        ),
        (
            workspace.run_gpt2(&format!("{} --seq 31", from("gpt2_masked_sharded"))),
            &["error: --seq: 31 does not fit: the model has 30 positions; use at most --seq 30"],
        ),
        (
            workspace.run_gpt2(&format!("{SMALL} --mesh tp=8 --save out")),
            &[
                "`blocks.*.attn.q`: Heads = 4 is not divisible by tp = 8",
                "`blocks.*.attn.k_bias`: Heads = 4 is not divisible by tp = 8",
            ],
        ),
        (
            workspace.run_gpt2(&format!("{SMALL} --hidden 30 --save out").replacen(
                "--hidden 32",
                "",
                1,
            )),
            &["error: --heads: 4 does not divide --hidden 30"],
        ),
    ] {
        let error = finished.error();
        for part in parts {
            assert_contains(error, part);
        }
    }
    assert_eq!(workspace.listing(), before);
}
