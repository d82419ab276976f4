//! Checkpoints, Hugging Face folders and optimizers of pipeline stages, compared with the whole model.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::fixture::{TestModel, TinyGpt2, TinyLlama, build_tiny, on_ranks, plant_gradients};
use crate::checkpoint::hf::{HfFolder, HfFormat, HfKeys, KeyResult};
use crate::checkpoint::{
    Checkpoint, CheckpointWriter, Keep, RankFile, RunHistory, TensorBox, TensorSource, TrainState,
};
use crate::data::DataPosition;
use crate::nn::Built;
use crate::optim::{
    AdamWOptions, Ema, MuonOptions, Optimizer, OptimizerError, ParamGroups, Select, UpdateRule,
};
use crate::pipeline::sum_tied_gradients;
use crate::state_dict::{HfMapping, HfName, TrainingState, TrainingStateMut, export_hf, import_hf};
use crate::tensor::{ParamRef, Rank, ZeroStage};
use crate::train::ConfigKeys;
use meshwright_store::__internal::{load_checkpoint, with_shard_entries};

/// Training state of the stages of one rank.
pub(super) struct StageState<M> {
    pub(super) built: Built<M>,
    pub(super) optimizer: Optimizer,
    average: Ema,
}

impl<M: TestModel> StageState<M> {
    pub(super) fn new(rank: &Rank, rule: &Arc<dyn UpdateRule>, is_tied: bool) -> StageState<M> {
        let built = build_tiny::<M>(rank, is_tied);
        // Selects parameters of the first stage only.
        let groups = ParamGroups::default().decay(Select::path("embed.**"), false);
        let optimizer = Optimizer::with_groups(rank, &built.units, Arc::clone(rule), &groups);
        let average = Ema::new(rank, &built.units, 0.5);
        StageState { built, optimizer: optimizer.unwrap(), average }
    }

    /// Updates the parameters by planted gradients.
    fn train(&mut self, rank: &Rank, steps: usize) {
        for _ in 0..steps {
            let reduced = sum_tied_gradients(plant_gradients(rank, &self.built)).reduce();
            self.optimizer.step_and_average(0.1, &reduced, &mut self.average);
        }
    }

    fn write(&self, rank: &Rank, writer: &CheckpointWriter) -> RankFile {
        let (params, average) = (self.built.params(), Some(&self.average));
        let state = TrainingState { params: &params, optimizer: &self.optimizer, average };
        with_shard_entries(rank, &state, |entries| writer.write_rank(rank.index(), entries))
            .unwrap()
    }

    fn load(&mut self, checkpoint: &Checkpoint) {
        let params = self.built.params();
        let (optimizer, average) = (&mut self.optimizer, Some(&mut self.average));
        load_checkpoint(checkpoint, TrainingStateMut { params: &params, optimizer, average })
            .unwrap();
    }
}

pub(super) fn adamw() -> Arc<dyn UpdateRule> {
    Arc::new(AdamWOptions::default())
}

pub(super) fn train_state(mesh: &str) -> TrainState {
    let data = Some(DataPosition::without_data(0, 0));
    let (history, config) = (RunHistory::default(), Value::Null);
    TrainState {
        step: 2,
        seed: 7,
        mesh: mesh.into(),
        mesh_order: None,
        data,
        history,
        evaluation: None,
        skipped: 0,
        config,
        own_loop: None,
    }
}

/// Saves a checkpoint of the stages on a mesh: of a state loaded from `from`, or else trained for two steps.
fn save_on<M: TestModel>(
    (mesh, zero): (&str, ZeroStage),
    rule: &Arc<dyn UpdateRule>,
    from: Option<&Checkpoint>,
    is_tied: bool,
) -> Saved {
    let folder = tempfile::tempdir().unwrap();
    let writer = CheckpointWriter::begin_checkpoint(folder.path(), 2).unwrap();
    let files = on_ranks(mesh, zero, |rank| {
        let mut state = StageState::<M>::new(rank, rule, is_tied);
        match from {
            Some(checkpoint) => state.load(checkpoint),
            None => state.train(rank, 2),
        }
        state.write(rank, &writer)
    });
    writer.commit(files, train_state(mesh), Keep::default()).unwrap();
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    assert!(checkpoint.skipped().is_empty());
    Saved { checkpoint, _folder: folder }
}

