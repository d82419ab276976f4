//! Checkpoints and exports: resumed runs are identical to uninterrupted ones.

use serde_json::Value;

use crate::{SMALL, Workspace, assert_contains, fixture, numbers};

const RANKS: [&str; 4] = ["00000", "00001", "00002", "00003"];

#[test]
fn a_resumed_run_has_the_bits_of_an_uninterrupted_one() {
    let workspace = Workspace::new();
    let line = "--mesh dp=2,tp=2 --order shuffled --seed 3 --warmup 2 --lr 3e-3";
    workspace.train(&format!("{line} --steps 6 --save whole --metrics whole.jsonl"));
    workspace.train(&format!("{line} --steps 3 --save parts --metrics parts.jsonl"));
    let finished = workspace.train(&format!(
        "{line} --steps 6 --save parts --resume parts/latest --metrics parts.jsonl"
    ));
    assert_contains(&finished.stderr, "resuming parts/step-00000003: ");
    assert_contains(&finished.stderr, "step 4/6  loss ");
    assert_contains(&finished.stdout, "3 steps on 4 ranks");
    assert_contains(&finished.stdout, "saved parts/latest; to continue: --resume parts/latest");
    for rank in RANKS {
        let file =
            |dir: &str| workspace.read(&format!("{dir}/step-00000006/rank-{rank}.safetensors"));
        assert!(file("whole") == file("parts"), "rank {rank}");
    }
    let [whole, parts] = ["whole.jsonl", "parts.jsonl"].map(|name| workspace.metrics(name));
    assert_eq!(numbers(&whole, "step"), numbers(&parts, "step"));
    assert_eq!(numbers(&whole, "loss"), numbers(&parts, "loss"));
    assert_eq!(numbers(&whole, "grad_norm"), numbers(&parts, "grad_norm"));
}

/// Shapes do not show the base of rotary positions or the offset of norms.
#[test]
fn a_checkpoint_continues_with_its_architecture_only() {
    let workspace = Workspace::new();
    workspace.train("--steps 1 --export-hf hf");
    let config = workspace.read("hf/config.json");
    let mut changed: Value = serde_json::from_slice(&config).unwrap();
    changed["rms_norm_eps"] = 0.001.into();
    changed["rope_theta"] = 5e5.into();
    changed["rope_parameters"]["rope_theta"] = 5e5.into();
    workspace.write("hf/config.json", changed.to_string().as_bytes());
    let line = "--data text.txt --seq 16 --batch 4 --threads 1 --sample-tokens 0";
    let from_folder = format!("{line} --init-from hf --tokenizer bytes");
    let run = |line: String| workspace.run(&line);
    assert_eq!(run(format!("{from_folder} --steps 2 --save out")).code, Some(0));

    let forgotten = run(format!("{SMALL} --steps 3 --resume out"));
    for part in [
        "--resume: the model of out/step-00000002 differs from that of this run: ",
        "rms_norm_eps is 0.00001, and 0.001 was saved",
        "rope_theta is 10000.0, and 500000.0 was saved",
        "; add --init-from hf, as in the saved run",
    ] {
        assert_contains(forgotten.error(), part);
    }
    assert_eq!(run(format!("{from_folder} --steps 3 --resume out")).code, Some(0));

    workspace.write("hf/config.json", &config);
    let restored = run(format!("{from_folder} --steps 3 --resume out"));
    assert_contains(
        restored.error(),
        "restore the config.json of hf, with which the run was saved",
    );
}

/// A forgotten `--resume` replaces checkpoints of an earlier run, but not silently.
#[test]
fn a_run_warns_of_the_checkpoints_that_it_replaces() {
    let workspace = Workspace::new();
    let first = workspace.train("--steps 4 --save out --save-every 2");
    assert!(!first.stderr.contains("warning"), "{}", first.stderr);
    let resumed = workspace.train("--steps 6 --save out --resume out");
    assert!(!resumed.stderr.contains("warning"), "{}", resumed.stderr);
    let forgotten = workspace.train("--steps 2 --seed 9 --save out");
    assert_contains(
        &forgotten.stderr,
        "warning: --save: out holds checkpoints of another run, the last one of step 6; checkpoints of equal steps \
         will be replaced, and the others are kept, without being counted by --keep; --resume out continues that run\n",
    );
}

