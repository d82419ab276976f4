//! Data, weights and checkpoints that cannot be read.

use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::process::Stdio;

use super::assert_refused;
use crate::{Finished, SMALL, Workspace, assert_contains, fixture, program};

#[test]
fn data() {
    let workspace = Workspace::new();
    workspace.write("empty.txt", b"");
    workspace.write("empty.bin", b"");
    workspace.write("odd.bin", b"abc");
    workspace.write("torn.u32.bin", &[0; 4098]);
    workspace.write("short.txt", b"short");
    let mut ids = [5u8, 0].repeat(400);
    ids[600..602].copy_from_slice(&300u16.to_le_bytes());
    workspace.write("foreign.bin", &ids);
    let mut first = ids.clone();
    first[..2].copy_from_slice(&256u16.to_le_bytes());
    workspace.write("first.bin", &first);
    std::fs::create_dir(workspace.path("folder")).unwrap();
    let on =
        |file: &str| format!("{} --save out --metrics m.jsonl", SMALL.replace("text.txt", file));
    let small_vocab = format!(
        "--init-from {} --data text.txt --tokenizer bytes",
        fixture("untied_mha").display()
    );
    assert_refused(
        &workspace,
        &[
            (&on("none.txt"), &["--data: cannot read none.txt: No such file"]),
            (&on("text.txt/below"), &["--data: cannot read text.txt/below: Not a directory"]),
            (&on("folder"), &["--data: folder holds no files; name a folder with files of data"]),
            (&on("empty.txt"), &["--data: empty.txt is empty"]),
            (&on("empty.bin"), &["--data: empty.bin is empty"]),
            (
                &on("odd.bin"),
                &["odd.bin has 3 bytes, which is not a whole number of 2-byte tokens"],
            ),
            (
                &on("torn.u32.bin"),
                &["has 4098 bytes, which is not a whole number of 4-byte tokens"],
            ),
            (&on("short.txt"), &["short.txt has 5 tokens, but one sample of --seq 16 needs 17"]),
            (&on("first.bin"), &["has token id 256 at position 0, beyond the vocabulary of 256"]),
            (
                &on("foreign.bin"),
                &["has token id 300 at position 300, beyond the vocabulary of 256"],
            ),
            (&small_vocab, &["needs a vocabulary of at least 256; the model has 101"]),
        ],
    );
}

/// Data that may have no end.
#[test]
fn data_of_devices_and_sockets() {
    let workspace = Workspace::new();
    let _socket = UnixListener::bind(workspace.path("socket.txt")).unwrap();
    symlink("/dev/zero", workspace.path("zero.bin")).unwrap();
    let on = |file: &str| format!("{} --save out", SMALL.replace("text.txt", file));
    assert_refused(
        &workspace,
        &[
            (&on("/dev/zero"), &["--data: /dev/zero is a character device; write the data to a"]),
            (&on("zero.bin"), &["--data: zero.bin is a character device; "]),
            // The tests have no other standard input.
            (&on("/dev/stdin"), &["--data: /dev/stdin is a character device; "]),
            (&on("socket.txt"), &["--data: socket.txt is a socket; "]),
            (
                &format!("{SMALL} --config /dev/zero"),
                &["--config: cannot read /dev/zero: it has more than 64 MiB"],
            ),
        ],
    );
}

/// A file of the system that says that it is empty, and has no end: its reader waits for the next message of the
/// kernel. Only its owner can open it.
#[test]
fn files_of_the_system_without_an_end() {
    let workspace = Workspace::new();
    workspace.copy_fixture("tied_gqa", "model");
    let config = workspace.path("model/config.json");
    std::fs::remove_file(&config).unwrap();
    symlink("/proc/kmsg", config).unwrap();
    let refused = |line: &str, expected: &str| {
        assert_contains(workspace.run(line).error(), expected);
    };
    refused(&SMALL.replace("text.txt", "/proc/kmsg"), "--data: cannot read /proc/kmsg: ");
    refused(&format!("{SMALL} --config /proc/kmsg"), "--config: cannot read /proc/kmsg: ");
    refused(&format!("{SMALL} --tokenizer /proc/kmsg"), "--tokenizer: /proc/kmsg ");
    refused("--init-from model --data text.txt", "--init-from: cannot read model/config.json: ");
    let unwritable = workspace.run(&format!("{SMALL} --metrics /proc/kmsg --steps 1"));
    assert_ne!(unwritable.code, Some(0), "{}", unwritable.stderr);
    assert_contains(&unwritable.stderr, "error: --metrics: cannot ");
}

