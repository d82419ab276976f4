//! Outputs that cannot be written, or would replace what the run reads.

use super::assert_refused;
use crate::{SMALL, Workspace};

#[test]
fn output_paths_that_cannot_be_written() {
    let workspace = Workspace::new();
    std::fs::create_dir(workspace.path("folder")).unwrap();
    std::fs::create_dir_all(workspace.path("copied/latest")).unwrap();
    std::fs::create_dir_all(workspace.path("hf/config.json")).unwrap();
    std::os::unix::fs::symlink("nowhere", workspace.path("dangling")).unwrap();
    std::os::unix::fs::symlink("loop.json", workspace.path("loop.json")).unwrap();
    let with = |flags: &str| format!("{SMALL} --steps 1 {flags}");
    assert_refused(
        &workspace,
        &[
            (
                &with("--save text.txt"),
                &["--save: cannot create text.txt: it is a file, not a folder"],
            ),
            (
                &with("--save text.txt/out"),
                &["--save: cannot create text.txt/out: Not a directory"],
            ),
            (
                &with("--save /dev/null"),
                &["--save: cannot create /dev/null: it is a file, not a folder"],
            ),
            (
                &with("--export-hf /dev/full"),
                &["--export-hf: cannot create /dev/full: it is a file, not a folder"],
            ),
            (&with("--save /proc/out"), &["--save: cannot create /proc/out: "]),
            (
                &with("--save dangling"),
                &[
                    "--save: cannot create dangling: dangling is a link to nowhere, which does not exist",
                    "create that folder or remove the link",
                ],
            ),
            (
                &with("--save copied --trace t.json --metrics m.jsonl"),
                &[
                    "--save: cannot save checkpoints in copied: copied/latest is a folder, not the link",
                    "Remove it or",
                ],
            ),
            (
                &with("--export-hf text.txt/hf"),
                &["--export-hf: cannot create text.txt/hf: Not a dir"],
            ),
            (
                &with("--export-hf hf"),
                &["--export-hf: cannot create hf/config.json: it is a folder; remove or rename it"],
            ),
            (&with("--metrics folder"), &["--metrics: cannot open folder: Is a directory"]),
            (&with("--metrics loop.json"), &["--metrics: cannot open loop.json: Too many levels"]),
            (&with("--trace loop.json"), &["--trace: cannot write loop.json: Too many levels"]),
            (
                &with("--metrics text.txt/m"),
                &["--metrics: cannot open text.txt/m: Not a directory"],
            ),
            (
                &with("--metrics ./text.txt"),
                &["--metrics: is also the file of --data; name another"],
            ),
            (
                &with("--metrics none/m.jsonl"),
                &["--metrics: cannot open none/m.jsonl: No such file"],
            ),
            (&with("--trace ./text.txt"), &["--trace: is also the file of --data; name another"]),
            (
                &with("--metrics out.json --trace out.json"),
                &["--trace: is also the file of --metrics; name another"],
            ),
            (&with("--trace none/t.json"), &["--trace: cannot write none/t.json: No such file"]),
        ],
    );
}

#[test]
fn outputs_that_the_run_replaces() {
    let workspace = Workspace::new();
    workspace.write("step-00000002", b"a note\n");
    std::fs::create_dir_all(workspace.path("other/step-00000001")).unwrap();
    std::fs::create_dir(workspace.path("e")).unwrap();
    workspace.write("other/step-00000001/notes.txt", b"a note\n");
    workspace.write("e/config.json", b"steps = 3");
    let with = |flags: &str| format!("{SMALL} {flags}");
    assert_refused(
        &workspace,
        &[
            (
                &with("--save s --metrics s/latest"),
                &[
                    "--metrics: s/latest would be replaced by what --save writes to s; name another file",
                ],
            ),
            (&with("--save s --trace s/step-00000002"), &["--trace: s/step-00000002 would be"]),
            (&with("--save s --metrics s/.lock"), &["--metrics: s/.lock would be replaced"]),
            (&with("--save s --export-hf ./s/latest"), &["--export-hf: ./s/latest would be"]),
            (
                &with("--save s --export-hf s/step-00000004"),
                &[
                    "--export-hf: s/step-00000004 would be replaced by what --save writes to s; name another folder",
                ],
            ),
            (&with("--export-hf e --metrics e/tokenizer.json"), &["--metrics: e/tokenizer.json"]),
            (
                &with("--export-hf e --trace e/model-00001-of-00002.safetensors"),
                &["what --export-hf writes to e"],
            ),
            (&with("--export-hf e --config e/config.json"), &["--config: e/config.json would be"]),
            (
                &with("--save ."),
                &["./step-00000002 has the name of a checkpoint, but was not saved by a run"],
            ),
            (&with("--save other"), &["other/step-00000001 has the name of a checkpoint"]),
        ],
    );
    assert!(workspace.path("other/step-00000001/notes.txt").exists());
}

