//! All messages about settings.

use super::*;
use std::sync::Arc;

use crate::backend::DType;
use crate::optim::{AdamWOptions, MuonOptions, SgdOptions};
use crate::schedule::ScheduleKind;
use crate::train::{Decay, LrSchedule};

fn parse(line: &str) -> Result<Config, ConfigError> {
    Config::parse(std::iter::once("train").chain(line.split_whitespace()))
}

/// The message of a command line that must be refused.
fn refusal(line: &str) -> String {
    match parse(line) {
        Err(error @ ConfigError::Invalid(_)) => error.to_string(),
        other => panic!("`{line}` gave {other:?}"),
    }
}

/// The outcome of a config file, which is called `run.toml` in its message.
fn with_file(text: &str, line: &str) -> Result<Config, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.toml");
    std::fs::write(&path, text).unwrap();
    let config = ["train".into(), "--config".into(), path.clone().into_os_string()];
    let parsed = Config::parse(config.into_iter().chain(line.split_whitespace().map(Into::into)));
    match parsed {
        Ok(config) => {
            assert_eq!(config.config_file, Some(path));
            Ok(Config { config_file: None, ..config })
        }
        Err(error) => Err(error.to_string().replace(&path.display().to_string(), "run.toml")),
    }
}

/// The update rule with its hyperparameters.
fn rule_of(config: &Config) -> String {
    format!("{:?}", config.optimizer.rule())
}

#[track_caller]
fn assert_contains(text: &str, part: &str) {
    assert!(text.contains(part), "no `{part}` in:\n{text}");
}

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
    };
    assert_eq!(config.model, ModelSource::New(sizes));
    let adamw = AdamWOptions { betas: (0.9, 0.95), eps: 1e-8, weight_decay: 0.1 };
    assert_eq!(rule_of(&config), format!("{adamw:?}"));
    assert_eq!(config.optimizer.ema, None);
    assert_eq!((config.zero, config.recompute), (ZeroStage::Replicated, None));
    assert_eq!((config.micro_batches, config.memory_limit), (1, None));
    assert_eq!((config.dtype, config.reduce_dtype), (Precision::F32, Precision::F32));
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
        "--mesh fsdp=2,cp=2 --device cuda --nondeterministic --no-graphs --dtype bf16 --reduce-dtype bf16 --zero 2 \
         --recompute every=2 --cp hybrid=2 --micro-batches 4 --memory-limit 1.5GiB --threads 3 --hidden 64 --layers 2 \
         --heads 8 --kv-heads 2 --ffn 100 --vocab 300 --tied --data d.bin --tokenizer t.json --order shuffled \
         --documents 7 --pack --mask-borders --batch 8 --seq 32 --steps 50 --seed 7 --lr 3e-4 --optimizer muon \
         --momentum 0.8 --ema 0.999 --lr-schedule wsd --warmup 5 --min-lr 1e-5 --betas 0.8,0.99 --eps 1e-6 \
         --weight-decay 0 --clip 0 --save out --save-every 10 --keep 2 --resume out/latest --export-hf hf --metrics \
         m.jsonl --trace t.json --stage-times s.json --sample-tokens 0",
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
        threads: Some(3),
        model: ModelSource::New(ModelSizes {
            hidden: 64,
            layers: 2,
            heads: 8,
            kv_heads: Some(2),
            ffn: Some(100),
            vocab: 300,
            tied: true,
        }),
        data: Some("d.bin".into()),
        tokenizer: Some("t.json".into()),
        order: Order::Shuffled,
        documents: Some(DocumentOptions { end: 7, packs: true, masks_borders: true }),
        batch: 8,
        seq: 32,
        steps: 50,
        seed: 7,
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
        save: Some(SaveConfig { dir: "out".into(), every: Some(10), keep: Some(2) }),
        resume: Some("out/latest".into()),
        export_hf: Some("hf".into()),
        metrics: Some("m.jsonl".into()),
        trace: Some("t.json".into()),
        stage_times: Some("s.json".into()),
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
fn styles_of_context_parallelism_need_its_axis() {
    let style = |line: &str| parse(line).unwrap().context;
    assert_eq!(style("--mesh dp=2"), None);
    assert_eq!(style("--mesh cp=2 --cp ulysses"), Some(ContextStyle::Ulysses));
    for (mesh, instead) in [("1", "cp=2"), ("dp=4,tp=2", "cp=4,tp=2"), ("fsdp=2", "fsdp=2,cp=2")] {
        assert_contains(
            &refusal(&format!("--mesh {mesh} --cp hybrid=2")),
            &format!(
                "--cp: hybrid=2 needs context-parallel ranks, but the degree of cp is 1 in --mesh {mesh}; use --mesh \
                 {instead}, or leave it out"
            ),
        );
    }
    // A mistake in the mesh is reported alone.
    assert!(!refusal("--mesh dp=x --cp ring").contains("share sequences"));
}