/// An open checkpoint in a temporary folder.
struct Saved {
    checkpoint: Checkpoint,
    _folder: tempfile::TempDir,
}

impl Saved {
    /// Returns the bits of every tensor, and checks that each element is saved once.
    fn bits(&self) -> BTreeMap<String, Vec<u32>> {
        let manifest = self.checkpoint.manifest();
        let mut saved: BTreeMap<&str, usize> = BTreeMap::new();
        for shard in manifest.files.iter().flat_map(|file| &file.shards) {
            *saved.entry(&shard.tensor).or_default() += shard.tensor_box.len();
        }
        let bits = |(name, tensor): (&String, &crate::checkpoint::TensorShape)| {
            assert_eq!(saved[name.as_str()], tensor.shape.iter().product::<usize>(), "{name}");
            let whole = self.checkpoint.read(name, &tensor.shape, &TensorBox::whole(&tensor.shape));
            (name.clone(), whole.unwrap().into_iter().map(f32::to_bits).collect())
        };
        manifest.tensors.iter().map(bits).collect()
    }
}

/// A step on stages updates every parameter, state and average as a step on the whole model does, and saves them alike.
#[test]
fn stages_train_like_the_whole_model() {
    for rule in [adamw(), Arc::new(MuonOptions::default())] {
        let save = |mesh| save_on::<TinyLlama>(mesh, &rule, None, false).bits();
        let whole = save(("1", ZeroStage::Replicated));
        assert!(whole.len() > 3 * 16, "{} tensors", whole.len());
        for mesh in [
            ("pp=2", ZeroStage::Replicated),
            ("pp=4", ZeroStage::Replicated),
            ("pp=2,fsdp=2", ZeroStage::Optimizer),
            ("pp=2,fsdp=2", ZeroStage::Parameters),
            ("pp=2,tp=2", ZeroStage::Replicated),
        ] {
            assert!(save(mesh) == whole, "{} on {mesh:?}", rule.name());
        }
    }
}

#[test]
fn checkpoints_load_at_any_pp() {
    fn check<M: TestModel>(is_tied: bool) {
        let first = save_on::<M>(("pp=4", ZeroStage::Replicated), &adamw(), None, is_tied);
        let expected = first.bits();
        let mut last = first;
        for mesh in [
            ("1", ZeroStage::Replicated),
            ("pp=2", ZeroStage::Replicated),
            ("pp=2,fsdp=2", ZeroStage::Gradients),
            ("pp=2,tp=2", ZeroStage::Replicated),
            ("pp=4", ZeroStage::Replicated),
        ] {
            last = save_on::<M>(mesh, &adamw(), Some(&last.checkpoint), is_tied);
            assert!(last.bits() == expected, "tied: {is_tied}, on {mesh:?}");
        }
    }
    check::<TinyLlama>(false);
    check::<TinyLlama>(true);
    check::<TinyGpt2>(true);
}

/// Owners of tied parameters stay equal to the bit through training and loading.
#[test]
fn owners_of_tied_parameters_stay_equal() {
    for (mesh, zero) in [("pp=2", ZeroStage::Replicated), ("pp=2,fsdp=2", ZeroStage::Parameters)] {
        let saved = save_on::<TinyLlama>((mesh, zero), &adamw(), None, true);
        let found = on_ranks(mesh, zero, |rank| {
            let mut state = StageState::<TinyLlama>::new(rank, &adamw(), true);
            let mut seen = Vec::new();
            for _ in 0..2 {
                state.train(rank, 1);
                let embed = &state.built.params()[0];
                assert!(embed.is_owned());
                seen.push(embed.gather(rank));
                state.load(&saved.checkpoint);
                seen.push(embed.gather(rank));
            }
            assert_ne!(seen[0], seen[1]);
            seen
        });
        assert!(found.iter().all(|seen| *seen == found[0]), "{mesh}");
    }
}

