//! Invalid input: one message that names the value, the cause and the fix, before any file is written.

use crate::{SMALL, Workspace, assert_contains, fixture};

/// Asserts that each line is refused with a message that contains all parts, and leaves the folder unchanged.
#[track_caller]
fn assert_refused(workspace: &Workspace, cases: &[(&str, &[&str])]) {
    let before = workspace.listing();
    for (line, parts) in cases {
        let finished = workspace.run(line);
        let error = finished.error();
        assert_eq!(finished.stdout, "", "{line}");
        assert!(finished.stderr.starts_with("error: "), "{line}\n{}", finished.stderr);
        for part in *parts {
            assert_contains(error, part);
        }
        assert_eq!(workspace.listing(), before, "{line}");
    }
}

#[test]
fn settings() {
    let workspace = Workspace::new();
    workspace.write("run.toml", b"steps = 3\nbacth = 4\n");
    assert_refused(
        &workspace,
        &[
            ("--bacth 3", &["error: unknown flag `--bacth`; did you mean `--batch`?"]),
            ("--config run.toml", &["run.toml:2: unknown key `bacth`; did you mean `batch`?"]),
            ("--config none.toml", &["--config: cannot read none.toml: No such file"]),
            (
                "--schedule 1f1b",
                &["--schedule: needs a pp axis, such as --mesh pp=2", "leave it out"],
            ),
            ("--explain", &["--explain: comes with a later version"]),
            ("--device meta", &["--device: meta comes with a later version; use cpu or cuda"]),
            (
                "--nondeterministic",
                &["--nondeterministic: the CPU has no nondeterministic algorithms"],
            ),
            ("--no-graphs", &["--no-graphs: the CPU has no CUDA graphs"]),
            ("--threads 0", &["--threads: must be a whole number of at least 1, not `0`"]),
            ("--batch 0 --lr -1", &["the settings have 2 problems", "\n  - --batch", "\n  - --lr"]),
        ],
    );
}

#[test]
fn sharding_and_precision() {
    let workspace = Workspace::new();
    assert_refused(
        &workspace,
        &[
            (
                "--zero 1 --mesh dp=2",
                &[
                    "error: --zero: 1 shards over fsdp, ep and cp, whose degrees are 1 in --mesh dp=2; use --mesh fsdp=2, \
                     or --zero 0",
                ],
            ),
            (
                "--zero 3",
                &["whose degrees are 1 in --mesh dp=2,tp=2; use --mesh fsdp=2,tp=2, or --zero 0"],
            ),
            ("--zero 4", &["error: --zero: must be a whole number from 0 to 3, not `4`"]),
            (
                "--recompute some",
                &[
                    "error: --recompute: `some` is not a way to recompute: expected none, full, every=N (with N at \
                     least 1), sqrt or attn",
                ],
            ),
            (
                "--recompute every=0",
                &["error: --recompute: `every=0` is not a way to recompute: expected none, full, "],
            ),
            (
                "--micro-batches 0",
                &["error: --micro-batches: must be a whole number of at least 1, not `0`"],
            ),
            (
                "--memory-limit lots",
                &[
                    "error: --memory-limit: must be a number of bytes such as 2GB or 512MiB, not `lots`",
                ],
            ),
            ("--dtype f16", &["error: --dtype: must be one of f32, bf16, not `f16`"]),
            (
                "--reduce-dtype bf16",
                &[
                    "error: --reduce-dtype: bf16 would round away what --dtype f32 computes; use --dtype bf16, or \
                     leave it out",
                ],
            ),
        ],
    );
}

#[test]
fn optimizers() {
    let workspace = Workspace::new();
    assert_refused(
        &workspace,
        &[
            (
                "--optimizer adam",
                &[
                    "error: --optimizer: must be one of adamw, sgd, muon, not `adam`; did you mean adamw?",
                ],
            ),
            (
                "--optimizer sgd --betas 0.9,0.99",
                &[
                    "error: --betas: is no setting of --optimizer sgd; adamw and muon have it, so leave it out",
                ],
            ),
            (
                "--momentum 0.9",
                &[
                    "error: --momentum: is no setting of --optimizer adamw; sgd and muon have it, so leave it out",
                ],
            ),
            (
                "--optimizer sgd --momentum 1",
                &["error: --momentum: must be a number of at least 0 and below 1, not `1`"],
            ),
            ("--ema 1", &["error: --ema: must be a number of at least 0 and below 1, not `1`"]),
            ("--steps 5 --warmup 6", &["error: --warmup: 6 is more than --steps 5"]),
        ],
    );
}

