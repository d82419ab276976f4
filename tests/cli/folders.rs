//! Hugging Face folders: what their files say is used, or refused by name.

use serde_json::Value;

use crate::training::{floats, reference};
use crate::{Workspace, assert_close, assert_contains, fixture, numbers};

/// Returns a workspace with the folder `model`, a copy of a fixture, and the flags that train it.
fn with_model(case: &str) -> (Workspace, String, Value) {
    let workspace = Workspace::new();
    workspace.copy_fixture(case, "model");
    let (line, expected) = reference(case);
    let line = line.replace(&fixture(case).display().to_string(), "model");
    (workspace, line, expected)
}

/// Changes keys of the `config.json` in a folder.
fn set(workspace: &Workspace, folder: &str, changes: &[(&str, Value)]) {
    let mut keys = config(workspace, folder);
    for (key, value) in changes {
        keys[*key] = value.clone();
    }
    workspace.write(&format!("{folder}/config.json"), keys.to_string().as_bytes());
}

fn config(workspace: &Workspace, folder: &str) -> Value {
    serde_json::from_slice(&workspace.read(&format!("{folder}/config.json"))).unwrap()
}

/// A stored head that differs from the embedding is the head, also if `config.json` ties them.
#[test]
fn a_stored_head_is_trained_on_every_mesh() {
    let (workspace, line, expected) = with_model("untied_mha");
    set(&workspace, "model", &[("tie_word_embeddings", true.into())]);
    for mesh in ["1", "tp=2", "fsdp=2,tp=2", "pp=2", "dp=2 --export-hf out"] {
        let finished = workspace.run(&format!("{line} --mesh {mesh} --metrics m.jsonl"));
        assert_eq!(finished.code, Some(0), "{mesh}\n{}", finished.stderr);
        let warning = "warning: --init-from model: config.json ties the head to the embedding, but the stored \
                       `lm_head.weight` differs from `model.embed_tokens.weight`";
        assert_contains(&finished.stderr, warning);
        let losses = floats(&expected["f64"]["train_losses"]);
        assert_close(&numbers(&workspace.metrics("m.jsonl"), "loss"), &losses, 1e-4);
    }
    assert_eq!(config(&workspace, "out")["tie_word_embeddings"], false);
    let finished =
        workspace.run(&line.replace("model", "out").replace("out/tokens", "model/tokens"));
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert!(!finished.stderr.contains("warning"), "{}", finished.stderr);
}
