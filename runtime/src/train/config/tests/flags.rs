//! Flags and their defaults.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::DType;
use crate::optim::{AdamWOptions, MuonOptions};
use crate::tensor::Checks;
use crate::train::{Decay, LrSchedule};

use super::*;

#[test]
fn default_run_has_four_ranks() {
    let config = parse("").unwrap();
    assert_eq!(config.mesh.to_string(), "dp=2,tp=2");
    assert_eq!((config.batch, config.seq, config.steps, config.seed), (16, 128, 600, 0));
    assert_eq!(config.order, Order::Sequential);
    let sizes = ModelSizes {
        hidden: 128,
        layers: 4,
        heads: 4,
        kv_heads: None,
        ffn: None,
        vocab: 256,
        tied: false,
        experts: None,
        top_k: None,
    };
    assert_eq!(config.model, ModelSource::New(sizes));
    let adamw = AdamWOptions { betas: (0.9, 0.95), eps: 1e-8, weight_decay: 0.1 };
    assert_eq!(rule_of(&config), format!("{adamw:?}"));
    assert_eq!(config.optimizer.ema, None);
    assert_eq!((config.zero, config.recompute), (ZeroStage::Replicated, None));
    assert_eq!((config.micro_batches, config.memory_limit), (1, None));
    assert_eq!((config.dtype, config.reduce_dtype), (Precision::F32, Precision::F32));
    assert_eq!((config.grad_dtype, config.state_dtype), (Precision::F32, Precision::F32));
    assert_eq!(config.optimizer.clip, Some(1.0));
    assert_eq!((config.data, config.save, config.resume), (None, None, None));
}

#[test]
fn device_decides_defaults() {
    let dtype = |flags: &str| parse(flags).unwrap().dtype;
    assert_eq!((dtype(""), dtype("--device cuda")), (Precision::F32, Precision::Bf16));
    assert_eq!(dtype("--device cuda --dtype f32"), Precision::F32);
    assert_contains(
        &refusal("--nondeterministic"),
        "--nondeterministic: the CPU has no nondeterministic algorithms; use --device cuda",
    );
    assert_contains(
        &refusal("--no-graphs"),
        "--no-graphs: the CPU has no CUDA graphs; use --device cuda",
    );
    let graphs = |flags: &str| parse(flags).unwrap().graphs;
    assert_eq!(["", "--device cuda"].map(graphs), [false, true]);
}

