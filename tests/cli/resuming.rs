//! `--resume` takes the settings of the checkpoint, and the flags that a run prints for its continuation work as they
//! are.

use super::forged::write_manifest;
use super::*;

/// Returns the flags that a finished run prints for its continuation.
fn hint(finished: &Finished) -> String {
    let line = finished.stdout.lines().find_map(|line| line.split_once("; to continue: "));
    line.unwrap_or_else(|| panic!("no flags in:\n{}", finished.stdout)).1.to_owned()
}

/// Runs the program with words for a shell.
fn run_words(workspace: &Workspace, name: &str, words: &str) -> Finished {
    let mut command = command("sh");
    command.args(["-c", &format!("exec '{name}' {words}")]);
    workspace.finish(command, words)
}

const LLAMA: &str = env!("CARGO_BIN_EXE_train_llama");

/// The continued run is, bit for bit, the rest of one that trains all steps.
#[test]
fn the_printed_flags_continue_a_run() {
    let workspace = Workspace::new();
    workspace.copy_fixture("tied_gqa", "a model");
    std::fs::create_dir(workspace.path("some data")).unwrap();
    let text = workspace.read("text.txt");
    workspace.write("some data/it's text.txt", &text);
    workspace.write(
        "run.toml",
        b"hidden = 32\nlayers = 2\nheads = 4\nffn = 48\ndata = \"text.txt\"\nseq = 16\nbatch = 4\nlr = 3e-3\nmesh \
          = \"fsdp=2\"\n\
          zero = 1\nsample-tokens = 0\nseed = 5\n",
    );
    let small = "--hidden 32 --layers 2 --heads 4 --seq 16 --batch 4 --steps 3 --sample-tokens 0";
    let folder = "--init-from 'a model' --data 'a model/tokens.bin' --seq 8 --batch 4 --steps 3 --sample-tokens 0";
    let deep = small.replace("--layers 2", "--layers 4 --mesh pp=2 --schedule interleaved");
    for (index, line) in [
        format!("{SMALL} --steps 3 --mesh dp=2,tp=2 --optimizer sgd --momentum 0.5 --clip 0"),
        "--config run.toml --steps 3".to_owned(),
        format!("{folder} --micro-batches 2"),
        format!(
            "{small} --data \"some data/it's text.txt\" --order shuffled --seed 3 --ema 0.9 --dtype bf16"
        ),
        format!("{deep} --data ./text.txt --micro-batches 2 --recompute full"),
        format!("{small} --data text.txt --mesh cp=2,fsdp=2 --cp ulysses --zero 2 --mesh-order fsdp,cp"),
        format!("{small} --data text.txt --documents 10 --pack --mask-borders --tied --vocab 260"),
    ]
    .into_iter()
    .enumerate()
    {
        let whole = run_words(
            &workspace,
            LLAMA,
            &format!("{} --metrics whole{index}.jsonl", line.replace("--steps 3", "--steps 6")),
        );
        assert_eq!(whole.code, Some(0), "{line}\n{}", whole.stderr);
        let save = format!("--save 'out {index}' --save-every 2 --keep 2 --metrics m{index}.jsonl");
        let first = run_words(&workspace, LLAMA, &format!("{line} {save}"));
        assert_eq!(first.code, Some(0), "{line}\n{}", first.stderr);
        let flags = hint(&first);
        let second = run_words(&workspace, LLAMA, &flags);
        assert_eq!(second.code, Some(0), "{line}\n{flags}\n{}", second.stderr);
        assert!(!second.stderr.contains("warning"), "{line}\n{flags}\n{}", second.stderr);
        let losses = |name: String| numbers(&workspace.metrics(&name), "loss");
        assert_eq!(losses(format!("whole{index}.jsonl")), losses(format!("m{index}.jsonl")), "{line}");
        assert!(workspace.path(&format!("out {index}/step-00000006/manifest.json")).is_file());
        // And again.
        let third = run_words(&workspace, LLAMA, &hint(&second));
        assert_eq!(third.code, Some(0), "{}", third.stderr);
        assert_eq!(losses(format!("m{index}.jsonl")).len(), 12);
    }
}