/// Returns the names of the checkpoints in `out`.
fn checkpoints(workspace: &Workspace) -> Vec<String> {
    let names = workspace.listing().into_iter();
    names
        .filter_map(|name| name.strip_prefix("out/step-").map(str::to_owned))
        .filter(|name| !name.contains('/'))
        .collect()
}

/// `--keep` counts checkpoints of the run before its branch, and does not touch checkpoints of the abandoned branch.
#[test]
fn keep_leaves_an_abandoned_branch() {
    let workspace = Workspace::new();
    workspace.train("--steps 8 --save out --save-every 2");
    let branch = "--save out --save-every 1 --keep 2";
    let resumed = workspace.train(&format!("--steps 4 {branch} --resume out/step-00000002"));
    assert_contains(
        &resumed.stderr,
        "warning: --save: out holds checkpoints that do not lead to this run, which is resumed from step 2: steps 4, 6 \
         and 8; checkpoints of equal steps will be replaced, and the others are kept, without being counted by \
         --keep; remove them if they are not needed\n",
    );
    assert_eq!(checkpoints(&workspace), ["00000003", "00000004", "00000006", "00000008"]);
    // The newest checkpoint is that of the branch.
    let finished = workspace.train(&format!("--steps 9 {branch} --resume out"));
    assert_contains(&finished.stderr, "resuming out/step-00000004: ");
    assert!(!finished.stderr.contains("different branches"), "{}", finished.stderr);
    assert_eq!(checkpoints(&workspace), ["00000008", "00000009"]);
    // Another run does not remove them either.
    workspace.train("--steps 10 --seed 9 --save out --keep 1");
    assert_eq!(checkpoints(&workspace), ["00000008", "00000009", "00000010"]);
}

#[test]
fn an_abandoned_branch_is_not_resumed_without_a_word() {
    let workspace = Workspace::new();
    workspace.train("--steps 4 --save out --save-every 2");
    workspace.train("--steps 5 --save out --save-every 3 --resume out/step-00000002");
    assert_eq!(checkpoints(&workspace), ["00000002", "00000003", "00000004", "00000005"]);
    let warning = |checkpoint: &str, other: &str| {
        format!(
            "warning: --resume: out/{checkpoint} and out/{other} are of different branches, as the run was resumed \
             from an earlier step; going on from out/{checkpoint}\n"
        )
    };
    // By its name.
    let named = workspace.train("--steps 6 --resume out/step-00000004");
    assert_contains(&named.stderr, &warning("step-00000004", "step-00000005"));
    let before = workspace.train("--steps 6 --resume out/step-00000002");
    assert!(!before.stderr.contains("branches"), "{}", before.stderr);
    // Damaged checkpoints are not replaced by checkpoints of another branch.
    let torn = "out/step-00000005/rank-00000.safetensors";
    let content = workspace.read(torn);
    workspace.write(torn, &content[1..]);
    let skipped = workspace.train("--steps 6 --resume out");
    assert_contains(&skipped.stderr, &format!("warning: {torn} is damaged: "));
    assert_contains(
        &skipped.stderr,
        "warning: out/step-00000004 is of another branch of the run than the checkpoints after it; name it to continue \
         from it; going on from out/step-00000003\n",
    );
    // Without the link, the largest step is taken.
    std::fs::remove_dir_all(workspace.path("out/step-00000005")).unwrap();
    std::fs::remove_file(workspace.path("out/latest")).unwrap();
    let unlinked = workspace.train("--steps 6 --resume out");
    assert_contains(&unlinked.stderr, &warning("step-00000004", "step-00000003"));
}

/// A resumed run may change its optimizer, but learns of it.
#[test]
fn changed_settings_of_a_resumed_run_are_shown() {
    let workspace = Workspace::new();
    workspace.train("--steps 2 --lr 3e-3 --betas 0.9,0.99 --save out");
    let same = workspace.train("--steps 3 --lr 3e-3 --betas 0.9,0.99 --resume out");
    assert!(!same.stderr.contains("warning"), "{}", same.stderr);
    let taken = workspace.train("--steps 3 --resume out");
    assert!(!taken.stderr.contains("warning"), "{}", taken.stderr);
    let changed = workspace.train("--steps 3 --lr 1e-3 --betas 0.9,0.95 --clip 0 --resume out");
    assert_contains(
        &changed.stderr,
        "warning: --resume: not as in out/step-00000002: --lr is 0.001, and 0.003 was saved; \
         --betas is 0.9,0.95, and 0.9,0.99 was saved; --clip is 0, and 1 was saved\n",
    );
}