#[test]
fn flags_reach_their_fields() {
    let config = parse(
        "--mesh fsdp=2,cp=2 --device cuda --nondeterministic --no-graphs --dtype bf16 --reduce-dtype bf16 \
         --grad-dtype bf16 --state-dtype bf16 --zero 2 \
         --comm-timeout 1m30s --recompute every=2 --cp hybrid=2 --micro-batches 4 --memory-limit 1.5GiB --threads 3 \
         --hidden 64 --layers 2 --heads 8 --kv-heads 2 --ffn 100 --vocab 300 --tied --experts 6 --top-k 3 \
         --family qwen3 --data d.bin --tokenizer t.json \
         --text-key body --token-dtype u32 --order shuffled --documents 7 --pack --mask-borders --batch 8 --seq 32 \
         --steps 50 --seed 7 --lr 3e-4 --optimizer muon --momentum 0.8 --ema 0.999 --lr-schedule wsd --warmup 5 \
         --min-lr 1e-5 --betas 0.8,0.99 --eps 1e-6 \
         --weight-decay 0 --clip 0 --explain --save out --save-every 10 --save-async --keep 2 --max-failed-saves 5 \
         --resume out/latest --new-data --stop-after 3h50m --export-hf hf --metrics m.jsonl --trace t.json \
         --on-nan skip=3 --check-replicas 25 \
         --report r.html --flight fl --stage-times s.json --tensorboard tb --prometheus n.prom --quiet \
         --sample-tokens 0 --checks off --keep-best \
         --eval-data v.bin \
         --eval-every 9 --eval-steps 3 --early-stop 2",
    )
    .unwrap();
    let expected = Config {
        config_file: None,
        mesh: "fsdp=2,cp=2".parse().unwrap(),
        zero: ZeroStage::Gradients,
        pipeline: None,
        micro_batches: 4,
        recompute: Some(RecomputeOverride::Every(2.try_into().unwrap())),
        context: Some(ContextStyle::Hybrid(Some(2))),
        memory_limit: Some(3 << 29),
        device: DeviceChoice::Cuda,
        nondeterministic: true,
        graphs: false,
        dtype: Precision::Bf16,
        reduce_dtype: Precision::Bf16,
        grad_dtype: Precision::Bf16,
        state_dtype: Precision::Bf16,
        checks: Checks::Off,
        check_replicas: Some(25),
        threads: Some(3),
        model: ModelSource::New(ModelSizes {
            hidden: 64,
            layers: 2,
            heads: 8,
            kv_heads: Some(2),
            ffn: Some(100),
            vocab: 300,
            tied: true,
            experts: Some(6),
            top_k: Some(3),
        }),
        family: Some("qwen3".into()),
        accept_keys: Vec::new(),
        balance: None,
        z_loss: None,
        data: Some("d.bin".into()),
        rows: None,
        task: None,
        tokenizer: Some("t.json".into()),
        text_key: Some("body".into()),
        token_dtype: Some(Encoding::U32),
        order: Order::Shuffled,
        documents: Some(DocumentOptions { end: 7, packs: true, masks_borders: true }),
        batch: 8,
        seq: 32,
        steps: 50,
        seed: 7,
        new_data: true,
        eval_fraction: None,
        validation: Some(ValidationConfig {
            data: Some("v.bin".into()),
            every: 9,
            steps: Some(3),
            early_stop: Some(2),
        }),
        optimizer: OptimizerConfig {
            lr: LrSchedule { decay: Decay::Wsd, peak: 3e-4, min: 1e-5, warmup: 5, steps: 50 },
            choice: OptimizerChoice {
                name: "muon".into(),
                flags: OptimizerFlags {
                    momentum: Some(0.8),
                    betas: Some((0.8, 0.99)),
                    eps: Some(1e-6),
                    weight_decay: 0.0,
                },
                rule: Arc::new(MuonOptions::default()),
            },
            weight_decay: 0.0,
            clip: None,
            ema: Some(0.999),
        },
        local_sgd: None,
        on_nan: OnNan::Skip(3.try_into().unwrap()),
        comm_timeout: TimeLimit(Duration::from_secs(90)),
        heartbeat_limit: TimeLimit(Duration::from_secs(60)),
        preflight: None,
        save: Some(SaveConfig {
            dir: "out".into(),
            every: Some(10),
            asynchronous: true,
            keep: Some(2),
            best: true,
            max_failed: 5,
        }),
        save_cache: None,
        data_cache: None,
        data_cache_size: None,
        resume: Some("out/latest".into()),
        resume_auto: false,
        stop_after: Some(TimeLimit(Duration::from_secs(13_800))),
        export_hf: Some("hf".into()),
        export_dtype: None,
        export_shard_size: None,
        flight: Some("fl".into()),
        metrics: Some("m.jsonl".into()),
        tensorboard: Some("tb".into()),
        prometheus: Some("n.prom".into()),
        noise_scale: false,
        quiet: true,
        log_every: TimeLimit(Duration::from_secs(10)),
        trace: Some("t.json".into()),
        stage_times: Some("s.json".into()),
        record: None,
        explain: Some(OutputForm::Text),
        simulate: None,
        cluster: None,
        report: Some("r.html".into()),
        tokens: None,
        out: None,
        sample_tokens: 0,
    };
    assert_eq!(config, expected);
    let adamw = AdamWOptions { betas: (0.8, 0.99), eps: 1e-6, weight_decay: 0.0 };
    assert_eq!(rule_of(&config), format!("{:?}", MuonOptions { momentum: 0.8, adamw }));
    assert_eq!(config.threads_per_rank(100), 3);
    assert_eq!(parse("").unwrap().threads_per_rank(10_000), 1);
    let config = parse("--init-from llama --lr=0.5").unwrap();
    assert_eq!(config.model, ModelSource::InitFrom("llama".into()));
    assert_eq!((config.mesh, config.optimizer.lr.peak), (MeshShape::SINGLE, 0.5));
}

#[test]
fn rank_settings_follow_from_flags() {
    let line = "--mesh fsdp=2 --zero 1 --dtype bf16 --grad-dtype bf16 --memory-limit 1kB --seed 5 --checks first";
    let settings = Settings {
        seed: 5,
        compute: DType::Bf16,
        reduce: DType::F32,
        gradients: DType::Bf16,
        state: DType::F32,
        zero: ZeroStage::Optimizer,
        memory_limit: Some(1000),
        logits_limit: None,
        keeps_last_units: true,
        checks: Checks::FirstStep,
        row_losses: false,
        local_replicas: false,
        first_squares: false,
    };
    assert_eq!(parse(line).unwrap().settings(), settings);
}