/// It works from another folder too.
#[test]
fn a_checkpoint_exports_without_further_flags() {
    let workspace = Workspace::new();
    workspace
        .train("--mesh fsdp=2 --zero 1 --tied --vocab 300 --steps 3 --save out --export-hf whole");
    let finished = workspace.run("--resume out --export-hf later");
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert_contains(&finished.stdout, "no step was left to train on ");
    std::fs::create_dir(workspace.path("elsewhere")).unwrap();
    let mut command = program();
    command.args(["--resume", "../out/latest", "--export-hf", "hf"]);
    command.current_dir(workspace.path("elsewhere"));
    assert!(command.output().unwrap().status.success());
    let model = |folder: &str| workspace.read(&format!("{folder}/model.safetensors"));
    assert!(model("whole") == model("later") && model("whole") == model("elsewhere/hf"));
    // The list of collectives is that of the saved run.
    let explained = workspace.run("--resume out --explain --steps 4");
    assert_eq!(explained.code, Some(0), "{}", explained.stderr);
    assert_contains(&explained.stdout, "fsdp");
}

/// Flags override what is safe to change, on another mesh too, and others are refused by name.
#[test]
fn flags_override_saved_settings() {
    let workspace = Workspace::new();
    workspace.train("--mesh fsdp=2 --zero 1 --micro-batches 2 --steps 2 --save out");
    for flags in [
        "--mesh dp=4 --micro-batches 1",
        "--mesh pp=2 --schedule gpipe",
        "--mesh auto=2",
        "--lr 1e-2 --clip 0 --weight-decay 0 --ema 0.5",
        "--dtype bf16 --reduce-dtype bf16",
        "--state-dtype bf16 --grad-dtype bf16",
        "--micro-batches 1 --recompute full --zero 3",
        "--data ./text.txt --threads 1",
    ] {
        let finished = workspace.run(&format!("--resume out --steps 3 {flags}"));
        assert_eq!(finished.code, Some(0), "{flags}\n{}", finished.stderr);
    }
    workspace.write(
        "other.txt",
        b"another text that is long enough to be trained on, in some rows, if it were the same",
    );
    for (flags, expected) in [
        ("--hidden 64", "--hidden: 64, but 32 was saved in out/step-00000002; leave it out"),
        ("--heads 2 --tied", "--heads: 2, but 4 was saved"),
        ("--seq 32", "--seq: 32, but 16 was saved"),
        ("--batch 8", "--batch: 8, but 4 was saved"),
        ("--seed 1", "--seed: 1, but 0 was saved"),
        ("--order shuffled", "--order: shuffled, but sequential was saved"),
        ("--documents 10", "\n  - --documents: 10, but none was saved"),
        (
            "--mesh dp=4",
            "(dp=4 of --mesh, times --micro-batches 2); use --micro-batches 1, or another --mesh",
        ),
        ("--kv-heads 4", "--kv-heads: 4, but 2 was saved"),
        ("--data other.txt", "--data: other.txt with "),
        ("--optimizer sgd", "--optimizer: out/step-00000002 was saved by another optimizer"),
        ("--init-from none", "--init-from: "),
    ] {
        let run = workspace.run(&format!("--resume out --steps 3 {flags}"));
        assert_contains(run.error(), expected);
    }
}

/// Results depend on the number of micro-batches, through a load-balancing loss, and not on the mesh.
#[test]
fn micro_batches_are_kept_on_another_mesh() {
    let workspace = Workspace::new();
    let sizes = "--hidden 16 --layers 2 --heads 2 --seq 16 --batch 8 --data text.txt --threads 1 --sample-tokens 0";
    let run = |line: &str| {
        let finished = workspace.run_program(mixtral_program(), line);
        assert_eq!(finished.code, Some(0), "{line}\n{}", finished.stderr);
        finished.stderr
    };
    run(&format!(
        "{sizes} --mesh 1 --micro-batches 4 --lr 1e-2 --balance batch=0.5 --steps 2 --save out"
    ));
    let norm_of = |flags: &str| {
        let errors = run(&format!("--resume out --steps 3 --metrics m.jsonl --threads 1 {flags}"));
        let step = workspace.metrics("m.jsonl").pop().unwrap();
        std::fs::remove_file(workspace.path("m.jsonl")).unwrap();
        (step["grad_norm"].as_f64().unwrap(), errors)
    };
    let (same, _) = norm_of("");
    for mesh in ["dp=2", "fsdp=2", "pp=2"] {
        let (other, errors) = norm_of(&format!("--mesh {mesh}"));
        assert!((other - same).abs() < 1e-4 * same, "{mesh}: {other}, {same}");
        assert!(!errors.contains("warning"), "{errors}");
    }
    let (other, errors) = norm_of("--micro-batches 1");
    assert!((other - same).abs() > 3e-4 * same, "{other}, {same}");
    let warning = "--micro-batches is 1, and 4 was saved, which changes the load-balancing loss";
    assert_contains(&errors, warning);
    let (_, errors) = norm_of("--micro-batches 1 --balance none");
    assert!(!errors.contains("--micro-batches"), "{errors}");
}