#[test]
fn pipelines() {
    let workspace = Workspace::new();
    workspace.write("short.csv", b"0F0,0B0\n1F0\n");
    workspace.write("three.csv", b"0F0,0B0\n1F0,1B0\n2F0,2B0\n");
    workspace.write("times.json", b"{\"blocks.0\": 1.0}");
    let on = |line: &str| format!("{SMALL} --mesh pp=2 {line} --save out");
    assert_refused(
        &workspace,
        &[
            (
                &on("--schedule 2f2b"),
                &["--schedule: `2f2b` is not a schedule", "or a file FILE.csv"],
            ),
            (&on("--virtual-stages 3"), &["--virtual-stages: 1f1b has one stage per rank, not 3"]),
            (
                &on("--schedule interleaved --virtual-stages 4"),
                &["pp=2 x --virtual-stages 4 makes 8 stages, but `blocks` has Layers = 2"],
            ),
            (&on("--stages 1,2"), &["--stages: 1,2 are 2 stages of 3 layers; this mesh has 2"]),
            (&on("--stages 2"), &["--stages: 2 are 1 stage of 2 layers; this mesh has 2"]),
            (&on("--stages 2,0"), &["--stages: stage 1 of 2,0 has no layer"]),
            (&on("--stages evenly"), &["--stages: `evenly` does not say how to cut stages"]),
            (&on("--stages none.json"), &["--stages: none.json: No such file"]),
            (&on("--stages times.json"), &["times.json: has no time of `blocks.1`"]),
            (
                &on("--stages evenly --lr fast"),
                &["the settings have 2 problems", "--stages: `evenly` does not", "--lr"],
            ),
            (&on("--schedule none.csv"), &["--schedule none.csv: cannot read it: No such file"]),
            (
                &on("--schedule none.csv --stages none.json"),
                &["--schedule none.csv: cannot read it", "\n--stages: none.json: No such file"],
            ),
            (
                &on("--schedule short.csv --stages 1,2"),
                &[
                    "--schedule short.csv: rank 1",
                    "\n--stages: 1,2 are 2 stages of 3 layers; this mesh has 2, and `blocks` has 2",
                ],
            ),
            (&on("--schedule short.csv"), &["--schedule short.csv: rank 1"]),
            (&on("--schedule three.csv"), &["it has 3 rows, one per rank; use --mesh pp=3"]),
            (
                &on("--schedule interleaved --virtual-stages 1"),
                &["--virtual-stages: interleaved has two or more stages per rank, not 1"],
            ),
        ],
    );
}

#[test]
fn meshes() {
    let workspace = Workspace::new();
    let on =
        |mesh: &str| format!("{SMALL} --mesh {mesh} --save out --metrics m.jsonl --export-hf hf");
    assert_refused(
        &workspace,
        &[
            (&on("dp=2,,"), &["--mesh: entry 2 of `dp=2,,` is empty; write it as axis=degree"]),
            (&on("dpp=2"), &["there is no axis `dpp`; did you mean `dp`?"]),
            (&on("tp=0"), &["a degree is at least 1"]),
            (
                &on("fsdp=2,pp=2,cp=2,ep=2"),
                &[
                    "--mesh: ep=2 comes with a later version; leave it out, or use dp, fsdp, cp, tp and pp",
                ],
            ),
            (
                &on("dp=3"),
                &[
                    "--batch 4 does not divide into 3 equal parts (dp=3 of --mesh); use a multiple of 3",
                ],
            ),
            (
                &on("dp=2,fsdp=2 --micro-batches 2"),
                &[
                    "--batch 4 does not divide into 8 equal parts (dp=2 of --mesh x fsdp=2 of --mesh x \
                     --micro-batches 2); use a multiple of 8",
                ],
            ),
            (
                &on("1 --micro-batches 3"),
                &[
                    "--batch 4 does not divide into 3 equal parts (--micro-batches 3); use a multiple of 3",
                ],
            ),
            (
                &on("dp=100000"),
                &[
                    "100000 ranks (dp=100000) with 1 thread each are too many",
                    "at most 1024 threads",
                ],
            ),
            (&on("tp=2 --threads 4000000000").replace("--threads 1 ", ""), &["are too many"]),
            (
                &on("tp=4").replace("--ffn 48", "--ffn 50"),
                &[
                    "the model cannot be built, for 5 reasons:",
                    "\nuse a --mesh whose degrees divide these sizes, or other sizes; this mesh is tp=4",
                    "\n  - `blocks.*.attn.k`: KvHeads = 2 is not divisible by tp = 4",
                    "\n  - `blocks.*.attn.v`: KvHeads = 2 is not divisible by tp = 4",
                    "\n  - `blocks.*.mlp.down`: Ffn = 50 is not divisible by tp = 4",
                    "\n  - `blocks.*.mlp.gate`: Ffn = 50 is not divisible by tp = 4",
                    "\n  - `blocks.*.mlp.up`: Ffn = 50 is not divisible by tp = 4",
                ],
            ),
            (
                &on("tp=3"),
                &[
                    "`blocks.*.attn.q`: Heads = 4 is not divisible by tp = 3",
                    "`blocks.*.attn.k`: KvHeads = 2",
                ],
            ),
        ],
    );
}

