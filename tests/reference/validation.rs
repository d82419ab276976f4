//! Validation losses: PyTorch's on the same rows and documents, on any mesh.

use std::ffi::OsStr;

use meshwright::models::gpt2::Gpt2;
use meshwright::models::llama::Llama;
use meshwright::models::mixtral::Mixtral;
use meshwright::train::LanguageModel;
use meshwright_tests::compare::scalar_distance;
use meshwright_tests::run::train_with_words;
use serde_json::Value;

use super::Case;

/// Evaluates the loaded model after a step of learning rate 0, whole rows and packed documents.
fn check<M: LanguageModel>(name: &str, meshes: &[&str]) {
    let case = Case::open(name);
    let folder = case.folder.with_file_name("validation");
    let expected = std::fs::read(folder.join("expected.json")).unwrap();
    let expected: Value = serde_json::from_slice(&expected).unwrap();
    for mesh in meshes {
        for (rows, documents) in [
            ("rows", String::new()),
            ("packed", format!("--documents {} --pack --mask-borders", expected["end"])),
        ] {
            let words = format!(
                "--init-from {0} --data {1} --eval-data {1} --batch {2} --seq {3} --steps 1 --lr 0 --mesh {mesh} \
                 {documents}",
                case.folder.display(),
                folder.join(format!("{name}.bin")).display(),
                case.number("batch"),
                case.number("seq"),
            );
            let summary = train_with_words::<M>(words.split_whitespace().map(OsStr::new)).unwrap();
            let (found, expected) = (summary.evaluations[0], &expected[name][rows]);
            let label = format!("{name}, {rows}, {mesh}: {found:?}, expected {expected}");
            assert_eq!(Some(found.targets), expected["targets"].as_u64(), "{label}");
            let distance = scalar_distance(found.loss, expected["loss"].as_f64().unwrap());
            assert!(distance < 1e-6, "{label}: {distance}");
        }
    }
}

#[test]
fn a_llama_has_the_validation_loss_of_pytorch() {
    check::<Llama>("untied_mha", &["1", "dp=4", "fsdp=2,tp=2", "cp=2", "pp=2"]);
}

#[test]
fn a_gpt2_has_the_validation_loss_of_pytorch() {
    check::<Gpt2>("gpt2_masked_sharded", &["1", "dp=2", "pp=2 --micro-batches 2"]);
}

#[test]
fn a_mixtral_has_the_validation_loss_of_pytorch() {
    check::<Mixtral>("mixtral_masked_sharded", &["1", "ep=2,tp=2", "fsdp=2,cp=2"]);
}