/// A group may select parameters of another stage only; one that selects nothing is refused on all ranks.
#[test]
fn groups_are_judged_by_the_whole_model() {
    let found = on_ranks("pp=4", ZeroStage::Replicated, |rank| {
        let built = build_tiny::<TinyLlama>(rank, false);
        let check = |pattern: &str| {
            let groups = ParamGroups::default().lr_scale(Select::path(pattern), 0.5);
            Optimizer::with_groups(rank, &built.units, adamw(), &groups).err()
        };
        assert!(
            ["embed.**", "blocks.*.up.weight", "head.weight"]
                .map(check)
                .iter()
                .all(Option::is_none)
        );
        matches!(check("tail.**"), Some(OptimizerError::Groups(_)))
    });
    assert_eq!(found, [true; 4]);
}

/// Hugging Face configuration of the tests, without settings.
#[derive(Clone, Default)]
pub(super) struct TinyConfig;

impl ConfigKeys for TinyConfig {
    const MODEL_TYPES: &'static [&'static str] = &["tiny"];

    fn keys(&mut self, _: &mut HfKeys<'_>) -> KeyResult {
        Ok(())
    }
}

pub(super) const NAMES: &[HfName] = &[
    HfName::same("embed.weight", "wte"),
    HfName::same("positions.weight", "wpe"),
    HfName::same("blocks.*.norm.weight", "h.*.norm"),
    HfName::transposed("blocks.*.up.weight", "h.*.up"),
    HfName::same("blocks.*.down.weight", "h.*.down"),
    HfName::same("norm.weight", "norm.weight"),
    HfName::same("norm.bias", "norm.bias"),
    HfName::same("gain", "gain"),
    HfName::transposed("head.weight", "head"),
];

/// Exports the stages on a mesh: with parameters imported from a folder, or else trained ones. Returns the bytes.
fn export_on<M: TestModel>(mesh: &str, is_tied: bool, from: Option<&Path>, to: &Path) -> Vec<u8> {
    let zero = ZeroStage::Parameters;
    on_ranks(mesh, zero, |rank| {
        let mut state = StageState::<M>::new(rank, &adamw(), is_tied);
        let params = state.built.params();
        match from {
            Some(folder) => {
                let clear = |param: &ParamRef| param.write(&vec![-1.0; param.local_len()]);
                params.iter().filter(|param| param.is_owned()).for_each(clear);
                let (_, folder) = HfFolder::open::<TinyConfig>(folder, &[]).unwrap();
                import_hf(&folder, NAMES, &params).unwrap();
            }
            None => state.train(rank, 1),
        }
        let shapes = HfMapping::new(NAMES, &params).unwrap().shapes();
        export_hf(rank, to, &HfFormat::new(&TinyConfig, shapes), NAMES, &params).unwrap();
    });
    std::fs::read(to.join("model.safetensors")).unwrap()
}

#[test]
fn exports_have_equal_bytes_at_any_pp() {
    fn check<M: TestModel>(is_tied: bool) {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let first = export_on::<M>("pp=4", is_tied, None, folders[0].path());
        if !is_tied {
            assert!(first == export_on::<M>("1", is_tied, None, folders[1].path()), "trained");
        }
        for mesh in ["1", "pp=2", "pp=2,fsdp=2", "pp=2,tp=2", "pp=3,dp=2"] {
            let bytes = export_on::<M>(mesh, is_tied, Some(folders[0].path()), folders[1].path());
            assert!(bytes == first, "tied: {is_tied}, on {mesh}");
        }
    }
    check::<TinyLlama>(false);
    check::<TinyLlama>(true);
    check::<TinyGpt2>(true);
}

/// A program for pipelines runs by `run_on`, which refuses axes without use.
#[test]
fn meshes_with_pp_run() {
    let run = |builds_stages: bool| {
        crate::run_on("pp=2", 0, |rank| {
            if builds_stages {
                build_tiny::<TinyLlama>(rank, false);
            }
            Ok(rank.position(meshwright_mesh::AxisSet::of(meshwright_mesh::AxisId::Pp)))
        })
    };
    assert_eq!(run(true).unwrap(), [0, 1]);
    let text = run(false).unwrap_err().to_string();
    assert!(text.contains("build the model as stages, by `build_stages`"), "{text}");
}