#[test]
fn zero_stage_defaults_to_the_mesh() {
    let zero = |line: &str| parse(line).unwrap().zero;
    assert_eq!(zero("--mesh dp=2"), ZeroStage::Replicated);
    assert_eq!(zero("--mesh dp=2 --zero 0"), ZeroStage::Replicated);
    assert_eq!(zero("--mesh dp=2,fsdp=2"), ZeroStage::Parameters);
    for level in ZeroStage::ALL {
        for mesh in ["fsdp=2,tp=2", "ep=2", "cp=2,tp=2"] {
            assert_eq!(zero(&format!("--mesh {mesh} --zero {}", level.number())), level, "{mesh}");
        }
    }
    for mesh in ["ep=2", "cp=2"] {
        assert_eq!(zero(&format!("--mesh {mesh}")), ZeroStage::Replicated, "{mesh}");
    }
}

#[test]
fn rank_settings_follow_from_flags() {
    let line = "--mesh fsdp=2 --zero 1 --dtype bf16 --memory-limit 1kB --seed 5";
    let settings = Settings {
        seed: 5,
        compute: DType::Bf16,
        reduce: DType::F32,
        zero: ZeroStage::Optimizer,
        memory_limit: Some(1000),
        logits_limit: None,
    };
    assert_eq!(parse(line).unwrap().settings(), settings);
}

#[test]
fn recomputation_prints_as_parsed() {
    for text in ["none", "full", "every=3", "sqrt", "attn"] {
        let recompute = parse(&format!("--recompute {text}")).unwrap().recompute;
        assert_eq!(recompute.unwrap().to_string(), text);
    }
}

#[test]
fn memory_limit_has_units() {
    for (text, bytes) in [
        ("1000000", 1_000_000),
        ("2GB", 2_000_000_000),
        ("512MiB", 512 << 20),
        ("1.5GiB", 3 << 29),
        ("0.5kB", 500),
        ("64KiB", 64 << 10),
        ("1TB", 1_000_000_000_000),
        ("16777215TiB", 16_777_215 << 40),
    ] {
        let config = parse(&format!("--memory-limit={text}")).unwrap();
        assert_eq!(config.memory_limit, Some(bytes), "{text}");
    }
    for text in ["0", "GB", "1.2.3GB", "-1GB", "2Gb", "1e9", "16777216TiB", "99999999.5TiB"] {
        let expected = format!(
            "--memory-limit: must be a number of bytes such as 2GB or 512MiB, not `{text}`"
        );
        assert_eq!(refusal(&format!("--memory-limit {text}")), expected);
    }
}

#[test]
fn each_optimizer_has_its_own_settings() {
    let rule = |line| rule_of(&parse(line).unwrap());
    let sgd = |momentum| SgdOptions { momentum, nesterov: false, weight_decay: 0.1 };
    assert_eq!(rule("--optimizer sgd"), format!("{:?}", sgd(0.9)));
    assert_eq!(rule("--optimizer sgd --momentum 0"), format!("{:?}", sgd(0.0)));
    let adamw = AdamWOptions { betas: (0.9, 0.95), eps: 1e-8, weight_decay: 0.1 };
    let muon = MuonOptions { momentum: 0.95, adamw };
    assert_eq!(rule("--optimizer muon"), format!("{muon:?}"));
    for (line, foreign) in [
        ("--optimizer sgd --betas 0.9,0.9 --eps 1e-6", "betas eps"),
        ("--momentum 0.9", "momentum"),
        ("--optimizer adamw --momentum 0.9", "momentum"),
    ] {
        let text = refusal(line);
        for flag in foreign.split(' ') {
            assert_contains(&text, &format!("--{flag}: is not a setting of --optimizer "));
        }
    }
    // One mistake, one message.
    let text = refusal("--optimizer adan --momentum 0.9");
    assert_eq!(
        text,
        "--optimizer: must be one of adamw, sgd, muon, not `adan`; did you mean adamw?"
    );
}

