//! Copies of parameters that differ.

use crate::models::llama::Llama;
use crate::os::exit_code::FAILS_AGAIN;
use crate::tensor::Rank;
use crate::train::{Config, Error, Result, StepObserver, StepReport, Trainer};

const SMALL: &str =
    "t --steps 5 --layers 2 --hidden 16 --heads 2 --ffn 16 --seq 8 --batch 4 --sample-tokens 0";

/// Changes the last bit of an element of a parameter after a step, on one rank.
struct FlippedBit {
    rank: usize,
    path: &'static str,
    step: u64,
}

impl StepObserver for FlippedBit {
    fn end(&mut self, report: &StepReport<'_>) -> Result<()> {
        let FlippedBit { rank, path, step } = *self;
        if (report.rank.index(), report.step) == (rank, step) {
            let units = report.rank.units();
            let params = units.iter().flat_map(|unit| unit.params()).collect::<Vec<_>>();
            let param = params.iter().find(|param| param.path() == path).expect("a parameter");
            let mut values = param.to_local_vec();
            values[3] = f32::from_bits(values[3].to_bits() ^ 1);
            param.write(&values);
        }
        Ok(())
    }
}

fn train(flags: &str, flipped: Option<(usize, &'static str, u64)>) -> Result<()> {
    let config = Config::parse(format!("{SMALL} {flags}").split_whitespace()).unwrap();
    let observer =
        move |_: &Rank| Ok(flipped.map(|(rank, path, step)| FlippedBit { rank, path, step }));
    Trainer::<Llama>::new(config)?.on_step(observer).train().map(drop)
}

#[test]
fn equal_copies_are_no_difference() {
    for mesh in [
        "1",
        "dp=2,tp=2",
        "dp=2,fsdp=2",
        "dp=2,tp=2 --mesh-order tp,dp",
        "cp=2,tp=2",
        "fsdp=2 --zero 1",
        "pp=2,dp=2 --micro-batches 2",
        "pp=2 --tied --micro-batches 2",
    ] {
        train(&format!("--mesh {mesh} --check-replicas 2"), None)
            .unwrap_or_else(|error| panic!("{mesh}: {error}"));
    }
}

/// Replicas along `dp`, values that are whole along `tp`, and a weight that is tied across stages.
#[test]
fn a_flipped_bit_is_found() {
    let norm = "blocks.1.attn_norm.weight";
    for (mesh, rank, path, groups) in [
        ("dp=2", 1, "blocks.0.attn.q.weight", "rank 0 against rank 1"),
        ("dp=2,tp=2", 3, "blocks.0.attn.q.weight", "rank 1 against rank 3"),
        ("dp=2,tp=2", 2, norm, "ranks 0, 1 and 3 against rank 2"),
        ("cp=2 --zero 0", 0, norm, "rank 0 against rank 1"),
        ("pp=2,dp=2 --micro-batches 2", 1, "embed.weight", "rank 0 against rank 1"),
        ("pp=2 --tied --micro-batches 2", 1, "embed.weight", "rank 0 against rank 1"),
    ] {
        // Without the check, the ranks train on, or fail for another reason.
        let flags = format!("--mesh {mesh} --check-replicas 2");
        let error = train(&flags, Some((rank, path, 4))).expect_err(mesh);
        let Error::ReplicasDiffer(text) = &error else { panic!("{mesh}: {error}") };
        let expected = format!("--check-replicas: after step 4, `{path}` of the unit `");
        assert!(text.starts_with(&expected), "{mesh}: {text}");
        let expected = format!(
            "that hold the same part of it: {groups}; training stopped, nothing is saved. "
        );
        assert!(text.contains(&expected), "{mesh}: {text}");
        assert_eq!(error.exit_code(), FAILS_AGAIN);
    }
}