#[test]
fn context_parallelism() {
    let workspace = Workspace::new();
    let on = |flags: &str| format!("{SMALL} --save out --metrics m.jsonl {flags}");
    let long = |seq: &str, flags: &str| on(flags).replace("--seq 16", &format!("--seq {seq}"));
    assert_refused(
        &workspace,
        &[
            (
                &long("20", "--mesh cp=4"),
                &[
                    "--seq: 20 does not divide into 2 x cp = 8 chunks (zig-zag order of cp=4); use a multiple of 8",
                ],
            ),
            (&long("1", "--mesh cp=2"), &["--seq: 1 does not divide into 2 x cp = 4 chunks"]),
            (
                &on("--mesh cp=8 --cp ulysses"),
                &[
                    "`blocks.*.attn.core`: 4 query heads of a rank cannot be exchanged among 8 ranks of cp",
                    "`--cp ring`",
                ],
            ),
            (
                &on("--mesh cp=4,tp=2 --cp ulysses"),
                &[
                    "`blocks.*.attn.core`: 2 query heads of a rank cannot be exchanged among 4 ranks of cp",
                ],
            ),
            (
                &on("--mesh cp=4 --cp hybrid=3"),
                &[
                    "`hybrid=3` exchanges heads among groups of 3 ranks, but cp = 4 is not divisible by 3",
                ],
            ),
            (
                &on("--mesh cp=4,tp=3 --cp hybrid=3"),
                &[
                    "the model cannot be built, for ",
                    "`blocks.*.attn.q`: Heads = 4 is not divisible by tp = 3",
                    "`hybrid=3` exchanges heads among groups of 3 ranks",
                ],
            ),
            (
                &on("--mesh dp=2 --cp ulysses"),
                &["--cp: ulysses is a style of ranks that share sequences", "use --mesh cp=2, or"],
            ),
            (&on("--mesh cp=2 --cp hybrid=0"), &["--cp: `hybrid=0`: `hybrid=N` takes the number"]),
            (&on("--mesh cp=2 --cp ring=2"), &["--cp: `ring=2`: `ring` takes no number"]),
            (
                &on("--mesh cp=2 --cp spiral --lr fast"),
                &["the settings have 2 problems", "--cp: `spiral` is no style", "--lr"],
            ),
            (
                &on("--mesh cp=100000"),
                &["100000 ranks (cp=100000) with 1 thread each are too many"],
            ),
            (
                &on("--mesh auto=7"),
                &[
                    "--mesh: no mesh of 7 ranks fits",
                    "dp=7: --batch 4 does not divide into 7",
                    "cp=7: --seq",
                ],
            ),
            (
                &on("--mesh cp=2,tp=2 --mesh-order cp"),
                &[
                    "--mesh-order: the mesh has tp=2, which has no place in the order; name `tp` too",
                ],
            ),
            (&on("--mesh cp=2 --mesh-order cp,cp"), &["--mesh-order: ", "`cp`", "twice"]),
            (&on("--mesh cp=2 --mesh-order cp,sp"), &["--mesh-order: ", "`sp`"]),
            (&on("--mesh cp=2 --mesh-order ,"), &["--mesh-order: ", "is empty"]),
        ],
    );
}