#[test]
fn penalties_of_routers_are_read() {
    let read = |line: &str| parse(line).map(|config| (config.balance, config.z_loss));
    assert_eq!(read("").unwrap(), (None, None));
    assert_eq!(read("--balance none --z-loss 0").unwrap(), (Some(LoadBalancing::Off), Some(0.0)));
    let loss = Some(LoadBalancing::Loss(0.05));
    assert_eq!(read("--balance batch=0.05 --z-loss 1e-3").unwrap(), (loss, Some(1e-3)));
    assert_eq!(read("--balance loss=0.05").unwrap(), (loss, None));
    let bias = Some(LoadBalancing::Bias(1e-3));
    assert_eq!(read("--balance bias=0.001").unwrap(), (bias, None));
    for (line, reason) in [
        ("--balance batch", "`batch` has no weight of at least 0; write for example batch=0.01"),
        ("--balance batch=-1", "`batch=-1` has no weight"),
        ("--balance batch=inf", "`batch=inf` has no weight"),
        ("--balance none=1", "`none=1` is not known; use none, batch=X or bias=X"),
        ("--balance 0.01", "`0.01` is not known"),
        ("--balance sequence=1", "`sequence=1` is not known; use none, batch=X or bias=X"),
        ("--balance bias", "`bias` has no rate of at least 0; write for example bias=0.001"),
        ("--balance bias=-0.1", "`bias=-0.1` has no rate"),
        ("--z-loss -1", "--z-loss"),
    ] {
        let text = read(line).unwrap_err().to_string();
        assert!(text.contains(reason), "no `{reason}` in {text}");
    }
}

#[test]
fn accepted_keys_are_those_of_a_folder() {
    let read = |line: &str| parse(line).map(|config| config.accept_keys);
    assert_eq!(read("--init-from a --accept-keys x,y.z").unwrap(), ["x", "y.z"]);
    let text = read("--accept-keys x").unwrap_err().to_string();
    assert!(text.contains("--accept-keys: needs --init-from DIR"), "{text}");
    let text = read("--init-from a --accept-keys x,,y").unwrap_err().to_string();
    assert!(text.contains("--accept-keys: `x,,y` has a key without a name"), "{text}");
}

#[test]
fn simulations_are_of_gpus() {
    let config = parse("--simulate h100x8 --mesh fsdp=8 --tokens 15.6T --out json").unwrap();
    let on = config.simulate.as_ref().unwrap();
    assert_eq!((&*on.cluster.name, on.gpus), ("h100-dgx", 8));
    assert_eq!((config.device, config.dtype), (DeviceChoice::Cuda, Precision::Bf16));
    assert_eq!((config.tokens, config.out), (Some(15.6e12), Some(OutputForm::Json)));
    assert!(config.is_dry_run() && config.writes_nothing());
    for (line, reason) in [
        (
            "--simulate h100x8 --mesh dp=4",
            "--mesh: the mesh has 4 ranks, but 8 GPUs of h100-dgx are simulated",
        ),
        (
            "--simulate h100x8 --mesh dp=8 --device cpu",
            "--simulate: simulates GPUs; leave out --device cpu",
        ),
        ("--simulate h100x8 --mesh dp=8 --explain", "--simulate: prints another report"),
        (
            "--simulate h100x8 --mesh dp=8 --record r.json",
            "--record: a dry run has no times to record",
        ),
        ("--explain --record r.json", "--record: a dry run has no times to record"),
        (
            "--explain --batch 65537 --micro-batches 65537",
            "--micro-batches: 65537 are too many for --explain, which computes each of them; use at most 65536",
        ),
        ("--simulate h100x17", "nodes of 8 GPUs do not divide 17"),
        ("--simulate h10x8", "unknown cluster `h10`; did you mean `h100`?"),
        ("--simulate h100", "the number of GPUs is missing"),
        ("--tokens 1T", "--tokens: needs --simulate CLUSTERxN"),
        ("--simulate h100x8 --mesh dp=8 --tokens 0", "a number of tokens such as 300B or 15.6T"),
        ("--simulate h100x8 --mesh dp=8 --tokens 3X", "a number of tokens such as 300B or 15.6T"),
    ] {
        let text = parse(line).unwrap_err().to_string();
        assert!(text.contains(reason), "no `{reason}` in {text}");
    }
}