/// A registered optimizer: selected by name, with its own defaults, and checked.
#[test]
fn registered_optimizers_are_selected_by_name() {
    let plain = |flags: &OptimizerFlags| SgdOptions {
        momentum: flags.momentum(),
        nesterov: true,
        weight_decay: flags.weight_decay,
    };
    let own = |name| OptimizerEntry::new(name, plain).momentum(0.5);
    let parse = |optimizers: &Optimizers, line: &str| {
        let words = std::iter::once("train").chain(line.split_whitespace());
        Config::parse_with(words, optimizers).map_err(|error| error.to_string())
    };
    // In place of the one of the library, since a rule has one name.
    let nag = Optimizers::default().with(own("nag"));
    let message = parse(&nag, "--optimizer nag").unwrap_err();
    assert_eq!(message, "--optimizer: `nag` is registered for a rule named `sgd`");
    let message = parse(&nag, "--optimizer nga").unwrap_err();
    let known = "--optimizer: must be one of adamw, sgd, muon, nag, not `nga`";
    assert_contains(&message, known);
    let message = parse(&nag, "--optimizer adamw --momentum 0.9").unwrap_err();
    assert_contains(&message, "--optimizer adamw; sgd, muon and nag have it, so leave it out");
    let twice = Optimizers::default().with(own("sgd"));
    let message = parse(&twice, "").unwrap_err();
    assert_contains(&message, "--optimizer: two optimizers are registered as `sgd`");
    let out_of_range =
        OptimizerEntry::new("sgd", |_| SgdOptions { momentum: 1.5, ..SgdOptions::default() });
    let only = Optimizers { entries: vec![out_of_range] };
    let message = parse(&only, "--optimizer sgd").unwrap_err();
    let expected = "--optimizer: sgd: momentum must be at least 0 and below 1, not 1.5";
    assert_eq!(message, expected);
}

#[test]
fn flags_override_the_file() {
    let text = "
        mesh = { dp = 2, tp = 2 }
        lr-schedule = 'cosine'  # kebab-case
        min_lr = 1e-5           # snake_case
        lr = 1
        batch = 1_024
        betas = [0.9, 0.99]
        tied = true
        save = 'out'
        memory-limit = '2GB'
        recompute = 'every=2'
        zero = 0
        ema = 0.99
    ";
    let config = with_file(text, "--batch 4").unwrap();
    assert_eq!(config, {
        let flags = "--mesh dp=2,tp=2 --lr-schedule cosine --min-lr 1e-5 --lr 1 --batch 4 \
                     --betas 0.9,0.99 --tied --save out --memory-limit 2GB --recompute every=2 --zero 0 --ema 0.99";
        parse(flags).unwrap()
    });
    assert_eq!(with_file(text, "").unwrap().batch, 1024);
}

#[test]
fn files_have_integers_of_any_base() {
    let text = "
        batch = 0x10
        seq = 0b1000
        steps = 0o17
        lr = 0x1
        memory-limit = 0xff_ff
        mesh = { dp = 0x2 }
    ";
    let line = "--batch 16 --seq 8 --steps 15 --lr 1 --memory-limit 65535 --mesh dp=2";
    assert_eq!(with_file(text, "").unwrap(), parse(line).unwrap());
    let largest = with_file("steps = 0xfffffffffffffffff", "").unwrap_err();
    assert_contains(&largest, "run.toml:1: steps: must be at most 4294967295, not `295147905");
}

#[test]
fn files_may_turn_switches_off() {
    let text = "pack = false\nmask-borders = false";
    assert_eq!(with_file(text, "").unwrap(), parse("").unwrap());
    let documents = with_file(text, "--documents 7").unwrap().documents;
    assert_eq!(documents, Some(DocumentOptions { end: 7, packs: false, masks_borders: false }));
    let text = with_file("pack = true", "").unwrap_err();
    assert_eq!(text, "run.toml:1: pack: needs --documents ID");
}

