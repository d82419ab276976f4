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

/// Settings of models that compute something else.
#[test]
fn unknown_keys_are_refused_unless_accepted() {
    let (workspace, line, expected) = with_model("untied_mha");
    let keys = [
        ("auto_map", serde_json::json!({ "AutoConfig": "x.Y" })),
        ("logits_scaling", 8.0.into()),
        ("use_qk_norm", true.into()),
    ];
    set(&workspace, "model", &keys);
    let finished = workspace.run(&line);
    let refusal = "error: --init-from: model/config.json: \"auto_map\" is {\"AutoConfig\":\"x.Y\"}, \"logits_scaling\" \
                   is 8.0, \"use_qk_norm\" is true: this program does not know what they change; `--accept-keys \
                   auto_map,logits_scaling,use_qk_norm` runs without them";
    assert_eq!(finished.error(), refusal);
    let some = workspace.run(&format!("{line} --accept-keys auto_map,use_qk_norm"));
    assert_contains(some.error(), "config.json: \"logits_scaling\" is 8.0: this program does not");
    let absent = workspace.run(&format!("{line} --accept-keys logit_scaling"));
    assert_contains(absent.error(), "there is no key \"logit_scaling\", which --accept-keys names");

    let accept = "--accept-keys auto_map,logits_scaling,use_qk_norm";
    let finished =
        workspace.run(&format!("{line} {accept} --metrics m.jsonl --export-hf out --mesh tp=2"));
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let losses = floats(&expected["f64"]["train_losses"]);
    assert_close(&numbers(&workspace.metrics("m.jsonl"), "loss"), &losses, 1e-4);
    let exported = config(&workspace, "out");
    for (key, value) in keys.iter().chain([&("initializer_range", 0.2.into())]) {
        assert_eq!(exported[*key], *value, "{key}");
    }
}

/// Text is never read by bytes into learned ids, unless that is asked for.
#[test]
fn text_needs_the_tokenizer_of_the_folder() {
    let workspace = Workspace::new();
    workspace.train("--steps 1 --export-hf model");
    let line = "--init-from model --seq 16 --batch 4 --steps 1 --threads 1 --sample-tokens 0";
    for data in ["--data text.txt", ""] {
        let finished = workspace.run(&format!("{line} {data}"));
        let refusal = "error: --init-from: text has to become the tokens that the model knows, but model has no \
                       tokenizer; add its tokenizer.json; or name one by --tokenizer FILE.json, or read bytes by \
                       --tokenizer bytes";
        assert_eq!(finished.error(), refusal);
    }
    for names in [
        &["tokenizer.model", "tokenizer_config.json"][..],
        &["merges.txt", "vocab.json"],
        &["vocab.txt"],
        &["spiece.model"],
        &["tekken.json"],
        &["qwen.tiktoken"],
    ] {
        names.iter().for_each(|name| workspace.write(&format!("model/{name}"), b"{}"));
        let finished = workspace.run(&format!("{line} --data text.txt"));
        let reason =
            format!("but model has a tokenizer ({}), but no tokenizer.json", names.join(", "));
        assert_contains(finished.error(), &reason);
        assert_contains(
            finished.error(),
            "AutoTokenizer.from_pretrained(\"model\").save_pretrained(",
        );
        names.iter().for_each(|name| {
            std::fs::remove_file(workspace.path(&format!("model/{name}"))).unwrap();
        });
    }
    let finished = workspace.run(&format!("{line} --data text.txt --tokenizer bytes"));
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
}

/// An export of another model leaves no tokenizer that would be taken for its own.
#[test]
fn exports_rename_the_tokenizer_of_another_model() {
    let workspace = Workspace::new();
    std::fs::create_dir(workspace.path("model")).unwrap();
    let stale = ["tokenizer.json", "tokenizer.model"];
    stale.iter().for_each(|name| workspace.write(&format!("model/{name}"), name.as_bytes()));
    workspace.write("elsewhere", b"{}");
    std::os::unix::fs::symlink("../elsewhere", workspace.path("model/vocab.json")).unwrap();
    workspace.write("model/notes.txt", b"a note");
    let exported = workspace.train("--steps 1 --export-hf model").stderr;
    for name in stale {
        assert_contains(&exported, name);
        assert!(!workspace.path(&format!("model/{name}")).exists(), "{name}");
        assert_eq!(workspace.read(&format!("model/{name}.1")), name.as_bytes());
    }
    assert_contains(
        &exported,
        "warning: --export-hf: model has files that are none of this model (",
    );
    assert!(workspace.path("model/vocab.json.1").is_symlink());
    assert_eq!(
        [workspace.read("elsewhere"), workspace.read("model/notes.txt")],
        [&b"{}"[..], b"a note"]
    );
    let line = "--init-from model --seq 16 --batch 4 --steps 1 --threads 1 --sample-tokens 0";
    let finished = workspace.run(&format!("{line} --data text.txt"));
    assert_contains(finished.error(), "but model has no tokenizer");
    // Exports of the same model rename nothing.
    let before = workspace.listing();
    let again = workspace.train("--steps 1 --export-hf model").stderr;
    assert!(!again.contains("warning"), "{again}");
    assert_eq!(workspace.listing(), before);
}