/// In a graph, messages would wait for the gradient reductions before them.
#[test]
fn pipelines_that_reduce_gradients_are_eager() {
    for (mesh, graphs) in [
        ("dp=2", true),
        ("pp=2", true),
        ("pp=2,tp=2", true),
        ("pp=2,dp=2", false),
        ("pp=2,cp=2", false),
    ] {
        let config = parse(&format!("--device cuda --mesh {mesh}")).unwrap();
        assert_eq!(config.graphs, graphs, "{mesh}");
    }
}

#[test]
fn all_contract_flags_are_known() {
    let contract = "mesh device dtype zero recompute schedule virtual-stages stages micro-batches cp init-from data \
        tokenizer optimizer momentum ema reduce-dtype memory-limit order documents pack mask-borders batch seq steps \
        seed lr lr-schedule warmup min-lr betas eps weight-decay clip save save-every keep max-failed-saves resume \
        stop-after on-nan check-replicas export-hf metrics tensorboard trace explain config balance z-loss simulate \
        tokens out architecture grad-dtype state-dtype";
    for name in contract.split_whitespace() {
        assert!(Flag::find(name).is_some(), "--{name} is not known");
    }
}

#[test]
fn help_shows_every_flag_in_groups() {
    let Err(ConfigError::Asked(help)) = parse("--help") else { panic!("no help") };
    for flag in FLAGS {
        assert_contains(&help, &format!("--{}", flag.name));
    }
    assert_contains(&help, "Optimizer:\n");
    assert_contains(&help, "[default: 0.9,0.95]");
    let Err(ConfigError::Asked(version)) = parse("--version") else { panic!("no version") };
    assert_contains(&version, env!("CARGO_PKG_VERSION"));
}

#[test]
fn defaults_are_valid() {
    for flag in FLAGS.iter().filter(|flag| !flag.default.is_empty()) {
        let explicit = parse(&format!("--{} {}", flag.name, flag.default)).unwrap();
        assert_eq!(explicit, parse("").unwrap(), "--{}", flag.name);
    }
}

#[test]
#[cfg(unix)]
fn only_paths_may_be_invalid_utf_8() {
    use std::os::unix::ffi::OsStringExt;
    let odd = OsString::from_vec(vec![b'a', 0xff]);
    let args = |flag: &str| ["train".into(), OsString::from(flag), odd.clone()];
    assert_eq!(Config::parse(args("--data")).unwrap().data, Some(odd.clone().into()));
    let text = Config::parse(args("--order")).unwrap_err().to_string();
    assert_contains(&text, "--order: a\u{fffd} is not valid UTF-8");
}

#[test]
fn a_run_resumes_from_its_own_folder() {
    let resume = |line: &str| parse(line).map(|config| (config.resume, config.resume_auto));
    let [out, auto] = ["out", "./auto"].map(|dir| Some(dir.into()));
    assert_eq!(resume("--save out --resume auto").unwrap(), (out, true));
    assert_eq!(resume("--save out --resume ./auto").unwrap(), (auto, false));
    assert_eq!(resume("--save out").unwrap(), (None, false));
    let error = resume("--resume auto").unwrap_err().to_string();
    assert!(error.starts_with("--resume: auto needs --save DIR, "), "{error}");
}

#[test]
fn a_gpu_is_a_device_of_cuda() {
    assert_eq!(parse("--device gpu").unwrap().device, DeviceChoice::Cuda);
}

#[test]
fn only_close_words_are_suggested() {
    let names = || FLAGS.iter().map(|flag| flag.name);
    assert_eq!(Flag::nearest("save-evry", names()), Some("save-every"));
    assert_eq!(Flag::nearest("bacth", names()), Some("batch"));
    assert_eq!(Flag::nearest("learning-rate", names()), None);
}

#[test]
fn flags_are_unique_and_have_help() {
    for (i, flag) in FLAGS.iter().enumerate() {
        assert!(!flag.help.is_empty(), "--{}", flag.name);
        assert!(FLAGS[..i].iter().all(|other| other.name != flag.name), "--{}", flag.name);
    }
}
