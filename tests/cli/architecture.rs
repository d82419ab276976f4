//! Models of a `config.json` without weights: `--architecture`, and dry runs without data.

use serde_json::json;

use crate::{SMALL, Workspace, assert_contains, mixtral_program, numbers};

/// A run of a model whose sizes are in a file.
const RUN: &str = "--seq 16 --batch 4 --threads 1 --sample-tokens 0 --metrics m.jsonl";

fn write(workspace: &Workspace, path: &str, keys: &serde_json::Value) {
    workspace.write(path, keys.to_string().as_bytes());
}

/// A new model of the sizes of a file is the one of the same sizes by flags, also when it is resumed.
#[test]
fn a_new_model_has_the_sizes_of_the_file() {
    let workspace = Workspace::new();
    let losses = || numbers(&workspace.metrics("m.jsonl"), "loss");
    workspace.run(&format!("{SMALL} --steps 3 --metrics m.jsonl --export-hf model"));
    let expected = losses();
    std::fs::remove_file(workspace.path("model/model.safetensors")).unwrap();
    for (path, out) in [("model", "a"), ("model/config.json", "b")] {
        let line = format!("{RUN} --data text.txt --architecture {path} --steps 2 --save {out}");
        let finished = workspace.run(&line);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        assert_contains(&finished.stderr, &format!("a new model of {path} from seed 0"));
        assert_eq!(losses(), expected[..2]);
        let resumed = workspace.run(&format!("{RUN} --resume {out} --steps 3"));
        assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
        assert_eq!(losses(), expected);
        let other = workspace.run(&format!("{RUN} --resume {out} --steps 3 --hidden 64"));
        assert_contains(other.error(), &format!("add --architecture {path}, as in the saved run"));
    }
}

#[test]
fn files_that_state_no_sizes_are_refused() {
    let workspace = Workspace::new();
    std::fs::create_dir(workspace.path("empty")).unwrap();
    workspace.write("model.safetensors", b"weights");
    workspace.write("broken.json", b"{\"model_type\": ");
    write(&workspace, "incomplete.json", &json!({ "model_type": "llama", "vocab_size": 64 }));
    write(&workspace, "gemma.json", &json!({ "model_type": "gemma2" }));
    for (path, reason) in [
        ("none", "none: no such file or folder; name a config.json, or a folder with one"),
        ("empty", "empty: the folder has no config.json"),
        ("model.safetensors", "model.safetensors: it holds weights; name the config.json"),
        ("broken.json", "broken.json: not JSON"),
        ("incomplete.json", "incomplete.json: hidden_size is missing"),
        (
            "gemma.json",
            "gemma.json: model_type is \"gemma2\", and this program trains a \"llama\", \"mistral\", \"qwen2\", \
             \"qwen3\", \"phi3\" or \"smollm3\"; the program `train` takes each family of this library",
        ),
    ] {
        let finished = workspace.run(&format!("{RUN} --architecture {path} --explain"));
        assert_contains(finished.error(), &format!("error: --architecture: {reason}"));
    }
}

/// Neither weights nor data nor a tokenizer is read, whatever the length.
#[test]
fn sequences_of_any_length_are_explained_without_data() {
    let workspace = Workspace::new();
    let keys = json!({
        "model_type": "llama", "hidden_size": 16384, "intermediate_size": 53248, "num_hidden_layers": 126,
        "num_attention_heads": 128, "num_key_value_heads": 8, "vocab_size": 128_256,
        "max_position_embeddings": 131_072, "rope_theta": 500_000.0,
        "quantization_config": { "quant_method": "fp8" },
    });
    write(&workspace, "config.json", &keys);
    let mesh = "--mesh fsdp=8,cp=16,tp=8 --dtype bf16";
    let line = format!("--architecture config.json {mesh} --batch 8 --seq 1048576 --explain");
    let finished = workspace.run(&line);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert_contains(&finished.stderr, "126 layers of width 16384, 128 query and 8 key-value heads");
    assert_contains(&finished.stderr, "8 sequences of 1048576 tokens a step, from synthetic data");
    assert_contains(&finished.stdout, "collectives of a step on rank 1023");
    // Data that is given is read.
    let short = workspace.run(&format!("{line} --data text.txt"));
    assert!(short.code != Some(0), "{}", short.stdout);
    let held_out =
        workspace.run("--seq 1000000 --eval-fraction 0.1 --documents 0 --pack --explain");
    assert_eq!(held_out.code, Some(0), "{}", held_out.stderr);
}

#[test]
fn experts_are_set_by_flags() {
    let workspace = Workspace::new();
    let run = |flags: &str| workspace.run_program(mixtral_program(), &format!("{SMALL} {flags}"));
    let finished = run("--experts 6 --top-k 3 --steps 1 --save out --export-hf model");
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let keys: serde_json::Value =
        serde_json::from_slice(&workspace.read("model/config.json")).unwrap();
    assert_eq!([&keys["num_local_experts"], &keys["num_experts_per_tok"]], [6, 3]);
    let resumed = workspace.run_program(mixtral_program(), "--resume out --steps 2 --threads 1");
    assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
    let other = run("--experts 4 --resume out --steps 2");
    assert_contains(other.error(), "--experts: 4, but 6 was saved");
    assert_contains(run("--experts 1").error(), "error: --top-k: 2 is more than --experts 1");
    let llama = workspace.run(&format!("{SMALL} --experts 4"));
    assert_contains(llama.error(), "error: --experts: a llama has no router of experts");
}