#[test]
fn reports_may_be_in_folders_that_the_run_creates() {
    let workspace = Workspace::new();
    workspace.train("--steps 1 --save new/run --metrics new/run/m.jsonl --trace new/run/t.json");
    assert!(
        workspace.path("new/run/m.jsonl").exists() && workspace.path("new/run/latest").exists()
    );
}

#[test]
fn outputs_that_are_inputs() {
    let workspace = Workspace::new();
    workspace.copy_fixture("tied_gqa", "hf");
    workspace.train("--steps 2 --save-every 1 --save run");
    workspace.write("run.toml", b"steps = 3");
    workspace.write("notes.txt", b"a note\n");
    workspace.write("stages.json", b"{\"blocks.0\": 1, \"blocks.1\": 1}");
    workspace.write("schedule.csv", b"0F0,0B0\n1F0,1B0\n");
    std::fs::hard_link(workspace.path("text.txt"), workspace.path("link.txt")).unwrap();
    std::os::unix::fs::symlink("run", workspace.path("linked")).unwrap();
    let hf = "--init-from hf --data hf/tokens.bin --batch 4 --seq 16 --steps 1";
    let with = |flags: &str| format!("{SMALL} {flags}");
    let inside = "whose files a run must not change; write to another folder";
    let resumed = |flags: &str| format!("{SMALL} --steps 3 --resume run {flags}");
    assert_refused(
        &workspace,
        &[
            (
                &with("--config run.toml --metrics run.toml"),
                &["--metrics: is also the file of --config; name another file"],
            ),
            (
                &with("--config run.toml --trace ./run.toml"),
                &["--trace: is also the file of --config"],
            ),
            (&with("--metrics link.txt"), &["--metrics: is also the file of --data"]),
            (
                &with("--trace a.json --metrics ./a.json"),
                &["--trace: is also the file of --metrics"],
            ),
            (
                &with("--mesh pp=2 --schedule schedule.csv --metrics schedule.csv"),
                &["--metrics: is also the file of --schedule"],
            ),
            (
                &with("--mesh pp=2 --stages stages.json --trace stages.json"),
                &["--trace: is also the file of --stages"],
            ),
            (
                &with("--mesh pp=2 --stages stages.json --stage-times ./stages.json"),
                &["--stage-times: is also the file of --stages; name another file"],
            ),
            (
                &with("--save out --metrics out"),
                &["--save: is also the file of --metrics; name another folder"],
            ),
            (
                &format!("{hf} --metrics hf/config.json"),
                &["--metrics: hf/config.json is in the folder hf of --init-from, ", inside],
            ),
            (
                &resumed("--metrics run/step-00000002/manifest.json"),
                &["--metrics: run/step-00000002/manifest.json is in the folder "],
            ),
            (
                &resumed("--trace linked/step-00000001/new.json"),
                &[
                    "--trace: linked/step-00000001/new.json is in the folder ",
                    "(a checkpoint), ",
                    inside,
                ],
            ),
            (
                &with("--export-hf run/step-00000001"),
                &["run/step-00000001 (a checkpoint), ", inside],
            ),
            (
                &resumed("--metrics notes.txt"),
                &["--metrics: cannot continue notes.txt: its line 1 has no metrics of a step"],
            ),
        ],
    );
    // Outputs may be beside what was read, and beside each other.
    workspace.train(
        "--steps 3 --resume run --save run --export-hf run --tensorboard run --metrics run/m.jsonl",
    );
    workspace.train("--steps 1 --metrics /dev/null --trace /dev/null");
}

#[test]
fn pipes_without_another_end() {
    let workspace = Workspace::new();
    for name in ["pipe", "pipe.bin"] {
        let made = std::process::Command::new("mkfifo").arg(workspace.path(name)).status();
        assert!(made.unwrap().success());
    }
    let unread = "it is a pipe that no program reads; start the reader first, or use a file";
    let unwritten =
        "it is a pipe to which no program writes; start the writer first, or use a file";
    assert_refused(
        &workspace,
        &[
            (&SMALL.replace("text.txt", "pipe"), &["--data: cannot read pipe: ", unwritten]),
            (
                &SMALL.replace("text.txt", "pipe.bin"),
                &["--data: cannot read pipe.bin: ", unwritten],
            ),
            (&format!("{SMALL} --config pipe"), &["--config: cannot read pipe: ", unwritten]),
            (&format!("{SMALL} --metrics pipe"), &["--metrics: cannot open pipe: ", unread]),
            (&format!("{SMALL} --trace pipe"), &["--trace: cannot write pipe: ", unread]),
        ],
    );
}