/// The decay of a learning rate depends on the number of steps.
#[test]
fn changed_decays_of_a_resumed_run_are_shown() {
    let workspace = Workspace::new();
    for schedule in ["cosine", "wsd", "constant"] {
        let line = format!("--lr-schedule {schedule}");
        workspace.train(&format!("{line} --steps 2 --ema 0.9 --save {schedule}"));
        let longer = workspace.train(&format!("{line} --steps 4 --ema 0.5 --resume {schedule}"));
        let warning = "--ema is 0.5, and 0.9 was saved";
        assert_contains(&longer.stderr, warning);
        let steps = "--steps is 4, and 2 was saved, which moves the decay of the learning rate; ";
        assert_eq!(longer.stderr.contains(steps), schedule != "constant", "{}", longer.stderr);
        let taken = workspace.train(&format!("--steps 4 --resume {schedule}"));
        assert!(!taken.stderr.contains("--ema"), "{}", taken.stderr);
    }
}

#[test]
fn two_runs_save_identical_bytes() {
    let workspace = Workspace::new();
    for dir in ["a", "b"] {
        workspace.train(&format!("--mesh dp=2,tp=2 --steps 3 --save {dir}"));
    }
    for rank in RANKS {
        let file =
            |dir: &str| workspace.read(&format!("{dir}/step-00000003/rank-{rank}.safetensors"));
        assert!(file("a") == file("b"), "rank {rank}");
    }
}

#[test]
fn checkpoints_load_on_another_mesh() {
    let workspace = Workspace::new();
    workspace.train("--steps 4 --mesh dp=2,tp=2 --metrics whole.jsonl");
    workspace.train("--steps 2 --mesh tp=2 --save out --metrics parts.jsonl");
    workspace.train("--steps 4 --mesh dp=4 --resume out --metrics parts.jsonl");
    let [whole, parts] = ["whole.jsonl", "parts.jsonl"].map(|name| workspace.metrics(name));
    crate::assert_close(&numbers(&parts, "loss"), &numbers(&whole, "loss"), 1e-4);
}

/// Ranks with two stages each save, and the checkpoint loads on other stages, and on one rank, with the same bits. And
/// back.
#[test]
fn checkpoints_load_on_other_stages() {
    let workspace = Workspace::new();
    let small = SMALL.replace("--layers 2", "--layers 8");
    let train = |flags: &str| {
        // The norm for clipping is a sum over stages, in an order of its own for each mesh.
        let line = format!(
            "{small} --micro-batches 4 --clip 0 --order shuffled --seed 3 --warmup 2 --lr 3e-3 --metrics m.jsonl \
             {flags}"
        );
        let finished = workspace.run(&line);
        assert_eq!(finished.code, Some(0), "{line}\n{}", finished.stderr);
        numbers(&workspace.metrics("m.jsonl"), "loss")
    };
    let interleaved = "--mesh pp=4 --schedule interleaved";
    let whole = train(&format!("{interleaved} --steps 4 --save whole"));
    for (from, dir, others) in [
        (interleaved, "interleaved", &[interleaved, "--mesh pp=2", "--mesh 1"][..]),
        ("--mesh pp=2", "two", &[interleaved]),
        ("--mesh 1", "one", &[interleaved]),
    ] {
        let first = train(&format!("{from} --steps 2 --save {dir}"));
        assert_eq!(first, whole[..2], "{from}");
        for to in others {
            let resumed = train(&format!("{to} --steps 4 --resume {dir} --save {dir}-resumed"));
            assert_eq!(resumed, whole, "saved on {from}, resumed on {to}");
            if *to != interleaved {
                continue;
            }
            for rank in RANKS {
                let file = |dir: &str| {
                    workspace.read(&format!("{dir}/step-00000004/rank-{rank}.safetensors"))
                };
                assert!(file("whole") == file(&format!("{dir}-resumed")), "{from}: rank {rank}");
            }
        }
    }
}