/// Settings of how ranks share the work have their defaults on another mesh, unless they follow from it.
#[test]
fn settings_that_are_not_kept_on_another_mesh_are_named() {
    let workspace = Workspace::new();
    for (saved, flags, expected) in [
        ("fsdp=4 --zero 1", "--mesh fsdp=2", "step-00000002: --zero is 3, and 1 was saved\n"),
        ("fsdp=4 --zero 1", "--mesh dp=2", ""),
        ("fsdp=4", "--mesh pp=2,fsdp=2", ""),
        (
            "pp=2 --schedule interleaved --layers 4",
            "--mesh pp=2,dp=2",
            "--schedule is 1f1b, and interleaved was saved; --virtual-stages is 1, and 2 was saved\n",
        ),
        ("pp=2 --schedule interleaved --layers 4", "--mesh dp=2", ""),
        ("cp=2 --cp ulysses", "--mesh cp=2,dp=2", "--cp is none, and ulysses was saved\n"),
        ("cp=2 --cp ulysses", "--mesh tp=2", ""),
    ] {
        let sizes =
            if saved.contains("--layers") { SMALL.replace("--layers 2", "") } else { SMALL.into() };
        let first = workspace.run(&format!("{sizes} --mesh {saved} --steps 2 --save out"));
        assert_eq!(first.code, Some(0), "{}", first.stderr);
        let second = workspace.run(&format!("--resume out --steps 3 --threads 1 {flags}"));
        assert_eq!(second.code, Some(0), "{}", second.stderr);
        if expected.is_empty() {
            assert!(!second.stderr.contains("warning"), "{saved}, {flags}: {}", second.stderr);
        } else {
            assert_contains(&(second.stderr + &second.stdout), expected);
        }
        std::fs::remove_dir_all(workspace.path("out")).unwrap();
    }
}

/// The message names the family, the flag or the folder.
#[test]
fn other_models_are_refused_by_name() {
    let workspace = Workspace::new();
    let sizes = SMALL.replace("--kv-heads 2", "").replace("--ffn 48", "");
    let first = workspace.run(&format!("{sizes} --mesh 1 --steps 2 --save out"));
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    for (flags, expected) in [
        ("--ffn 32", "--ffn (intermediate_size) is 32, and "),
        ("--kv-heads 1", "--kv-heads: 1, but 4 was saved in out/step-00000002; leave it out"),
    ] {
        let run = workspace.run(&format!("--resume out --steps 3 {flags}"));
        assert_contains(run.error(), expected);
    }
    let other = workspace.run_gpt2("--resume out --steps 3");
    let expected = "--resume: out/step-00000002 is of a llama, and this program trains a \"gpt2\"; use the program \
                    that has saved it, or `train`, which takes each family";
    assert_contains(other.error(), expected);
    let folder = fixture("gpt2").display().to_string();
    for (flag, given) in
        [("--family", "gpt2"), ("--init-from", &folder), ("--architecture", &folder)]
    {
        let line = format!("--resume out --steps 3 {flag} {given}");
        let expected = format!(
            "error: --resume: out/step-00000002 is of a llama, but {flag} {given} is a gpt2; leave {flag} out, since a"
        );
        for run in [workspace.run_program(family_program(), &line), workspace.run(&line)] {
            assert_contains(run.error(), &expected);
        }
    }

    workspace.copy_fixture("tied_gqa", "model");
    let first = workspace.run(
        "--init-from model --data model/tokens.bin --seq 8 --batch 4 --steps 2 --save other --sample-tokens 0",
    );
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    let settings = String::from_utf8(workspace.read("model/config.json")).unwrap();
    let changed = settings.replacen("\"rms_norm_eps\": ", "\"rms_norm_eps\": 1", 1);
    assert_ne!(changed, settings);
    workspace.write("model/config.json", changed.as_bytes());
    for flags in ["", "--init-from model", "--init-from ./model"] {
        let run = workspace.run(&format!("--resume other --steps 3 {flags}"));
        assert_contains(run.error(), "rms_norm_eps is ");
        assert_contains(run.error(), "; restore the config.json of ");
    }
}