/// Large weights, other dtypes, and the model of another run in the folder.
#[test]
fn exports_are_whole_and_replace_no_other_model() {
    let workspace = Workspace::new();
    let small = crate::SMALL;
    let keys = |folder: &str| config(&workspace, folder);
    workspace.train("--steps 1 --dtype bf16 --export-hf half");
    assert_eq!(keys("half")["torch_dtype"], "bfloat16");
    // A run that began with bf16 exports bf16, also if it computes in f32.
    let line = "--data text.txt --tokenizer bytes --seq 16 --batch 4 --steps 1 --threads 1 --sample-tokens 0";
    for (flags, dtype) in
        [("", "bfloat16"), ("--export-dtype f16", "float16"), ("--export-dtype f32", "float32")]
    {
        let flags =
            format!("{line} --init-from half --export-hf out {flags} --export-shard-size 9KB");
        let finished = workspace.run(&flags);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        assert_eq!(keys("out")["torch_dtype"], dtype);
        let index = workspace.read("out/model.safetensors.index.json");
        let index: Value = serde_json::from_slice(&index).unwrap();
        let files = index["weight_map"].as_object().unwrap().values();
        let files: std::collections::BTreeSet<_> =
            files.map(|file| file.as_str().unwrap()).collect();
        let listing = workspace.listing();
        let parts = listing
            .iter()
            .filter(|name| name.starts_with("out/") && name.ends_with(".safetensors"));
        assert_eq!(parts.count(), files.len(), "{listing:?}");
        let finished = workspace.run(&format!("{line} --init-from out"));
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    }
    let before = workspace.listing();
    let weights = workspace.read("half/model.safetensors");
    let finished = workspace.run(&format!("{small} --tied --export-hf half"));
    let refusal = "error: --export-hf: half: the folder has a model of other sizes or another family (config.json), \
                   which the export would replace; name another folder, or remove its files";
    assert_eq!(finished.error(), refusal);
    workspace.copy_fixture("tied_gqa", "other");
    let finished = workspace.run(&format!("{small} --export-hf other"));
    assert_contains(
        finished.error(),
        "other: the folder has a model that this program has not written (",
    );
    assert_eq!(workspace.read("half/model.safetensors"), weights);
    let listing = workspace.listing();
    assert!(before.iter().all(|name| listing.contains(name)), "{before:?} {listing:?}");
    for (flags, reason) in [
        ("--export-dtype bf16", "--export-dtype: needs --export-hf DIR"),
        ("--export-shard-size 1GB", "--export-shard-size: needs --export-hf DIR"),
        (
            "--export-hf o --export-dtype fp32",
            "--export-dtype: must be one of f32, bf16, f16, not `fp32`",
        ),
        (
            "--export-hf o --export-shard-size 0",
            "--export-shard-size: must be a number of bytes such as",
        ),
    ] {
        let finished = workspace.run(&format!("{small} {flags}"));
        assert_contains(finished.error(), reason);
    }
}

#[test]
fn the_hub_is_a_feature() {
    let workspace = Workspace::new();
    let name = "hf://owner/name@main";
    for (flag, rest) in [("--init-from", ""), ("--tokenizer", "--data text.txt")] {
        let finished = workspace.run(&format!("{flag} {name} {rest} --seq 16 --batch 4 --steps 1"));
        let refusal = format!(
            "error: {flag}: {name} is a model of the Hugging Face hub, and this program was built without support for \
             it; build it with `--features hub`, or name a folder that was downloaded"
        );
        assert_eq!(finished.error(), refusal);
        assert_eq!(finished.code, Some(2));
    }
}

/// Look-ups of the padding do not train its row, in any stage and shard; a tied head does.
#[test]
fn the_padding_row_is_that_of_the_folder() {
    for case in ["untied_mha", "tied_gqa"] {
        let (workspace, line, expected) = with_model(case);
        let tokens = workspace.read("model/tokens.bin");
        let used = u16::from_le_bytes([tokens[0], tokens[1]]);
        set(&workspace, "model", &[("pad_token_id", used.into())]);
        let run = |mesh: &str| {
            let finished =
                workspace.run(&format!("{line} --mesh {mesh} --metrics m.jsonl --export-hf out"));
            assert_eq!(finished.code, Some(0), "{mesh}\n{}", finished.stderr);
            assert_eq!(config(&workspace, "out")["pad_token_id"], used);
            let steps = workspace.metrics("m.jsonl");
            [numbers(&steps, "loss"), numbers(&steps, "grad_norm")]
        };
        let [losses, norms] = run("1");
        let unpadded = floats(&expected["f64"]["train_grad_norms"]);
        assert!((norms[0] / unpadded[0] - 1.0).abs() > 1e-4, "{norms:?} {unpadded:?}");
        for mesh in ["tp=2", "dp=2", "fsdp=2 --zero 1", "fsdp=2,tp=2", "pp=2", "pp=2,tp=2"] {
            let [other_losses, other_norms] = run(mesh);
            assert_close(&other_losses, &losses, 1e-4);
            assert_close(&other_norms, &norms, 1e-4);
        }
    }
}

#[test]
fn families_without_experts_refuse_their_flags() {
    let workspace = Workspace::new();
    for flag in ["--balance batch=0.1", "--balance none", "--z-loss 0.001"] {
        let finished = workspace.run(&format!("{} {flag}", crate::SMALL));
        let name = flag.split(' ').next().unwrap();
        let refusal = format!("error: {name}: a llama has no router of experts; leave it out");
        assert_eq!(finished.error(), refusal);
    }
}