/// Packed documents on all axes together, with ranks in another order: saved there, and resumed on one rank.
#[test]
fn all_axes_with_documents_resume_on_one_rank() {
    let workspace = Workspace::new();
    let small = SMALL.replace("--layers 2", "--layers 8");
    let train = |flags: &str| {
        let line = format!(
            "{small} --documents 10 --pack --mask-borders --micro-batches 2 --order shuffled --seed 3 --metrics \
             m.jsonl {flags}"
        );
        let finished = workspace.run(&line);
        assert_eq!(finished.code, Some(0), "{line}\n{}", finished.stderr);
        numbers(&workspace.metrics("m.jsonl"), "loss")
    };
    let all = "--mesh pp=2,fsdp=2,cp=2,tp=2 --schedule zb-v --mesh-order tp,cp,fsdp,pp --zero 1";
    let alone = train("--mesh 1 --steps 4");
    let first = train(&format!("{all} --steps 2 --save out"));
    crate::assert_close(&first, &alone[..2], 1e-4);
    let manifest = workspace.read("out/step-00000002/manifest.json");
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    assert_eq!(manifest["mesh"], "pp=2,fsdp=2,cp=2,tp=2");
    assert_eq!(manifest["mesh_order"], "tp,cp,fsdp,pp");
    let resumed = train("--mesh 1 --steps 4 --resume out");
    crate::assert_close(&resumed, &alone, 1e-4);
}

#[test]
fn steps_and_learning_rate_may_change_on_resume() {
    let workspace = Workspace::new();
    workspace.train("--steps 2 --save out");
    workspace.train("--steps 3 --lr 1e-4 --resume out/step-00000002 --metrics m.jsonl");
    assert_eq!(numbers(&workspace.metrics("m.jsonl"), "lr"), [1e-4]);
}

#[test]
fn old_checkpoints_are_removed_by_keep() {
    let workspace = Workspace::new();
    workspace.train("--steps 7 --save out --save-every 2 --keep 2");
    let names = workspace.folder_entries();
    assert_eq!(names, ["out/latest", "out/step-00000006", "out/step-00000007"]);
    let target = std::fs::read_link(workspace.path("out/latest")).unwrap();
    assert_eq!(target.to_str(), Some("step-00000007"));
}

#[test]
fn an_incomplete_checkpoint_is_skipped_with_a_warning() {
    let workspace = Workspace::new();
    workspace.train("--steps 4 --save out --save-every 2");
    let torn = "out/step-00000004/rank-00000.safetensors";
    let content = workspace.read(torn);
    workspace.write(torn, &content[..content.len() / 2]);
    let finished = workspace.train("--steps 3 --resume out/latest");
    assert_contains(&finished.stderr, &format!("warning: {torn} is damaged: it has "));
    assert_contains(&finished.stderr, "going on from out/step-00000002");
    assert_contains(&finished.stdout, "1 step on 1 rank");
}

#[test]
fn an_export_is_the_trained_model() {
    let workspace = Workspace::new();
    // One sample, so that every step has the same batch, and the loss identifies the model.
    workspace.write("one.txt", b"seventeen letters");
    let data = "--data one.txt --seq 16 --batch 2 --sample-tokens 0 --threads 1";
    let sizes = "--hidden 32 --layers 2 --heads 4 --kv-heads 2 --ffn 48 --lr 1e-2";
    for (tied, mesh) in
        [("", "dp=2,tp=2"), ("--tied", "dp=2,tp=2"), ("", "pp=2"), ("--tied", "pp=2,tp=2")]
    {
        let run = |line: &str| {
            let finished = workspace.run(&format!("{data} {line}"));
            assert_eq!(finished.code, Some(0), "{}", finished.stderr);
            finished
        };
        run(&format!("{sizes} {tied} --steps 3 --mesh {mesh} --metrics m.jsonl"));
        let hf = format!("hf{tied}");
        let finished = run(&format!("{sizes} {tied} --steps 2 --mesh {mesh} --export-hf {hf}"));
        assert_contains(&finished.stdout, &format!("exported {hf}\n"));
        run(&format!(
            "--init-from {hf} --tokenizer bytes --steps 1 --mesh {mesh} --metrics from_hf.jsonl"
        ));
        let [trained, exported] = ["m.jsonl", "from_hf.jsonl"].map(|name| workspace.metrics(name));
        assert_eq!(trained[2]["loss"], exported[0]["loss"], "{tied} {mesh}");
        assert_ne!(trained[0]["loss"], exported[0]["loss"], "{tied} {mesh}");
        assert!(!workspace.listing().iter().any(|name| name.contains(".tmp")));
    }
}