#[test]
fn all_contract_flags_are_known() {
    let contract = "mesh device dtype zero recompute schedule virtual-stages stages micro-batches cp init-from data \
        tokenizer optimizer momentum ema reduce-dtype memory-limit order documents pack mask-borders batch seq steps seed lr lr-schedule warmup min-lr betas eps weight-decay clip save save-every \
        keep resume export-hf metrics trace explain config";
    for name in contract.split_whitespace() {
        let flag = Flag::find(name).unwrap_or_else(|| panic!("--{name} is not known"));
        let later = ["explain"];
        assert_eq!(flag.kind == FlagKind::Later, later.contains(&name), "--{name}");
    }
}

#[test]
fn reserved_flags_are_refused() {
    for flag in FLAGS.iter().filter(|flag| flag.kind == FlagKind::Later) {
        let expected = format!("{}: comes with a later version", flag.name);
        for line in [format!("--{}", flag.name), format!("--{} 1", flag.name)] {
            assert_eq!(refusal(&line).find(&expected), Some(2), "{}", refusal(&line));
        }
        let text = with_file(&format!("{} = 1", flag.name), "").unwrap_err();
        assert_eq!(text.find(&format!("run.toml:1: {expected}")), Some(0), "{text}");
    }
    assert_contains(
        &refusal("--device tpu"),
        "--device: must be one of cpu, cuda, meta, not `tpu`",
    );
    assert_contains(&refusal("--device meta"), "--device: meta comes with a later version");
}

#[test]
fn pipeline_settings() {
    let pipeline = |line: &str| parse(line).unwrap().pipeline;
    assert_eq!(pipeline("--mesh dp=2"), None);
    let of = |schedule, virtual_stages, stages: &str| {
        let stages = stages.parse().unwrap();
        Some(PipelineConfig { schedule, virtual_stages, stages })
    };
    let named = ScheduleSource::Named;
    assert_eq!(pipeline("--mesh pp=2"), of(named(ScheduleKind::OneFOneB), Some(1), "auto"));
    assert_eq!(
        pipeline("--mesh pp=2 --schedule interleaved --virtual-stages 3 --stages even"),
        of(named(ScheduleKind::Interleaved), Some(3), "even")
    );
    assert_eq!(
        pipeline("--mesh pp=2 --schedule zb-v"),
        of(named(ScheduleKind::ZeroBubbleV), Some(2), "auto")
    );
    assert_eq!(
        pipeline("--mesh pp=2 --schedule my.csv"),
        of(ScheduleSource::File("my.csv".into()), None, "auto")
    );
    for (line, message) in [
        ("--schedule 1f1b", "--schedule: needs a pp axis, such as --mesh pp=2"),
        ("--mesh dp=2 --virtual-stages 2", "--virtual-stages: needs a pp axis"),
        ("--mesh 1 --stages 2,2", "--stages: needs a pp axis"),
        (
            "--mesh pp=2 --schedule 2f2b",
            "--schedule: `2f2b` is not a schedule: choose one of gpipe",
        ),
        ("--mesh pp=2 --stages evenly", "--stages: `evenly` is not a cut into stages"),
        ("--mesh pp=2 --virtual-stages 2", "--virtual-stages: 1f1b has one stage per rank, not 2"),
        ("--mesh pp=2 --virtual-stages 0", "must be a whole number of at least 1, not `0`"),
        ("--mesh pp=2 --virtual-stages 9999999", "--virtual-stages: must be at most 4096"),
        (
            "--mesh pp=2 --schedule interleaved --virtual-stages 1",
            "--virtual-stages: interleaved has two or more stages per rank, not 1",
        ),
        (
            "--mesh pp=2 --schedule my.csv --virtual-stages 2",
            "--virtual-stages: cannot be combined with a schedule from a file",
        ),
    ] {
        assert_contains(&refusal(line), message);
    }
}

/// Stage 3 in a pipeline would gather the parameters for every micro-batch.
#[test]
fn pipelines_change_the_default_zero_stage() {
    assert_eq!(parse("--mesh fsdp=2").unwrap().zero, ZeroStage::Parameters);
    assert_eq!(parse("--mesh pp=2,fsdp=2").unwrap().zero, ZeroStage::Optimizer);
    assert_eq!(parse("--mesh pp=2,fsdp=2 --zero 3").unwrap().zero, ZeroStage::Parameters);
    assert_eq!(parse("--mesh pp=2,dp=2").unwrap().zero, ZeroStage::Replicated);
}

