//! Encoder-decoders: T5 of both kinds, and Whisper. One step, a training run on one rank and on a mesh, changed keys,
//! and a round trip, against PyTorch.

mod cases;
mod counts;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use meshwright::checkpoint::hf::{HfConfig, HfFolder, HfFormat};
use meshwright::models::{T5, Whisper};
use meshwright::nn::build;
use meshwright::optim::{AdamWOptions, Optimizer};
use meshwright::state_dict::{HfMapping, export_hf};
use meshwright::tensor::{ParamRef, Rank};
use meshwright::train::import_hf;
use meshwright_tests::compare::{Report, assert_same_bits, distance, scalar_distance};
use meshwright_tests::run::on_mesh;
use serde_json::{Map, Value};

use super::config_fuzz;
use super::families::config_of;
use super::mutations::{last_part, write_config};
use super::{Case, GRADIENT, LOGITS, LOSS, TRAIN_LOSS, TRAIN_NORM, as_stored, weights_of};
use cases::EncoderDecoder;

/// Declares the tests of each case.
macro_rules! cases {
    ($($case:ident: $model:ty;)*) => {$(
        #[test]
        fn $case() {
            check::<$model>(stringify!($case));
        }
    )*};
}

cases! {
    t5: T5;
    t5_v1_1: T5;
    whisper: Whisper;
}

fn check<M: EncoderDecoder>(name: &str) {
    let case = Case::open(name);
    let mut report = Report::default();
    check_one_step::<M>(&case, &mut report);
    for mesh in ["1", "fsdp=2,tp=2"] {
        check_training::<M>(&case, mesh, &mut report);
    }
    check_mutations::<M>(&case);
    check_round_trip::<M>(&case);
    report.print();
}

#[test]
fn altered_configurations_are_read_or_refused_by_key() {
    config_fuzz::check::<T5>("t5");
    config_fuzz::check::<T5>("t5_v1_1");
    config_fuzz::check::<Whisper>("whisper");
}

/// Compares logits, loss and all gradients of the loaded model.
fn check_one_step<M: EncoderDecoder>(case: &Case, report: &mut Report) {
    let (config, folder) = HfFolder::open::<M::Config>(&case.folder, &[]).unwrap();
    let names = M::tensor_names(&config);
    let (logits, loss, gradients) = on_mesh("1", 1, |rank| {
        let (model, params) = loaded::<M>(rank, &config, &folder).unwrap();
        let (input, targets) = M::step(case, &config, rank, 0);
        let logits = rank.evaluate(|| M::logits(&model, &model.forward(&input)));
        let loss = M::loss(&model, &model.forward(&input), &targets);
        let mean = loss.reduce().value();
        let gradients = loss.backward().reduce();
        (logits, mean, as_stored(&names, &params, |param| gradients.gather(param)))
    })
    .remove(0);
    let label = case.folder.display();
    report.note("logits", label, distance(&logits, &case.floats["logits"]), LOGITS);
    let label = case.folder.display();
    report.note("loss", label, scalar_distance(loss, case.number("loss")), LOSS);
    case.compare("gradient", "grad.", &gradients, GRADIENT, report);
    assert_eq!(gradients.len(), case.with_prefix("grad.").len(), "gradients expected");
}

/// Builds the model of a folder.
fn loaded<M: EncoderDecoder>(
    rank: &Rank,
    config: &M::Config,
    folder: &HfFolder,
) -> Result<(M, Vec<ParamRef>), String> {
    let built = build::<M>(rank, &M::dim_sizes(config)).map_err(|error| error.to_string())?;
    let params = built.params();
    import_hf(folder, &M::tensor_names(config), &params).map_err(|error| error.to_string())?;
    Ok((built.model, params))
}

/// Compares losses and gradient norms of a training run.
fn check_training<M: EncoderDecoder>(case: &Case, mesh: &str, report: &mut Report) {
    let (config, folder) = HfFolder::open::<M::Config>(&case.folder, &[]).unwrap();
    let betas = case.numbers("betas");
    let options = Arc::new(AdamWOptions {
        betas: (betas[0], betas[1]),
        eps: case.number("eps"),
        weight_decay: case.number("weight_decay"),
    });
    let (losses, norms): (Vec<f64>, Vec<f64>) = on_mesh(mesh, 1, |rank| {
        let built = build::<M>(rank, &M::dim_sizes(&config)).unwrap();
        import_hf(&folder, &M::tensor_names(&config), &built.params()).unwrap();
        let mut optimizer = Optimizer::new(rank, &built.units, Arc::clone(&options));
        let step = |step| {
            let (input, targets) = M::step(case, &config, rank, step);
            let loss = M::loss(&built.model, &built.model.forward(&input), &targets);
            let mean = loss.reduce().value();
            let mut gradients = loss.backward().reduce();
            let norm = gradients.clip(case.number("clip"));
            optimizer.step(case.number("lr"), gradients);
            (mean, norm)
        };
        (0..case.number("steps") as usize).map(step).unzip()
    })
    .remove(0);
    let label = format!("{} on {mesh}", case.folder.display());
    report.scalars("training loss", &label, &losses, &case.numbers("train_losses"), TRAIN_LOSS);
    let expected = case.numbers("train_grad_norms");
    report.scalars("gradient norm", &label, &norms, &expected, TRAIN_NORM);
}