#[test]
fn sizes_beyond_memory() {
    let workspace = Workspace::new();
    for flag in ["hidden", "layers", "ffn", "vocab", "batch", "seq"] {
        let line = format!("--{flag} 4000000000");
        let parts = ["not enough memory: the run needs at least ", " are available. Each of "];
        assert_refused(&workspace, &[(&line, &parts)]);
    }
}

#[test]
fn memory_limits_below_the_plan() {
    let workspace = Workspace::new();
    let line = format!("{SMALL} --mesh dp=2 --save out --metrics m.jsonl");
    assert_refused(
        &workspace,
        &[
            (
                &format!("{line} --memory-limit 100kB"),
                &[
                    "error: --memory-limit: 100 kB are too few: each rank needs at least ",
                    "\n  parameters ",
                    "\n  gradients ",
                    "\n  optimizer ",
                    "\n  activations ",
                    "\n  workspace ",
                    "\nwhat takes less: more --micro-batches, --recompute full, more fsdp or tp ranks, ",
                ],
            ),
            // Refused by the sizes alone, before the model is declared.
            (&format!("{line} --memory-limit 1"), &["--memory-limit: 1 B are too few"]),
        ],
    );
}

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
    let small_vocab = format!("--init-from {} --data text.txt", fixture("untied_mha").display());
    assert_refused(
        &workspace,
        &[
            (&on("none.txt"), &["--data: cannot read none.txt: No such file"]),
            (&on("text.txt/below"), &["--data: cannot read text.txt/below: Not a directory"]),
            (&on("folder"), &["--data: cannot read folder: is a directory"]),
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
            serde_json::json!({ "rope_type": "longrope", "rope_theta": 1e4 }),
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
            (&from("gone"), &["gone: the folder has neither model.safetensors nor"]),
            (&from("json"), &["json/config.json: not JSON: "]),
            (&from("list"), &["list/config.json: not JSON: "]),
            (
                &from("rope"),
                &[
                    "rope/config.json: rope_parameters.rope_type is \"longrope\"; only \"default\", ",
                ],
            ),
            (&from("bias"), &["bias/config.json: attention_bias is true; only"]),
            (
                &from("shape"),
                &["\n  - model.layers.0.mlp.up_proj.weight has shape [96, 64], expected [128, 64]"],
            ),
            (&from("layers"), &["\n  - missing: model.layers.2.mlp.up_proj.weight"]),
            (
                &from("endless"),
                &["num_hidden_layers is 4000000000, but the weights hold 20 tensors in all"],
            ),
            (
                &from("shards"),
                &["cannot read shards/model-00003-of-00005.safetensors: No such file"],
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
fn output_paths_that_cannot_be_written() {
    let workspace = Workspace::new();
    std::fs::create_dir(workspace.path("folder")).unwrap();
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
            (&with("--save /proc/out"), &["--save: cannot create /proc/out: "]),
            (
                &with("--export-hf text.txt/hf"),
                &["--export-hf: cannot create text.txt/hf: Not a dir"],
            ),
            (&with("--metrics folder"), &["--metrics: cannot open folder: Is a directory"]),
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
                &[
                    "out/step-00000002 are not those of this model",
                    "missing: params.blocks.2.",
                    "more",
                ],
            ),
            (
                &resume("out/latest").replace("--ffn 48", "--ffn 64"),
                &["params.blocks.0.mlp.down.weight has shape [48, 32], expected [64, 32]"],
            ),
            (
                &resume("out/latest --seed 7 --order shuffled").replace("text.txt", "other.txt"),
                &[
                    "--resume:",
                    "\n  - --data: other.txt with 45 tokens is not",
                    "\n  - --order: ",
                    "\n  - --seed: 7",
                ],
            ),
            (
                &resume("out/latest").replace("--steps 5", "--steps 2"),
                &[
                    "out/step-00000002 has 2 steps done, and --steps 2 counts",
                    "use a larger --steps",
                ],
            ),
        ],
    );
    assert_eq!(workspace.read("m.jsonl"), metrics);
}
