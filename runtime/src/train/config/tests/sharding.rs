//! Settings of sharding, pipelines, recomputation and memory.

use crate::schedule::ScheduleKind;

use super::*;

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
