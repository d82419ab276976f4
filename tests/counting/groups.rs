//! Process groups that the dry run of a step predicts, against those that a run uses.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use meshwright::backend::cpu::CpuBackend;
use meshwright::backend::{Backend, DType};
use meshwright::comm::{Engine, GroupMember, ProcessGroup, RankComms, RankExit};
use meshwright::layout::AxisSet;
use meshwright::mesh::MeshShape;
use meshwright::models::{Llama, Mixtral};
use meshwright::train::{Config, LanguageModel, Machine, Result, Trainer};

/// CPU ranks that refuse process groups which the run is not expected to use.
struct Strict {
    /// Largest number of groups that the run may expect.
    most: usize,
}

struct StrictEngine {
    inner: Arc<dyn Engine>,
    shape: MeshShape,
    expected: BTreeSet<AxisSet>,
}

impl Machine for Strict {
    fn backend(&self, _: usize) -> Result<Box<dyn Backend>> {
        Ok(Box::new(CpuBackend::new(1).expect("threads start")))
    }

    fn connect(&self, comms: RankComms, _: &dyn Backend) -> Result<RankComms> {
        let shape = *comms.shape();
        let expected = comms.expected_groups().expect("the run has a dry run");
        let members = |axes: &AxisSet| shape.group_of(comms.rank(), *axes);
        let expected: BTreeSet<AxisSet> =
            expected.iter().copied().filter(|axes| members(axes).len() > 1).collect();
        let distinct: BTreeSet<Vec<usize>> = expected.iter().map(members).collect();
        assert!(distinct.len() <= self.most, "{expected:?}");
        let inner = Arc::clone(comms.engine());
        Ok(comms.over(Arc::new(StrictEngine { inner, shape, expected })))
    }

    fn describe(&self) -> String {
        "strict ranks".to_owned()
    }

    fn memory(&self) -> Option<f64> {
        None
    }

    fn peak_flops(&self, _: DType) -> Option<f64> {
        None
    }
}

impl Engine for StrictEngine {
    fn process_group(&self, member: &Arc<GroupMember>) -> Arc<dyn ProcessGroup> {
        let axes = member.axes();
        let members = |axes| self.shape.group_of(0, axes);
        let is_expected = self.expected.iter().any(|known| members(*known) == members(axes));
        let is_world = member.size() == self.shape.world_size();
        assert!(member.size() == 1 || is_world || is_expected, "{axes} was not expected");
        self.inner.process_group(member)
    }

    fn leave(&self, exit: &RankExit) {
        self.inner.leave(exit);
    }

    fn extend_time_limit(&self, waits_for_files: bool) {
        self.inner.extend_time_limit(waits_for_files);
    }
}

fn train<M: LanguageModel>(most: usize, folder: &Path, steps: u64, words: &str) {
    let folder = folder.display();
    let words = format!(
        "train --hidden 16 --layers 4 --heads 4 --kv-heads 2 --ffn 16 --vocab 256 --seq 16 --batch 16 --steps {steps} \
         {words} --save {folder}/run --save-every 1 --export-hf {folder}/exported-{steps} \
         --metrics {folder}/metrics.jsonl --sample-tokens 2"
    );
    let config = Config::parse(words.split_whitespace()).unwrap_or_else(|error| panic!("{error}"));
    let trainer = Trainer::<M>::on(config, Box::new(Strict { most }));
    let run = trainer.and_then(Trainer::run);
    run.unwrap_or_else(|error| panic!("{words}: {error}"));
}

/// Every set of axes would make `2^n - 1` groups for `n` axes.
#[test]
fn runs_use_the_process_groups_of_their_dry_run() {
    for (most, words) in [
        (3, "--mesh dp=2,tp=2"),
        (3, "--mesh fsdp=2,tp=2 --zero 3 --ema 0.9 --optimizer muon"),
        (6, "--mesh dp=2,fsdp=2,cp=2 --cp ring --documents 10"),
        (6, "--mesh dp=2,cp=2,tp=2 --cp ulysses"),
        (3, "--mesh fsdp=2,pp=2 --zero 3 --micro-batches 2 --schedule interleaved"),
        (6, "--mesh dp=2,pp=2,tp=2 --micro-batches 2 --schedule zb-h1 --tied"),
        (15, "--mesh dp=2,fsdp=2,pp=2,cp=2,tp=2 --micro-batches 2"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        train::<Llama>(most, folder.path(), 3, words);
        let resumed = format!("{words} --resume {}/run/latest", folder.path().display());
        train::<Llama>(most, folder.path(), 4, &resumed);
    }
}

#[test]
fn mixtures_of_experts_use_few_of_many_process_groups() {
    for (most, words) in [
        (3, "--mesh fsdp=2,ep=2 --zero 3"),
        (16, "--mesh dp=2,fsdp=2,ep=2,pp=2,cp=2,tp=2 --micro-batches 2"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        train::<Mixtral>(most, folder.path(), 3, words);
    }
}
