//! A model of each causal family: one step, a training run on one rank and on meshes, and a round trip.

use std::fs;
use std::path::Path;

use meshwright::checkpoint::hf::HfConfig;
use meshwright::models::Families;
use meshwright::train::{FamilyList, LanguageModel, Summary, WithFamily};
use meshwright_tests::compare::{Report, assert_same_bits};
use serde_json::{Map, Value};

use super::{Case, TRAIN_LOSS, TRAIN_NORM, weights_of};

/// Meshes of training runs of all families.
const MESHES: [&str; 2] = ["1", "fsdp=2,tp=2"];
/// Further meshes of families with experts.
const EXPERT_MESHES: [&str; 4] = ["ep=2", "dp=2,ep=2", "ep=2,tp=2", "ep=2,pp=2"];

/// A test with the model of a case.
pub(super) trait OfFamily {
    /// Runs it.
    fn run<M: LanguageModel>(&self, case: &str);
}

struct WithCase<'a, T>(&'a T, &'a str);

impl<T: OfFamily> WithFamily for WithCase<'_, T> {
    type Out = ();

    fn with<M: LanguageModel>(self) {
        self.0.run::<M>(self.1);
    }
}

/// Runs a test with a case and the model of its family.
fn with_case(test: &impl OfFamily, case: &str) {
    let config = config_of(&Case::open(case).folder);
    let family = config["model_type"].as_str().expect("a text");
    let ran = Families::with(family, WithCase(test, case));
    assert!(ran.is_some(), "{family} is none of {:?}", Families::names());
}

/// Declares a test of parity for each case.
macro_rules! cases {
    ($($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                with_case(&Parity, stringify!($case));
            }
        )*

        /// Runs a test with each case.
        pub(super) fn each_case(test: &impl OfFamily) {
            $(with_case(test, stringify!($case));)*
        }
    };
}

cases! {
    llama_biases mistral qwen2 qwen3 phi3 smollm3 gemma2 gemma3_text gemma3 olmo2 gpt_neox gpt_neox_serial qwen3_moe
    gpt_oss deepseek_v3 deepseek_v3_plain
}

struct Parity;

impl OfFamily for Parity {
    fn run<M: LanguageModel>(&self, name: &str) {
        let case = Case::open(name);
        let mut report = Report::default();
        case.check_one_step::<M>(&mut report);
        let has_experts = !case.with_prefix("grad.").keys().all(|name| !name.contains(".experts."));
        let more = if has_experts { &EXPERT_MESHES[..] } else { &[] };
        for mesh in MESHES.iter().chain(more) {
            check_training::<M>(&case, mesh, &mut report);
        }
        check_round_trip::<M>(&case);
        report.print();
    }
}

/// Compares losses and gradient norms of a training run.
pub(super) fn check_training<M: LanguageModel>(case: &Case, mesh: &str, report: &mut Report) {
    let out = tempfile::tempdir().unwrap();
    let steps = case.number("steps") as u64;
    let Summary { losses, grad_norms, .. } =
        case.train_on::<M>(mesh, &case.folder, out.path(), steps, "1");
    let label = format!("{} on {mesh}", case.folder.display());
    let expected = case.numbers("train_losses");
    report.scalars("training loss", &label, &losses, &expected, TRAIN_LOSS);
    let expected = case.numbers("train_grad_norms");
    report.scalars("gradient norm", &label, &grad_norms, &expected, TRAIN_NORM);
}

/// Checks that a folder that is imported and exported has the same tensors and keys.
fn check_round_trip<M: LanguageModel>(case: &Case) {
    let out = tempfile::tempdir().unwrap();
    case.train_on::<M>("fsdp=2,tp=2", &case.folder, out.path(), 1, "0");
    assert_same_bits("imported and exported", &weights_of(out.path()), &weights_of(&case.folder));
    let [got, expected] = [out.path(), &case.folder].map(config_of);
    for (key, value) in expected {
        assert_eq!(got.get(&key), Some(&value), "{}: `{key}`", case.folder.display());
    }
    // Further keys, such as those of earlier versions of `transformers`, change nothing.
    let [got, expected] = [out.path(), &case.folder].map(|folder| M::Config::read(folder, &[]));
    assert_eq!(got.unwrap().config.to_json(), expected.unwrap().config.to_json());
}

/// Reads `config.json` of a folder.
pub(super) fn config_of(folder: &Path) -> Map<String, Value> {
    let text = fs::read(folder.join("config.json")).expect("config.json is readable");
    serde_json::from_slice(&text).expect("config.json is JSON")
}