#[test]
fn malformed_command_lines() {
    for (line, message) in [
        ("--bacth 4", "unknown flag `--bacth`; did you mean `--batch`?"),
        ("--save-evry 4", "unknown flag `--save-evry`; did you mean `--save-every`?"),
        ("--batch_size 4", "unknown flag `--batch_size`; --help lists them all"),
        ("--lr_schedule wsd", "unknown flag `--lr_schedule`; did you mean `--lr-schedule`?"),
        ("-b 4", "`-b` is not a flag; every setting is written as --name value"),
        ("train.txt", "`train.txt` is not a flag"),
        ("--batch 4 --batch 5", "--batch was given twice"),
        ("--batch", "--batch needs a value, written as --batch <B>"),
        ("--batch --seq 4", "--batch needs a value"),
        ("--tied=yes", "--tied takes no value, but `yes` was given"),
    ] {
        assert_contains(&refusal(line), message);
    }
}

#[test]
fn values_out_of_range() {
    for (line, message) in [
        ("--batch 0", "--batch: must be a whole number of at least 1, not `0`"),
        ("--seq -3", "--seq: must be a whole number of at least 1, not `-3`"),
        ("--steps 1.5", "--steps: must be a whole number of at least 1, not `1.5`"),
        ("--seed x", "--seed: must be a whole number, not `x`"),
        ("--steps 99999999999999999999", "--steps: must be at most 4294967295, not `9999"),
        ("--seed 18446744073709551616", "--seed: must be at most 18446744073709551615, not"),
        (
            "--hidden 9223372036854775808",
            "--hidden: must be at most 4294967295, not `9223372036854775808`",
        ),
        ("--zero 4", "--zero: must be a whole number from 0 to 3, not `4`"),
        ("--zero -1", "--zero: must be a whole number from 0 to 3, not `-1`"),
        (
            "--recompute every",
            "--recompute: `every` is not a recomputation policy: expected none, full",
        ),
        (
            "--recompute every=x",
            "--recompute: `every=x` is not a recomputation policy: expected none",
        ),
        ("--ema 1.0", "--ema: must be a number of at least 0 and below 1, not `1.0`"),
        (
            "--momentum nan --optimizer sgd",
            "--momentum: must be a number of at least 0 and below 1",
        ),
        ("--threads 0", "--threads: must be a whole number of at least 1"),
        ("--lr -1e-3", "--lr: must be a number of at least 0, not `-1e-3`"),
        ("--lr nan", "--lr: must be a number of at least 0, not `nan`"),
        ("--clip inf", "--clip: must be a number of at least 0, not `inf`"),
        ("--betas 0.9", "--betas: must be two numbers in [0, 1) separated by a comma, not `0.9`"),
        ("--betas 0.9,1.0", "--betas: must be two numbers in [0, 1)"),
        ("--betas -0.1,0.9", "--betas: must be two numbers in [0, 1)"),
        ("--order random", "--order: must be one of sequential, shuffled, not `random`"),
        ("--documents end", "--documents: must be a whole number, not `end`"),
        ("--pack", "--pack: needs --documents ID"),
        ("--mask-borders", "--mask-borders: needs --documents ID"),
        ("--lr-schedule cosin", "not `cosin`; did you mean cosine?"),
        ("--device gpu", "--device: must be one of cpu, cuda, meta, not `gpu`"),
        ("--mesh dp=0", "--mesh: entry `dp=0`: a degree is at least 1"),
        ("--mesh pt=2", "--mesh: entry `pt=2`: unknown axis `pt`"),
        ("--data=", "--data: needs a path, but the value is empty"),
    ] {
        assert_contains(&refusal(line), message);
    }
}