/// The ids of a text by bytes are the same, whatever their width.
#[test]
fn a_text_and_its_token_file_resume_each_other() {
    let workspace = Workspace::new();
    let ids: Vec<u8> = workspace.read("text.txt").into_iter().flat_map(|byte| [byte, 0]).collect();
    workspace.write("text.u16.bin", &ids);
    for [saved, resumed] in [["text.txt", "text.u16.bin"], ["text.u16.bin", "text.txt"]] {
        let flags = SMALL.replace("text.txt", saved);
        let first =
            workspace.run(&format!("{flags} --tokenizer bytes --mesh 1 --steps 2 --save out"));
        assert_eq!(first.code, Some(0), "{}", first.stderr);
        let second = workspace.run(&format!("--resume out --steps 3 --data {resumed}"));
        assert_eq!(second.code, Some(0), "{}", second.stderr);
        std::fs::remove_dir_all(workspace.path("out")).unwrap();
    }
}

/// Checkpoints that were saved without flags need the flags of the run.
#[test]
fn older_checkpoints_load_with_flags() {
    let workspace = Workspace::new();
    workspace.train("--mesh fsdp=2 --steps 2 --save out");
    let checkpoint = workspace.path("out/step-00000002");
    let text = workspace.read("out/step-00000002/manifest.json");
    let mut manifest: Value = serde_json::from_slice(&text).unwrap();
    manifest["config"].as_object_mut().unwrap().remove("flags").unwrap();
    write_manifest(&checkpoint, &serde_json::to_vec(&manifest).unwrap());
    workspace.train("--mesh fsdp=2 --steps 3 --resume out");
    let without = workspace.run("--steps 3 --resume out");
    assert_contains(without.error(), "\n  - --seq: 128, but 16 was saved");
}

/// The steps of a run without `--save` are lost, which is said when it begins.
#[test]
fn unsaved_steps_are_announced() {
    let workspace = Workspace::new();
    workspace.train("--steps 2 --save out");
    let line = "\n--resume: without --save, the steps of this run are lost when it ends; add --save out to keep them\n";
    for (flags, is_announced) in [
        ("--resume out --steps 3", true),
        ("--resume out/step-00000002 --steps 3 --metrics m.jsonl", true),
        ("--resume out --steps 3 --export-hf hf", false),
        ("--resume out", false),
        ("--resume out --steps 3 --explain", false),
        ("--resume out --steps 3 --save out", false),
    ] {
        let stderr = format!("\n{}", workspace.train(flags).stderr);
        assert_eq!(stderr.matches(line).count(), usize::from(is_announced), "{flags}: {stderr}");
    }
}

/// A size that was not given, too.
#[test]
fn other_sizes_are_refused_as_such() {
    let workspace = Workspace::new();
    let line = SMALL.replace("--kv-heads 2 ", "");
    assert_eq!(workspace.run(&format!("{line} --steps 1 --save out")).code, Some(0));
    for (given, saved) in [("kv-heads 3", 4), ("kv-heads 2", 4), ("heads 3", 4), ("hidden 30", 32)]
    {
        let (name, value) = given.split_once(' ').unwrap();
        let refusal = format!(
            "error: --{name}: {value}, but {saved} was saved in out/step-00000001; leave it out, or train another \
             model without --resume"
        );
        assert_eq!(workspace.run(&format!("--resume out --{given} --steps 2")).error(), refusal);
    }
    assert_eq!(workspace.run("--resume out --steps 2 --kv-heads 4").code, Some(0));
}