/// Embeddings on the first stage, tied to the head on the last one, are exported once. With schedules in the shape of a
/// V, both stages are on the first rank.
#[test]
fn pipelines_export_the_files_of_one_rank() {
    let workspace = Workspace::new();
    let run = |line: &str| {
        let finished = workspace.run(&format!("{line} --sample-tokens 0 --threads 1 --steps 1"));
        assert_eq!(finished.code, Some(0), "{line}\n{}", finished.stderr);
    };
    let sizes = "--hidden 32 --layers 4 --heads 4 --kv-heads 2 --ffn 48 --seq 16 --tied";
    run(&format!("--data text.txt {sizes} --export-hf new"));
    // A model of two layers, whose folder PyTorch has written.
    let original = fixture("tied_gqa").display().to_string();
    let tokens = format!("{original}/tokens.bin");
    for (from, data, mesh) in [
        (original.as_str(), tokens.as_str(), "pp=2"),
        (&original, &tokens, "pp=2,tp=2"),
        ("new", "text.txt", "pp=4"),
        ("new", "text.txt", "pp=2 --schedule interleaved"),
        ("new", "text.txt", "pp=2 --schedule zb-v"),
        ("new", "text.txt", "pp=2,fsdp=2 --zero 3"),
    ] {
        // A step that changes nothing.
        let line =
            format!("--init-from {from} --data {data} --tokenizer bytes --seq 16 --batch 4 --lr 0");
        let folders = ["alone", "staged"].map(|name| match from {
            "new" => format!("{name}-new"),
            _ => name.to_owned(),
        });
        run(&format!("{line} --mesh 1 --export-hf {}", folders[0]));
        run(&format!("{line} --mesh {mesh} --micro-batches 2 --export-hf {}", folders[1]));
        for file in ["config.json", "model.safetensors"] {
            let [alone, staged] =
                folders.each_ref().map(|folder| workspace.read(&format!("{folder}/{file}")));
            assert!(alone == staged, "{file} of {from} from {mesh}");
        }
        let content = workspace.read(&format!("{}/model.safetensors", folders[1]));
        let tensors = safetensors::SafeTensors::deserialize(&content).unwrap();
        let names = tensors.names();
        assert!(names.contains(&"model.embed_tokens.weight"), "{names:?}");
        assert!(!names.contains(&"lm_head.weight"), "{names:?}");
    }
}

/// A run that was stopped between its last checkpoint and its export.
#[test]
fn a_finished_run_is_exported_later() {
    let workspace = Workspace::new();
    workspace.train("--steps 3 --ema 0.9 --save out --export-hf whole --metrics m.jsonl");
    let line = "--steps 3 --ema 0.9 --resume out --metrics m.jsonl --export-hf";
    for (mesh, save) in [("1", ""), ("dp=2,tp=2", " --save out"), ("pp=2", " --save other")] {
        let finished = workspace.train(&format!("{line} later --mesh {mesh}{save}"));
        assert_contains(&finished.stdout, "no step was left to train on ");
        assert_contains(&finished.stdout, "exported later\n");
        assert!(!finished.stdout.contains("NaN"), "{}", finished.stdout);
        let file = |folder: &str| workspace.read(&format!("{folder}/model.safetensors"));
        assert!(file("whole") == file("later"), "{mesh}");
        assert_eq!(numbers(&workspace.metrics("m.jsonl"), "step"), [1.0, 2.0, 3.0], "{mesh}");
    }
    workspace.train("--steps 4 --ema 0.9 --resume out");
    workspace.train("--steps 4 --ema 0.9 --resume other");
}