/// Changed keys have the loss of PyTorch, or are refused by name.
fn check_mutations<M: EncoderDecoder>(case: &Case) {
    let table = fs::read(case.folder.join("mutations.json")).expect("mutations.json is there");
    let table: Value = serde_json::from_slice(&table).expect("mutations.json is JSON");
    for row in table.as_array().expect("rows") {
        let (mutation, keys) = (&row["mutation"], row["keys"].as_object().expect("an object"));
        if keys.is_empty() {
            continue;
        }
        let label = format!("{}, {mutation}", case.folder.display());
        match loss_with::<M>(case, keys) {
            Ok(loss) => {
                let distance = scalar_distance(loss, row["loss"].as_f64().expect("a loss"));
                assert!(distance < 2.0 * LOSS, "{label}: off by {distance:.1e}");
            }
            Err(reason) => {
                println!("{label}: {reason}");
                let is_named = |key: &String| reason.contains(last_part(key));
                assert!(keys.keys().any(is_named), "{label}: {reason}");
            }
        }
    }
}

/// Returns the loss of the first step with other keys.
fn loss_with<M: EncoderDecoder>(case: &Case, keys: &Map<String, Value>) -> Result<f64, String> {
    let out = tempfile::tempdir().unwrap();
    let weights = "model.safetensors";
    fs::copy(case.folder.join(weights), out.path().join(weights)).unwrap();
    let mut config = config_of(&case.folder);
    config.extend(keys.clone());
    write_config(out.path(), &Value::Object(config));
    let opened = HfFolder::open::<M::Config>(out.path(), &[]);
    let (config, folder) = opened.map_err(|error| error.to_string())?;
    let losses = on_mesh("1", 1, |rank| {
        let (model, _) = loaded::<M>(rank, &config, &folder)?;
        let (input, targets) = M::step(case, &config, rank, 0);
        let loss = |x: &_| M::loss(&model, &model.forward(x), &targets).reduce().value();
        Ok(rank.evaluate(|| loss(&input)))
    });
    losses.into_iter().next().expect("a rank")
}

/// A folder that is imported and exported has the same tensors and keys.
fn check_round_trip<M: EncoderDecoder>(case: &Case) {
    let out = tempfile::tempdir().unwrap();
    let (config, folder) = HfFolder::open::<M::Config>(&case.folder, &[]).unwrap();
    let names = M::tensor_names(&config);
    on_mesh("fsdp=2,tp=2", 1, |rank| {
        let (_, params) = loaded::<M>(rank, &config, &folder).unwrap();
        let shapes = HfMapping::new(&names, &params).unwrap().shapes();
        folder.check_tensors(&shapes).unwrap();
        let format = HfFormat::new(&config, shapes);
        export_hf(rank, out.path(), &format, &names, &params).unwrap();
    });
    assert_same_bits("imported and exported", &weights_of(out.path()), &weights_of(&case.folder));
    let shapes = [out.path(), &case.folder].map(shapes_of);
    assert_eq!(shapes[0], shapes[1]);
    let (got, expected) = (config_of(out.path()), config_of(&case.folder));
    for (key, value) in got.iter().filter(|(key, _)| *key != "torch_dtype") {
        let of_file = expected.get(key);
        assert!(of_file.is_none_or(|of_file| of_file == value), "`{key}`: {value}, {of_file:?}");
    }
    let [got, expected] = [out.path(), &case.folder].map(|folder| M::Config::read(folder, &[]));
    assert_eq!(got.unwrap().config.to_json(), expected.unwrap().config.to_json());
}

/// Returns the shape of each tensor of a folder.
fn shapes_of(folder: &Path) -> Vec<(String, Vec<usize>)> {
    let bytes = fs::read(folder.join("model.safetensors")).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut shapes: Vec<_> =
        tensors.iter().map(|(name, tensor)| (name.to_owned(), tensor.shape().to_vec())).collect();
    shapes.sort();
    shapes
}

/// Spectrograms are those of the feature extractor of `transformers`.
#[test]
fn log_mels_of_a_clip() {
    let case = Case::open("whisper");
    let (mut floats, mut ids) = (super::Tensors::new(), Vec::new());
    let path = case.folder.join("log_mel.safetensors");
    super::read_tensors(&path, |name, dtype, words| match dtype {
        safetensors::Dtype::F32 => drop(floats.insert(name, words.map(f32::from_bits).collect())),
        _ => ids = words.collect(),
    });
    let sound: Vec<f32> = ids.iter().map(|sample| (*sample as i32) as f32 / 32768.0).collect();
    for mels in [80, 128] {
        let found = meshwright::models::whisper::LogMel::new(mels, 3000).compute(&sound);
        assert_eq!(found.len(), 3000 * mels);
        for (expected, found) in [
            (&floats[&format!("mels_{mels}")], &found[..64 * mels]),
            (&floats[&format!("last_{mels}")], &found[2999 * mels..]),
        ] {
            let furthest = expected.iter().zip(found).map(|(x, y)| (x - y).abs());
            let furthest = furthest.fold(0.0, f32::max);
            assert!(furthest < 1e-4, "{mels} bins: {furthest:e}");
        }
    }
}