/// A link, and the standard input, as a file and as a pipe.
#[test]
fn data_by_other_paths() {
    let workspace = Workspace::new();
    symlink("text.txt", workspace.path("link.txt")).unwrap();
    let on = |file: &str| format!("{} --steps 1", SMALL.replace("text.txt", file));
    let linked = workspace.run(&on("link.txt"));
    assert_eq!(linked.code, Some(0), "{}", linked.stderr);
    let mut redirected = program();
    redirected.stdin(std::fs::File::open(workspace.path("text.txt")).unwrap());
    let redirected = workspace.run_program(redirected, &on("/dev/stdin"));
    assert_eq!(redirected.code, Some(0), "{}", redirected.stderr);

    let mut piped = program();
    piped.args(on("/dev/stdin").split_whitespace()).current_dir(workspace.path("."));
    let mut piped = piped.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let text = std::fs::read(workspace.path("text.txt")).unwrap();
    piped.stdin.take().unwrap().write_all(&text).unwrap();
    let piped = Finished::new("on a pipe", piped.wait_with_output().unwrap());
    assert_eq!(piped.code, Some(0), "{}", piped.stderr);
}

#[test]
fn weights() {
    let workspace = Workspace::new();
    let spoilt = |name: &str, spoil: &dyn Fn(&str)| {
        workspace.copy_fixture("tied_gqa", name);
        spoil(name);
    };
    let weights = |name: &str| format!("{name}/model.safetensors");
    let edit = |name: &str, key: &str, value: serde_json::Value| {
        let path = format!("{name}/config.json");
        let mut config: serde_json::Value = serde_json::from_slice(&workspace.read(&path)).unwrap();
        config[key] = value;
        workspace.write(&path, config.to_string().as_bytes());
    };
    spoilt("cut", &|name| {
        let content = workspace.read(&weights(name));
        workspace.write(&weights(name), &content[..content.len() / 2]);
    });
    spoilt("garbage", &|name| {
        let noise: Vec<u8> =
            (0..20_000u32).map(|n| (n.wrapping_mul(2654435761) >> 13) as u8).collect();
        workspace.write(&weights(name), &noise);
    });
    spoilt("gone", &|name| std::fs::remove_file(workspace.path(&weights(name))).unwrap());
    spoilt("json", &|name| workspace.write(&format!("{name}/config.json"), b"{"));
    spoilt("list", &|name| workspace.write(&format!("{name}/config.json"), b"[1]"));
    spoilt("rope", &|name| {
        edit(
            name,
            "rope_parameters",
            serde_json::json!({ "rope_type": "xpos", "rope_theta": 1e4 }),
        );
    });
    spoilt("bias", &|name| edit(name, "attention_bias", true.into()));
    spoilt("shape", &|name| edit(name, "intermediate_size", 128.into()));
    spoilt("layers", &|name| edit(name, "num_hidden_layers", 3.into()));
    spoilt("endless", &|name| edit(name, "num_hidden_layers", 4_000_000_000u32.into()));
    workspace.copy_fixture("sharded_files", "shards");
    std::fs::remove_file(workspace.path("shards/model-00003-of-00005.safetensors")).unwrap();
    let from = |folder: &str| {
        let data = fixture("tied_gqa");
        format!(
            "--init-from {folder} --data {}/tokens.bin --batch 4 --seq 16 --save out",
            data.display()
        )
    };
    assert_refused(
        &workspace,
        &[
            (&from("none"), &["--init-from: none: there is no such folder"]),
            (&from("text.txt"), &["--init-from: text.txt: it is a file, not a folder"]),
            (&from("cut"), &["--init-from: cut/model.safetensors is damaged: ", "truncated"]),
            (
                &from("garbage"),
                &["garbage/model.safetensors is damaged: ", "not a safetensors file"],
            ),
            (
                &from("gone"),
                &[
                    "gone: its only file of weights is expected.safetensors; rename it to model.safetensors if",
                ],
            ),
            (&from("json"), &["json/config.json: not JSON: "]),
            (&from("list"), &["list/config.json: not JSON: "]),
            (
                &from("rope"),
                &["rope/config.json: rope_parameters.rope_type is \"xpos\"; only \"default\", "],
            ),
            (&from("bias"), &["\n  - missing: model.layers.0.self_attn.q_proj.bias"]),
            (
                &from("shape"),
                &["\n  - model.layers.0.mlp.up_proj.weight has shape [96, 64], expected [128, 64]"],
            ),
            (&from("layers"), &["\n  - missing: model.layers.2.mlp.up_proj.weight"]),
            (
                &from("endless"),
                &["num_hidden_layers is 4000000000; at most 10000 layers are supported"],
            ),
            (
                &from("shards"),
                &[
                    "the folder lacks 1 of the 5 files that it names, such as model-00003-of-00005.safetensors;",
                ],
            ),
            (
                &format!("{} --hidden 8", from("cut")),
                &["--hidden: cannot be combined with --init-from"],
            ),
            (
                &format!("{} --mesh tp=4", from(&fixture("tied_gqa").display().to_string())),
                &["KvHeads = 2"],
            ),
        ],
    );
}