#[test]
fn values_that_do_not_go_together() {
    for (line, message) in [
        ("--lr 1e-4 --min-lr 1e-3", "--min-lr: 0.001 is above --lr 0.0001"),
        ("--steps 5 --warmup 6", "--warmup: 6 is more than --steps 5"),
        ("--zero 1 --mesh 1", "in --mesh 1; use --mesh fsdp=2, or --zero 0"),
        ("--zero 2 --mesh dp=4,tp=2", "in --mesh dp=4,tp=2; use --mesh fsdp=4,tp=2, or --zero 0"),
        ("--reduce-dtype bf16", "--reduce-dtype: bf16 would discard the precision of --dtype f32"),
        ("--keep 2", "--keep: needs --save DIR"),
        ("--save-every 2", "--save-every: needs --save DIR"),
        ("--init-from x --hidden 4", "--hidden: cannot be combined with --init-from"),
        ("--init-from x --tied", "--tied: cannot be combined with --init-from"),
        ("--hidden 100 --heads 3", "--heads: 3 does not divide --hidden 100"),
        ("--heads 4 --kv-heads 3", "--kv-heads: 3 does not divide --heads 4"),
    ] {
        assert_contains(&refusal(line), message);
    }
}

#[test]
fn problems_are_reported_together() {
    let text = refusal("--batch 0 --lr -1 --keep 3 --schedule 1f1b");
    assert_contains(&text, "the settings have 4 problems\n  - --schedule");
    assert_eq!(text.lines().count(), 5, "{text}");
}

#[test]
fn problems_in_files_have_lines() {
    for (text, message) in [
        ("\nbacth = 4", "run.toml:2: unknown key `bacth`; did you mean `batch`?"),
        (
            "\n\n[train]\nbatch = 4",
            "run.toml:3: unknown table `train`; keys must be at the top level",
        ),
        ("batch = 'four'", "run.toml:1: `batch` must be a whole number, not the text \"four\""),
        ("batch = 4.5", "run.toml:1: `batch` must be a whole number, not the number 4.5"),
        ("lr = true", "run.toml:1: `lr` must be a number, not true"),
        ("betas = 0.9", "run.toml:1: `betas` must be two numbers, such as [0.9, 0.95], not the"),
        ("zero = '1'", "run.toml:1: `zero` must be a whole number, not the text \"1\""),
        ("ema = '1'", "run.toml:1: `ema` must be a number, not the text"),
        ("recompute = 1", "run.toml:1: `recompute` must be text in quotes, not the number 1"),
        (
            "recompute = { every = 2 }",
            "run.toml:1: `recompute` must be text in quotes, not a table",
        ),
        (
            "memory-limit = 1.5",
            "run.toml:1: `memory-limit` must be a number of bytes, such as 1_000_000 or",
        ),
        ("memory-limit = -1", "run.toml:1: memory-limit: must be a number of bytes such as 2GB"),
        ("betas = [0.9]", "run.toml:1: betas: must be two numbers in [0, 1)"),
        ("order = 1", "`order` must be one of \"sequential\", \"shuffled\", not the number 1"),
        ("tied = 1", "run.toml:1: `tied` must be true or false, not the number 1"),
        ("mesh = 4", "run.toml:1: `mesh` must be text such as \"dp=2,tp=2\", not the number 4"),
        ("mesh = { dp = 0 }", "run.toml:1: mesh: entry `dp=0`"),
        ("data = ['a']", "run.toml:1: `data` must be a path in quotes, not this list"),
        ("# one\nbatch = 0", "run.toml:2: batch: must be a whole number of at least 1, not `0`"),
        ("min-lr = 1\nmin_lr = 2", "run.toml:2: `min_lr` is set twice"),
        ("config = 'other.toml'", "run.toml:1: `config` cannot be set in a file"),
        ("seq = 4\nbatch = ", "run.toml:2: not valid TOML"),
    ] {
        assert_contains(&with_file(text, "").unwrap_err(), message);
    }
    let text = with_file("bacth = 4\nlr = 'x'", "").unwrap_err();
    assert_contains(&text, "2 problems\n  - run.toml:1: unknown key");
    let missing = refusal("--config /no/such/run.toml");
    assert_contains(&missing, "--config: cannot read /no/such/run.toml: No such file");
}

#[test]
fn help_shows_every_flag_in_groups() {
    let Err(ConfigError::Asked(help)) = parse("--help") else { panic!("no help") };
    for flag in FLAGS {
        assert_contains(&help, &format!("--{}", flag.name));
    }
    assert_contains(&help, "Optimizer:\n");
    assert_contains(&help, "[default: 0.9,0.95]");
    assert_contains(&help, "Flags of later versions, refused in this one:\n");
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
