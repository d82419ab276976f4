//! Keys of `config.json`, changed one by one as `mutations.json` says: the loss is that of PyTorch, or the key is
//! refused.

use std::fs;
use std::path::Path;

use meshwright::checkpoint::hf::HfFolder;
use meshwright::nn::build;
use meshwright::tensor::{Targets, Tokens};
use meshwright::train::{LanguageModel, import_hf};
use meshwright_tests::compare::scalar_distance;
use meshwright_tests::run::on_mesh;
use serde_json::{Map, Value};

use super::families::{OfFamily, config_of, each_case};
use super::{Case, LOSS};

struct Mutations;

#[test]
fn changed_keys_have_the_loss_of_pytorch_or_are_refused() {
    each_case(&Mutations);
}

impl OfFamily for Mutations {
    fn run<M: LanguageModel>(&self, name: &str) {
        let case = Case::open(name);
        let table = fs::read(case.folder.join("mutations.json")).expect("mutations.json is there");
        let table: Value = serde_json::from_slice(&table).expect("mutations.json is JSON");
        for row in table.as_array().expect("rows") {
            let (mutation, keys) = (&row["mutation"], row["keys"].as_object().expect("an object"));
            if keys.is_empty() {
                continue;
            }
            match loss_with::<M>(&case, keys) {
                Ok(loss) => {
                    let distance = scalar_distance(loss, row["loss"].as_f64().expect("a loss"));
                    assert!(distance < 2.0 * LOSS, "{name}, {mutation}: off by {distance:.1e}");
                }
                Err(reason) => {
                    println!("{name}, {mutation}: {reason}");
                    let is_named = |key: &String| reason.contains(last_part(key));
                    // Tensors that are in excess are named instead.
                    let is_of_tensors = reason.contains("model.safetensors");
                    assert!(keys.keys().any(is_named) || is_of_tensors, "{name}: {reason}");
                }
            }
        }
    }
}

/// Returns the loss of the first step with other keys.
fn loss_with<M: LanguageModel>(case: &Case, keys: &Map<String, Value>) -> Result<f64, String> {
    let out = tempfile::tempdir().unwrap();
    let weights = "model.safetensors";
    fs::copy(case.folder.join(weights), out.path().join(weights)).unwrap();
    let mut config = Value::Object(config_of(&case.folder));
    for (path, value) in keys {
        let pointer = format!("/{}", path.replace('.', "/"));
        let (outer, key) = pointer.rsplit_once('/').expect("a slash");
        config.pointer_mut(outer).expect("an object")[key] = value.clone();
    }
    write_config(out.path(), &config);
    let opened = HfFolder::open::<M::Config>(out.path(), &[]);
    let (config, folder) = opened.map_err(|error| error.to_string())?;
    let (sizes, names) = (M::sizes(&config), M::hf_names(&config));
    let block = [case.number("batch") as usize, case.number("seq") as usize];
    let losses = on_mesh("1", 1, |rank| {
        let built = build::<M>(rank, &sizes).map_err(|error| error.to_string())?;
        let params = built.params();
        import_hf(&folder, &names, &params).map_err(|error| error.to_string())?;
        let tokens = Tokens::from_block(rank, &block, &case.ids["tokens"]);
        let targets = Targets::from_block(rank, &block, &case.ids["targets"]);
        Ok(rank.evaluate(|| built.model.loss(&tokens, &targets).reduce().value()))
    });
    losses.into_iter().next().expect("a rank")
}

/// Writes `config.json` to a folder.
pub(super) fn write_config(folder: &Path, config: &Value) {
    let path = folder.join("config.json");
    // Some file systems wait for the disk when a file is written over.
    let _ = fs::remove_file(&path);
    fs::write(path, config.to_string()).expect("the folder is writable");
}

/// Returns the key of a path of objects.
pub(super) fn last_part(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}