#[test]
fn checkpoints() {
    let workspace = Workspace::new();
    workspace.train("--steps 2 --save out --metrics m.jsonl");
    workspace.train("--steps 2 --save torn");
    let file = "torn/step-00000002/rank-00000.safetensors";
    let content = workspace.read(file);
    workspace.write(file, &content[..content.len() - 1]);
    workspace.write("other.txt", b"another text that is long enough for a sample");
    std::fs::create_dir(workspace.path("folder")).unwrap();
    let metrics = workspace.read("m.jsonl");
    let resume = |flags: &str| format!("{SMALL} --steps 5 --metrics m.jsonl --resume {flags}");
    assert_refused(
        &workspace,
        &[
            (
                &resume("none/latest"),
                &["--resume: no checkpoint at none/latest: there is no such folder"],
            ),
            (&resume("folder"), &["--resume: no checkpoint at folder: the folder holds no step-*"]),
            (
                &resume("text.txt"),
                &["--resume: no checkpoint at text.txt: it is a file, not a folder"],
            ),
            (
                &resume("torn/latest"),
                &[
                    "--resume: no usable checkpoint in torn:",
                    &format!("\n  - {file} is damaged: it has "),
                ],
            ),
            (
                &resume("out/latest").replace("--layers 2", "--layers 3"),
                &["--layers: 3, but 2 was saved in out/step-00000002; leave it out"],
            ),
            (
                &resume("out/latest").replace("--ffn 48", "--ffn 64"),
                &["--ffn: 64, but 48 was saved in out/step-00000002; leave it out"],
            ),
            (
                &resume("out/latest --seed 7 --order shuffled").replace("text.txt", "other.txt"),
                &[
                    "--resume:",
                    "\n  - --data: other.txt with 45 tokens differs",
                    "\n  - --order: ",
                    "\n  - --seed: 7",
                ],
            ),
            (
                &resume("out/latest").replace("--steps 5", "--steps 1"),
                &[
                    "out/step-00000002 has 2 steps done, and --steps 1 counts",
                    "; use a larger --steps",
                ],
            ),
        ],
    );
    assert_eq!(workspace.read("m.jsonl"), metrics);
}
