//! The program for all families: the family of a flag, a folder, a file and a checkpoint.

use meshwright::models::Families;
use meshwright::train::FamilyList;

use crate::{Workspace, assert_close, assert_contains, family_program, fixture, numbers};

/// Flags of every run, of a model that stays as it is.
const RUN: &str =
    "--data text.txt --seq 16 --batch 4 --threads 1 --sample-tokens 0 --lr 0 --metrics m.jsonl";

/// A new model of each family is exported, imported on a sharded mesh, and continued.
#[test]
fn every_family_is_picked_and_round_trips() {
    let workspace = Workspace::new();
    let train = |line: &str| {
        let finished = workspace.run_program(family_program(), &format!("{RUN} {line}"));
        assert_eq!(finished.code, Some(0), "{line}\n{}", finished.stderr);
        numbers(&workspace.metrics("m.jsonl"), "loss")
    };
    for family in Families::names() {
        // Its biases would change without a learning rate, too.
        let still = if family == "deepseek_v3" { "--balance none" } else { "" };
        let new = format!("--family {family} --hidden 32 --layers 4 --heads 4 --dtype f32 {still}");
        let whole = train(&format!("{new} --steps 1 --save {family} --export-hf {family}-new"));
        let keys = workspace.read(&format!("{family}-new/config.json"));
        let keys: serde_json::Value = serde_json::from_slice(&keys).unwrap();
        assert_eq!(keys["model_type"], family);
        let from = format!("--init-from {family}-new --tokenizer bytes --mesh fsdp=2,tp=2 {still}");
        let parts = train(&format!("{from} --steps 1 --export-hf {family}-again"));
        assert_close(&parts, &whole, 1e-5);
        for file in ["config.json", "model.safetensors"] {
            let [new, again] =
                ["new", "again"].map(|folder| workspace.read(&format!("{family}-{folder}/{file}")));
            assert!(new == again, "{file} of a {family}");
        }
        train(&format!("--resume {family} --steps 2"));
    }
}

#[test]
fn other_families_are_refused_with_those_that_are_known() {
    let workspace = Workspace::new();
    let refused = |line: &str, reason: &str| {
        let finished = workspace.run_program(family_program(), &format!("{RUN} {line}"));
        assert_contains(finished.error(), reason);
    };
    for folder in ["mamba", "none"] {
        std::fs::create_dir(workspace.path(folder)).unwrap();
    }
    let known = "is none of the families here: llama, mistral, qwen2, qwen3, phi3, smollm3, ";
    refused("--family mamba2", &format!("error: --family: \"mamba2\" {known}"));
    workspace.write("mamba/config.json", br#"{ "model_type": "mamba2" }"#);
    for flag in ["--init-from mamba", "--architecture mamba"] {
        let (name, _) = flag.split_once(' ').unwrap();
        let reason = format!("error: {name}: mamba/config.json: model_type \"mamba2\" {known}");
        refused(flag, &reason);
        refused(flag, "a program with a family of its own lists it by `families!`");
    }
    workspace.write("none/config.json", b"{}");
    refused("--init-from none", "none/config.json: model_type is missing; it is one of llama, ");
    refused("--init-from absent", "error: --init-from: absent: there is no such folder");
    let folder = fixture("gpt2").display().to_string();
    refused(
        &format!("--init-from {folder} --family llama"),
        "--family: cannot be combined with --init-from, whose config.json states the family",
    );
    let finished = workspace.run(&format!("{RUN} --family gpt2"));
    let reason = "error: --family: \"gpt2\" is not trained by this program, which trains llama, ";
    assert_contains(finished.error(), reason);
}

/// Sizes of a `config.json` that contradict the tensors of its folder are named as such, whatever memory they need.
#[test]
fn sizes_that_contradict_stored_tensors_are_refused_before_memory() {
    const HUGE: u64 = 1_000_000_000;
    let workspace = Workspace::new();
    for (case, key, part) in [
        ("qwen3", "hidden_size", "model.embed_tokens.weight has shape ["),
        ("qwen3", "vocab_size", "model.embed_tokens.weight has shape ["),
        ("olmo2", "intermediate_size", "model.layers.0.mlp.gate_proj.weight has shape ["),
        ("gpt_oss", "num_local_experts", "model.layers.0.mlp.experts.gate_up_proj has shape ["),
        (
            "mixtral_balanced",
            "num_local_experts",
            "`blocks.0.moe.experts.gate.weight` consists of 1000000000 weights, but the folder holds ",
        ),
        ("deepseek_v3", "moe_intermediate_size", "expected [1000000000, "),
    ] {
        let name = format!("{case}-{key}");
        workspace.copy_fixture(case, &name);
        let file = format!("{name}/config.json");
        let mut keys: serde_json::Value = serde_json::from_slice(&workspace.read(&file)).unwrap();
        assert!(keys[key].is_u64(), "{case} has no {key}");
        keys[key] = HUGE.into();
        workspace.write(&file, keys.to_string().as_bytes());
        let line = format!("{RUN} --init-from {name}");
        let finished = workspace.run_program(family_program(), &line);
        assert_contains(finished.error(), "error: --init-from: ");
        assert_contains(finished.error(), part);
    }
}

/// The model is compared with the mesh before the batch.
#[test]
fn experts_over_a_dense_model_are_refused_first() {
    let workspace = Workspace::new();
    for family in Families::names().into_iter().filter(|name| !name.contains("moe")) {
        let line = format!("{RUN} --family {family} --mesh ep=3 --hidden 32 --layers 2 --heads 4");
        let finished = workspace.run_program(family_program(), &line);
        let has_experts = ["mixtral", "gpt_oss", "deepseek_v3"].contains(&family);
        let part = if has_experts {
            "Experts = 8 is not divisible by ep x cp x tp = 3"
        } else {
            "error: --mesh: ep=3 needs a model with experts that are split over ep"
        };
        assert_contains(finished.error(), part);
    }
    let line = format!("{RUN} --family mixtral --experts 64 --top-k 33 --mesh ep=2");
    let finished = workspace.run_program(family_program(), &line);
    let expected = "error: --top-k is 33; a token can choose at most 32 experts";
    assert_contains(finished.error(), expected);
}
