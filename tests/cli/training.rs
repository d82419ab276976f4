//! Training results: against PyTorch, on every mesh, from every kind of data, reproducible.

use serde_json::Value;

use crate::{SMALL, Workspace, assert_close, assert_contains, fixture, numbers, program};

/// Returns the flags with which a fixture was trained, and its results.
pub fn reference(case: &str) -> (String, Value) {
    let folder = fixture(case);
    let text = std::fs::read_to_string(folder.join("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&text).unwrap();
    let line = format!(
        "--init-from {0} --data {0}/tokens.bin --batch {1} --seq {2} --steps {3} --lr {4} --betas {5},{6} --eps {7} \
         --weight-decay {8} --clip {9} --sample-tokens 0 --threads 1",
        folder.display(),
        expected["batch"],
        expected["seq"],
        expected["steps"],
        expected["lr"],
        expected["betas"][0],
        expected["betas"][1],
        expected["eps"],
        expected["weight_decay"],
        expected["clip"],
    );
    (line, expected)
}

pub fn floats(list: &Value) -> Vec<f64> {
    list.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

/// Counts of one have a singular.
#[test]
fn the_first_lines_count() {
    let workspace = Workspace::new();
    let line = SMALL.replace("--layers 2", "--layers 1").replace("--batch 4", "--batch 1");
    let line = line.replace("--kv-heads 2", "--kv-heads 1");
    let started = workspace.run(&format!("{line} --steps 1")).stderr;
    assert_contains(&started, " parameters, 1 layer of width 32, 4 query and 1 key-value head, ");
    assert_contains(&started, "; 1 sequence of 16 tokens a step, from the ");
}

#[test]
fn hugging_face_models_match_pytorch_on_every_mesh() {
    let workspace = Workspace::new();
    for (case, meshes) in [
        ("untied_mha", &["1", "dp=2", "dp=4", "tp=2", "tp=4", "dp=2,tp=2", "pp=2"][..]),
        ("tied_gqa", &["dp=1", "dp=4,tp=2", "pp=2", "pp=2,tp=2"]),
        ("wide_head_masked", &["tp=2"]),
        ("tied_masked_plain_theta", &["dp=2,tp=2"]),
        ("sharded_files", &["1", "tp=2,dp=2", "pp=2,tp=2"]),
    ] {
        let (line, expected) = reference(case);
        for mesh in meshes {
            let finished = workspace.run(&format!("{line} --mesh {mesh} --metrics m.jsonl"));
            assert_eq!(finished.code, Some(0), "{case} on {mesh}\n{}", finished.stderr);
            let steps = workspace.metrics("m.jsonl");
            let exact = &expected["f64"];
            assert_close(&numbers(&steps, "loss"), &floats(&exact["train_losses"]), 1e-4);
            assert_close(&numbers(&steps, "grad_norm"), &floats(&exact["train_grad_norms"]), 1e-4);
        }
    }
}

#[test]
fn without_flags_a_model_learns_on_four_ranks() {
    let workspace = Workspace::new();
    let finished = workspace.run("--steps 12 --sample-tokens 20 --metrics m.jsonl");
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert_contains(&finished.stderr, "4 ranks (dp=2,tp=2)");
    assert_contains(&finished.stderr, "tokens of the project's own text");
    let losses = numbers(&workspace.metrics("m.jsonl"), "loss");
    // The entropy of 256 equally likely bytes, which drops as their frequencies are learned.
    assert!((losses[0] - 256f64.ln()).abs() < 0.3, "{losses:?}");
    assert!(losses[11] < 4.5, "{losses:?}");
    assert_contains(&finished.stdout, "12 steps on 4 ranks (dp=2,tp=2) in ");
    assert_contains(&finished.stdout, &format!("loss {:.4} to {:.4}, ", losses[0], losses[11]));
    assert_contains(&finished.stdout, "\n--- prompt ---\n");
    assert_contains(&finished.stdout, "\n--- continuation ---\n");
}

/// A limit to the instruction set takes effect: other vector lengths sum in another order, and round differently.
#[test]
fn the_instruction_set_can_be_limited() {
    let workspace = Workspace::new();
    let run = |limit: &str| {
        let mut command = program();
        command.env("MESHWRIGHT_MAX_CPU_ISA", limit);
        workspace.run_program(command, "--steps 4 --sample-tokens 0 --metrics m.jsonl")
    };
    let norms = |limit: &str| {
        let finished = run(limit);
        assert_eq!(finished.code, Some(0), "{limit}: {}", finished.stderr);
        numbers(&workspace.metrics("m.jsonl"), "grad_norm")
    };
    let portable = norms("portable");
    let best = norms("");
    assert_close(&portable, &best, 1e-5);
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        assert_ne!(portable, best, "without fused multiply-add, other bits");
        assert_close(&norms("avx2"), &best, 1e-5);
    }
    let finished = run("avx3");
    assert_eq!(finished.code, Some(2));
    assert_contains(&finished.stderr, "MESHWRIGHT_MAX_CPU_ISA=avx3: not an instruction set");
    assert_contains(&finished.stderr, "portable");
}

#[test]
fn text_and_token_files_are_the_same_data() {
    let workspace = Workspace::new();
    let text = workspace.read("text.txt");
    let narrow: Vec<u8> = text.iter().flat_map(|byte| u16::from(*byte).to_le_bytes()).collect();
    let wide: Vec<u8> = text.iter().flat_map(|byte| u32::from(*byte).to_le_bytes()).collect();
    workspace.write("narrow.bin", &narrow);
    workspace.write("wide.bin", &wide);
    let losses = |data: &str| {
        let line = SMALL.replace("text.txt", data);
        let finished = workspace.run(&format!("{line} --steps 3 --metrics m.jsonl"));
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        numbers(&workspace.metrics("m.jsonl"), "loss")
    };
    let expected = losses("text.txt");
    assert_eq!(losses("narrow.bin"), expected);
    assert_eq!(losses("wide.bin"), expected);
}

#[test]
fn order_seed_and_mesh_have_their_effects() {
    let workspace = Workspace::new();
    let plain = workspace.losses("--steps 3");
    let shuffled = workspace.losses("--steps 3 --order shuffled");
    assert_ne!(plain, shuffled);
    assert_ne!(shuffled, workspace.losses("--steps 3 --order shuffled --seed 1"));
    assert_eq!(shuffled, workspace.losses("--steps 3 --order shuffled"));
    let sharded = workspace.losses("--steps 3 --order shuffled --mesh dp=2,tp=2");
    assert_close(&sharded, &shuffled, 1e-5);
    let threaded = SMALL.replace("--threads 1", "--threads 3");
    let finished = workspace.run(&format!("{threaded} --steps 3 --metrics m.jsonl"));
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert_close(&numbers(&workspace.metrics("m.jsonl"), "loss"), &plain, 1e-5);
}

#[test]
fn a_file_gives_settings_and_flags_override_it() {
    let workspace = Workspace::new();
    workspace.write(
        "run.toml",
        b"mesh = { dp = 2 }\nlr-schedule = 'cosine'\nlr = 5e-3\nmin_lr = 1e-3\nwarmup = 1\nsteps = 9\n",
    );
    let line = "--config run.toml --steps 3 --metrics m.jsonl";
    let finished = workspace.train(line);
    assert_contains(&finished.stderr, "2 ranks (dp=2)");
    let rates = numbers(&workspace.metrics("m.jsonl"), "lr");
    assert_close(&rates, &[5e-3, 5e-3, 3e-3], 1e-12);
}

#[test]
fn a_continuation_has_the_requested_length() {
    let workspace = Workspace::new();
    let sampled = |mesh: &str| {
        let line = format!(
            "--init-from {0} --data {0}/tokens.bin --batch 4 --seq 24 --steps 2 --sample-tokens 30 --mesh {mesh}",
            fixture("untied_mha").display()
        );
        let finished = workspace.run(&line);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        let (_, continuation) = finished.stdout.split_once("--- continuation ---\n").unwrap();
        let ids: Vec<u32> = continuation.split_whitespace().map(|id| id.parse().unwrap()).collect();
        assert_eq!(ids.len(), 30, "{}", finished.stdout);
        assert!(ids.iter().all(|id| *id < 101), "{ids:?}");
        ids
    };
    assert_eq!(sampled("tp=2"), sampled("tp=2"));
    assert_eq!(sampled("dp=4").len(), 30);
}

/// The loss of a step without targets is undefined. That is not an error in a step among others, but in all of them.
#[test]
fn steps_without_targets_are_reported() {
    let workspace = Workspace::new();
    // Documents of one byte for two steps, and of two bytes after them.
    let text = ".".repeat(2 * 4 * 16) + &"a.".repeat(2 * 4 * 16);
    workspace.write("dots.txt", text.as_bytes());
    let small = SMALL.replace("text.txt", "dots.txt");
    for mesh in ["1", "dp=2,tp=2", "pp=2 --micro-batches 2"] {
        let line = format!("{small} --mesh {mesh} --documents 46 --mask-borders --metrics m.jsonl");
        let finished = workspace.run(&format!("{line} --steps 4"));
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        let warning =
            "warning: step 1: all targets are ignored, so it has no loss, which is reported as 0, ";
        assert_contains(&finished.stderr, warning);
        assert_eq!(
            finished.stderr.matches("targets are ignored").count(),
            1,
            "{}",
            finished.stderr
        );
        let steps = workspace.metrics("m.jsonl");
        assert_eq!(numbers(&steps, "tokens"), [0.0, 0.0, 32.0, 32.0], "{mesh}");
        let losses = numbers(&steps, "loss");
        assert!(losses[..2] == [0.0, 0.0] && losses[2] > 1.0, "{mesh}: {losses:?}");

        let finished = workspace.run(&format!("{line} --steps 2"));
        let error = "error: --data: all targets of 2 steps of dots.txt are ignored, so nothing was learned; use a \
                     larger --batch, data with longer documents, or leave --mask-borders out";
        assert_eq!(finished.error(), error);
    }
}

/// Earlier steps of a resumed run may have had targets.
#[test]
fn resumed_steps_without_targets_are_a_warning() {
    let workspace = Workspace::new();
    let text = "a.".repeat(2 * 4 * 8) + &".".repeat(3 * 4 * 16);
    workspace.write("dots.txt", text.as_bytes());
    let small = SMALL.replace("text.txt", "dots.txt");
    let line = format!("{small} --documents 46 --mask-borders --save out --export-hf hf");
    let finished = workspace.run(&format!("{line} --steps 2"));
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let resumed = workspace.run(&format!("{line} --steps 4 --resume out"));
    assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
    let warning = "warning: --data: all targets of the 2 steps of dots.txt after step 2 are ignored, so nothing was \
                   learned after --resume; use a larger --batch";
    assert_contains(&resumed.stderr, warning);
    assert!(workspace.path("hf/model.safetensors").is_file());
}
